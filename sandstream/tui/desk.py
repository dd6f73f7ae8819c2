"""The data of the UI: all sessions, all runs and all questions, as they are now.

It reads with the public client and the one reader of runs, and keeps nothing that the log does not
have. Screens register a listener and read the fields.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import getpass
import logging
import time
from collections.abc import AsyncIterator, Callable

from sandstream_bus.errors import BusError, BusUnavailable, PermissionDenied
from sandstream_bus.nats.subscription import CoreMessage

from sandstream._inspect.rows import Call
from sandstream._inspect.run_board import RunBoard
from sandstream._inspect.summaries import RunSummary
from sandstream.approvals import OpenApproval
from sandstream.client import Client
from sandstream.sessions.views import SessionInfo
from sandstream.tui.conversation.call_text import asked, title
from sandstream.tui.overview.entries import Entry, entries_of

logger = logging.getLogger(__name__)

_AT_MOST_EVERY_S = 0.25
"""Changes that come faster are read together."""
_SILENCE_S = 15.0
"""Without any hint the lists are read again after this time."""
_LAG_S = 5.0
"""The index of questions follows the log within this time."""
_RUNS_STAY_S = 3600.0
_MOST_ENDED = 200
_MOST_QUESTIONS = 200


class Desk:
    """What the screens show. Use it with :meth:`watched`.

    Args:
        client: The connection; its owner closes it.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.sessions: dict[str, SessionInfo] = {}
        self.questions: list[OpenApproval] = []
        """What people are asked, newest first."""
        self.trouble: BusError | None = None
        """The fault that the connection waits for; None: it works."""
        self.is_loaded = False
        self.by = _login()
        """The name under which answers are recorded."""
        self._board = RunBoard(client.bus, self._run_changed, linger_s=_RUNS_STAY_S)
        self._listeners: set[Callable[[], None]] = set()
        self._stale = asyncio.Event()
        self._asked: dict[str, int] = {}
        """How many questions each run had when it last changed."""
        self._must_ask = True
        self._asked_at = float("-inf")
        """When a run last had a new question."""

    # --- reading -------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All sessions and runs, for the list."""
        running, ended = self._board.runs()
        runs = [*running, *ended[:_MOST_ENDED]]
        doing = {it.run_id: self._doing(it) for it in running}
        for question in self.questions:  # the oldest is the last one
            asks = asked(question)
            doing |= {question.root_run: asks, question.run_id: asks}
        inputs = {it.run_id: self._board.asked(it.run_id) for it in runs}
        return entries_of(self.sessions.values(), runs, doing=doing, asked=inputs)

    def _doing(self, run: RunSummary) -> str:
        """What a run does now: the command or call that it waits for, else its step."""
        calls = self._board.open_calls(run.run_id) if run.status == "running" else []
        shown = [title(Call(name=name, arguments=arguments)) for name, arguments in calls]
        return ", ".join(shown) or run.step

    def run(self, run: str) -> RunSummary | None:
        """A run as it is now; None: it is not among those at work or those that ended lately.

        Args:
            run: The id of the run.
        """
        running, ended = self._board.runs()
        return next((it for it in [*running, *ended] if it.run_id == run), None)

    def session_of(self, run: str) -> SessionInfo | None:
        """The session whose turn a run takes now; None: it is no turn.

        Args:
            run: The id of the run.
        """
        found = (it for it in self.sessions.values() if it.active and it.active.run == run)
        return next(found, None)

    def title_of(self, run: str) -> str:
        """The title of the session whose turn a run takes; else what the run was asked.

        Args:
            run: The id of the run.
        """
        info = self.session_of(run)
        return self._board.asked(run) or run if info is None else info.title or info.id

    def questions_of(self, entry: Entry) -> list[OpenApproval]:
        """What the session or run asks, the oldest first."""
        found = [it for it in self.questions if entry.run in (it.run_id, it.root_run)]
        return sorted(found, key=lambda it: it.since) if entry.run else []

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after every change.

        Args:
            listener: It is called without arguments, and must not block.

        Returns:
            A function that ends this.
        """
        # News of the connection come from its own tasks, which do not know the app: Textual finds
        # the app in the context.
        context = contextvars.copy_context()

        def told() -> None:
            context.copy().run(listener)

        self._listeners.add(told)
        return lambda: self._listeners.discard(told)

    def refresh(self) -> None:
        """Read the lists again soon."""
        self._must_ask = True
        self._stale.set()

    # --- following -----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Follow everything until the block ends."""
        connection = self.client.bus.connection

        def hint(_: CoreMessage) -> None:
            self._stale.set()

        async def doubt() -> None:
            self.refresh()

        subject = self.client.bus.subjects.live("session", "*")
        subscription = await connection.subscribe(subject, hint)
        forget = [connection.troubles.listen(self._troubled), connection.on_reconnect(doubt)]
        tasks = [asyncio.ensure_future(self._follow_runs()), asyncio.ensure_future(self._read())]
        try:
            yield
        finally:
            for end in forget:
                end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await subscription.close()

    async def _follow_runs(self) -> None:
        while True:
            try:
                await self._board.follow()
            except (BusUnavailable, TimeoutError):  # an outage that lasts longer than a read waits
                await asyncio.sleep(_AT_MOST_EVERY_S)

    async def _read(self) -> None:
        """Read sessions and questions whenever they may have changed."""
        while True:
            began = time.monotonic()
            self._stale.clear()
            try:
                self.sessions = {it.id: it for it in await self._sessions()}
                if self._must_ask or any(it.activity == "needs you" for it in self._infos()):
                    self._must_ask = False
                    self.questions = await self.client.approvals(limit=_MOST_QUESTIONS)
                    if self._lacks_questions():
                        self.refresh()
                elif self.questions and not any(self._asked.values()):
                    self.questions = []
                self.is_loaded = True
                self._tell()
            except (BusUnavailable, TimeoutError):
                self.refresh()
            took_s = time.monotonic() - began
            await asyncio.sleep(max(_AT_MOST_EVERY_S, 2 * took_s))  # never more than a third
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SILENCE_S):
                    await self._stale.wait()

    def _lacks_questions(self) -> bool:
        """Whether the log has a new question that the index does not have yet."""
        listed = {run for it in self.questions for run in (it.run_id, it.root_run)}
        is_new = time.monotonic() - self._asked_at < _LAG_S
        return is_new and not self._asked.keys() <= listed

    def _infos(self) -> list[SessionInfo]:
        return list(self.sessions.values())

    async def _sessions(self) -> list[SessionInfo]:
        try:
            return await self.client.sessions.list(archived=True)
        except PermissionDenied:  # of a user who may only see runs
            return []

    def _run_changed(self, summary: RunSummary) -> None:
        before = self._asked.get(summary.run_id, 0)
        now = 0 if summary.is_over else summary.approvals
        if now:
            self._asked[summary.run_id] = now
        else:
            self._asked.pop(summary.run_id, None)
        if now > before:
            self._asked_at = time.monotonic()
        if now != before:
            self._must_ask = True
            self._stale.set()
        self._tell()

    def _troubled(self, error: BusError | None) -> None:
        self.trouble = error
        self._tell()

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process whose user has no name
        return ""
