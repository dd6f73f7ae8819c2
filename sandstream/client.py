"""The client: submit tasks to deployed agents, follow, wait, cancel, list. Talks to the bus only.

Everything here can be done by any NATS client in any language; docs/wire.md shows how.
"""

from __future__ import annotations

import asyncio
import builtins
import uuid
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.parked import ParkedEntry
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.headers import KEY
from sandstream_bus.wire.messages import CancelRequested, LiveEvent, RetryRequested, RunDone, Task
from sandstream_bus.wire.specs import NO_JSON, Budget
from sandstream_bus.wire.subjects import RunId, check_token, run_id_of_key

from sandstream._inspect.run_filter import run_filter
from sandstream._inspect.run_lists import RunList, Which, list_runs
from sandstream._inspect.run_search import search_runs
from sandstream._inspect.summaries import RunSummary, read_known, summarize
from sandstream._surface.connection import OpenBus, open_bus
from sandstream._wire.asks import Asks
from sandstream._wire.ids import new_run_id
from sandstream.approvals import OpenApproval, decide, open_approvals, stage_input
from sandstream.exceptions import UserError
from sandstream.settings import Settings
from sandstream.tracing.setup import reporter_here
from sandstream.tracing.trace_parent import trace_headers

if TYPE_CHECKING:
    from sandstream.sessions.directory import Sessions

_CANCEL_PATIENCE_S = 3.0


class RunNotFound(UserError):
    """There is no such run in the log."""

    code = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r}; `sandstream runs` lists all")


class Client:
    """A connection for people and programs that use runs. Use it with ``async with``.

    As a user (``SANDSTREAM_USER``) it publishes only requests, which a harness checks and carries
    out. Its runs belong to that user.

    Args:
        opened: The connection to the bus, from :meth:`connect`. The client closes it.
        user: The user in whose name requests are published; ``None`` writes to the log directly.

    Example:
        async with await Client.connect() as client:
            run_id = await client.submit("assistant", "How is the weather?", key="question-1")
            done = await client.wait(run_id)
    """

    def __init__(self, opened: OpenBus, user: str | None = None) -> None:
        self._opened = opened
        self.bus: Bus = opened.bus
        self.asks: Asks | None = Asks(self.bus, user) if user else None
        """The user's requests; None: this client writes to the log itself."""

    @classmethod
    async def connect(cls, settings: Settings | None = None) -> Client:
        """Connect to ``NATS_URL``, or to the private server.

        Args:
            settings: Where to connect, and as whom; ``None`` reads the environment.

        Returns:
            The client. The caller closes it.

        Raises:
            BusUnavailable: The server cannot be reached.
        """
        settings = settings or Settings.from_env()
        is_outsider = settings.user is not None
        opened = await open_bus(settings, name="sandstream-client", outsider=is_outsider)
        client = cls(opened, settings.user)
        reporter_here().attach(client.bus)
        return client

    @cached_property
    def sessions(self) -> Sessions:
        """Durable sessions: create, find and list them. See docs/sessions.md."""
        # imported here: most programs submit single tasks
        from sandstream.sessions.directory import Sessions
        from sandstream.sessions.link import SessionLink

        return Sessions(SessionLink(self.bus, self.asks))

    async def close(self) -> None:
        """Close the connection. Runs continue."""
        await reporter_here().detach(self.bus)
        await self._opened.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- starting ------------------------------------------------------------------------------

    async def submit(
        self,
        agent: str,
        input: str | list[dict[str, Any]],
        *,
        key: str | None = None,
        context: Mapping[str, Any] | None = None,
        max_turns: int | msgspec.UnsetType | None = msgspec.UNSET,
        stream: bool = False,
        group_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        session: str | None = None,
        session_busy: Literal["queue", "refuse"] = "queue",
        budget: Budget | None = None,
        approval_expires_s: float | None = None,
    ) -> RunId:
        """Publish a task for a deployed agent.

        Args:
            agent: The name of the agent.
            input: The user's message, or a list of items.
            key: Makes the task idempotent: the same key is the same run, however often it is
                submitted. Each user has keys of their own.
            context: A JSON object for the agent's tools, hooks and guardrails.
            max_turns: How many model calls the run may make; ``None`` removes the limit. If it is
                left out, the worker's limit counts.
            stream: Publish what the model says while it says it.
            group_id: Connects the traces of several runs.
            metadata: Values to find the run by, see :meth:`runs`.
            session: The conversation on the bus that the run continues. Each user has
                conversations of their own.
            session_busy: Wait while another run has the conversation, or refuse the run.
            budget: Limits for the run and its child runs, at most those of its worker.
            approval_expires_s: How long calls wait for a person, in seconds.

        Returns:
            The id of the run.

        Raises:
            UserError: A value makes no sense. Nothing was published then.

        Example:
            run_id = await client.submit("assistant", "How is the weather?", key="question-1")
        """
        if not agent:
            raise UserError("the agent's name must not be empty")
        task = Task(
            input=input if isinstance(input, str) else _items(input),
            context=NO_JSON if context is None else _json(context, "context"),
            max_turns=max_turns,
            stream=stream,
            group_id=group_id,
            metadata=dict(metadata or {}),
            session=session,
            session_busy=session_busy,
            budget=budget,
            approval_expires_s=approval_expires_s,
        )
        run = run_id_of_key(key) if key else new_run_id()
        crashpoint("client.before_submit")
        if self.asks is not None:
            run = await self.asks.submit(agent, task, key=key or run, headers=trace_headers())
            crashpoint("client.after_submit")
            return run
        await self.bus.connection.publish(
            self.bus.subjects.task(agent),
            await self.bus.codec.encode_task(task),
            # the server would drop this task if another user's task had the same message id
            msg_id=uuid.uuid4().hex,
            headers={**trace_headers(), KEY: key or run},
        )
        crashpoint("client.after_submit")
        return run

    async def agents(self) -> list[str]:
        """The names of all deployed agents."""
        return await self.bus.agents.names()

    # --- looking -------------------------------------------------------------------------------

    async def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False
    ) -> AsyncGenerator[LogEvent | LiveEvent, None]:
        """Read the run's events: those stored, then live ones, up to the run's end.

        Args:
            run_id: The run.
            after: Leave out events up to this sequence.
            deltas: Also yield the parts of model answers that are never stored.

        Returns:
            An iterator over the events. Close it if you leave early.

        Example:
            async for event in client.follow(run_id):
                print(event)
        """
        run = RunId(check_token(run_id, "the run id"))
        async for event in self.bus.follow.run(run, after=after, deltas=deltas):
            yield event

    async def events(self, run_id: str, *, after: int = 0) -> list[LogEvent]:
        """Read the events that the run has now.

        Args:
            run_id: The run.
            after: Leave out events up to this sequence.

        Returns:
            The events, oldest first.
        """
        run = RunId(check_token(run_id, "the run id"))
        return await read_known(self.bus, self.bus.subjects.run_all(run), after=after)

    async def wait(self, run_id: str) -> RunDone:
        """Wait for the run's end.

        Args:
            run_id: The run.

        Returns:
            The event that ended the run, with its output or error.

        Example:
            done = await client.wait(run_id)
            print(done.status)
        """
        return await self.bus.follow.done(RunId(check_token(run_id, "the run id")))

    async def get(self, run_id: str) -> RunSummary:
        """Read the run as it is now.

        Args:
            run_id: The run.

        Returns:
            The run's status, agent, usage and times.

        Raises:
            RunNotFound: The log has no such run.
        """
        events = await self.events(run_id)
        if not events:
            raise RunNotFound(run_id)
        return summarize(RunId(run_id), events)

    async def list(self, *, limit: int = 50) -> list[RunSummary]:
        """List the newest runs.

        Args:
            limit: How many runs to list at most.

        Returns:
            The runs, newest first.
        """
        return await list_runs(self.bus, limit=limit)

    async def runs(
        self,
        *,
        limit: int = 50,
        status: str | None = None,
        agent: str | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        text: str | None = None,
        metadata: Mapping[str, str] | None = None,
        only_top_level: bool = False,
        look_at_all: bool = False,
    ) -> RunList:
        """Look for runs, newest first.

        The log is read backwards, 30,000 events at most unless ``look_at_all`` is set. If the
        result's ``has_more`` is set, a part of the log was not read.

        Args:
            limit: How many runs to find at most.
            status: ``running``, ``waiting``, or how the run ended.
            agent: The agent that the run began with, or the agent that it is or was with last.
            since: The run began then or later; a ``timedelta`` is a time before now.
            until: The run began before then.
            text: A part of the run's input or output; upper and lower case are the same.
            metadata: Values that the run's own metadata have.
            only_top_level: Leave out the runs that other runs started.
            look_at_all: Read the whole log, however long that takes.

        Returns:
            The runs that were found.

        Raises:
            UserError: A value makes no sense. Nothing was read then.

        Example:
            failed = await client.runs(status="failed", since=timedelta(hours=1))
        """
        if limit < 1:
            raise UserError("limit must be above zero")
        wanted = run_filter(
            status=status, agent=agent, since=since, until=until, text=text, metadata=metadata
        )
        which: Which = "top_level" if only_top_level else "all"
        return await search_runs(
            self.bus, wanted, limit=limit, which=which, look_at_all=look_at_all
        )

    # --- people ----------------------------------------------------------------------------------

    async def approvals(self, *, limit: int = 100) -> builtins.list[OpenApproval]:
        """List the calls of all runs that wait for a person.

        Args:
            limit: How many calls to list at most.

        Returns:
            The calls, newest first.

        Example:
            for waiting in await client.approvals():
                await client.approve(waiting.run_id, waiting.call, by="ann")
        """
        return await open_approvals(self.bus, limit=limit)

    async def approve(
        self, run_id: str, call: str | None = None, *, always: bool = False, by: str = ""
    ) -> OpenApproval:
        """Allow a call of a run, or of one of its child runs.

        Args:
            run_id: The run.
            call: The id of the call, in the log or of the model. It may be left out if only one
                call waits.
            always: Also allow later calls of this tool by this agent.
            by: The person who decides, for the log.

        Returns:
            The call that was allowed.

        Raises:
            UserError: No such call waits, or several wait and ``call`` names none.
        """
        run = RunId(check_token(run_id, "the run id"))
        return await decide(self.bus, run, call, approve=True, always=always, by=by, asks=self.asks)

    async def reject(
        self,
        run_id: str,
        call: str | None = None,
        *,
        message: str | None = None,
        always: bool = False,
        by: str = "",
    ) -> OpenApproval:
        """Refuse a call of a run, or of one of its child runs.

        Args:
            run_id: The run.
            call: The id of the call, as for :meth:`approve`.
            message: What the model is told; ``None`` is a default text.
            always: Also refuse later calls of this tool by this agent.
            by: The person who decides, for the log.

        Returns:
            The call that was refused.

        Raises:
            UserError: No such call waits, or several wait and ``call`` names none.
        """
        run = RunId(check_token(run_id, "the run id"))
        return await decide(
            self.bus,
            run,
            call,
            approve=False,
            always=always,
            by=by,
            message=message,
            asks=self.asks,
        )

    async def send_input(
        self, run_id: str, input: str | builtins.list[dict[str, Any]], *, by: str = ""
    ) -> int:
        """Add input to a run that is under way. Its next model call sees it.

        Args:
            run_id: The run.
            input: The user's message, or a list of items.
            by: The person who says it, for the log.

        Returns:
            The sequence of the input in the log.
        """
        run = RunId(check_token(run_id, "the run id"))
        return await stage_input(self.bus, run, _items(input), by=by, asks=self.asks)

    # --- stopping ------------------------------------------------------------------------------

    async def cancel(
        self,
        run_id: str,
        *,
        mode: Literal["immediate", "after_turn"] = "immediate",
        reason: str = "",
    ) -> RunSummary:
        """Stop a run. If no harness serves its pool any more, the client itself writes the run's
        end, unless it works for a user.

        Args:
            run_id: The run.
            mode: Stop at once, or after the current turn.
            reason: Why, for the log.

        Returns:
            The run as it is then. A run that is over stays as it is.

        Raises:
            RunNotFound: The log has no such run.
        """
        summary = await self.get(run_id)
        if summary.is_over:
            return summary
        run = RunId(run_id)
        crashpoint("client.before_cancel")
        request = CancelRequested(mode=mode, reason=reason)
        if self.asks is not None:
            await self.asks.of_run(run, "cancel", request)
        else:
            await self.bus.log.send(
                self.bus.subjects.cancel(run),
                request,
                msg_id=f"{run}:cancel:{mode}:{uuid.uuid4().hex}",  # again after a resume
            )
        crashpoint("client.after_cancel")
        if mode == "immediate":
            try:
                async with asyncio.timeout(_CANCEL_PATIENCE_S):
                    await self.bus.follow.done(run)
            except TimeoutError:
                if self.asks is None and not await self._is_served(summary.pool):
                    from sandstream_actors.run.forced_ends import end_cancelled

                    await end_cancelled(self.bus, run)
        return await self.get(run_id)

    async def _is_served(self, pool: str) -> bool:
        return await self.bus.presence.is_served(f"harness-{pool}")

    # --- trying again --------------------------------------------------------------------------

    async def retry(
        self,
        run_id: str,
        *,
        max_turns: int | msgspec.UnsetType | None = msgspec.UNSET,
        budget: Budget | None = None,
        reason: str = "",
    ) -> RunSummary:
        """Continue a failed run, under its id, at the step that failed. The results of earlier
        steps are kept.

        Args:
            run_id: The run.
            max_turns: Replaces a smaller limit of the run; ``None`` removes the limit.
            budget: Its limits replace smaller ones of the run.
            reason: Why, for the log.

        Returns:
            The run as it is then.

        Raises:
            RunNotFound: The log has no such run.
            RetryRefused: The run has not failed, is part of another run, or could only fail again.
                Nothing was changed then.
        """
        from sandstream._run.retries import retry

        events = await self.events(run_id)
        if not events:
            raise RunNotFound(run_id)
        wanted = RetryRequested(reason=reason, max_turns=max_turns, budget=budget)
        crashpoint("client.before_retry")
        await retry(self.bus, RunId(run_id), events, wanted, asks=self.asks)
        crashpoint("client.after_retry")
        return await self.get(run_id)

    # --- parked messages -----------------------------------------------------------------------

    async def parked(self, *, limit: int | None = None) -> builtins.list[ParkedEntry]:
        """List the messages that no actor could process.

        Args:
            limit: How many of the newest messages to list; ``None`` lists all.

        Returns:
            The messages, with the reasons.
        """
        return await self.bus.parking.list(limit)

    async def redrive(self, entry_id: str) -> int:
        """Handle a parked message after all. If a run ended because of it, the run continues.

        A continued run asks again for everything that it misses, and a task is read again where it
        is stored. So only other messages are published again.

        Args:
            entry_id: The id of the parked message.

        Returns:
            The sequence of the message that continues the work.

        Raises:
            UserError: No message is parked under this id.
        """
        from sandstream._run.redrive import parked_entry, redrive

        found = await parked_entry(self.bus, entry_id)
        return await redrive(self.bus, found, lambda run, why: self.retry(run, reason=why))

    async def drop_parked(self, entry_id: str) -> None:
        """Remove a parked message for good.

        Args:
            entry_id: The id of the parked message.

        Raises:
            UserError: No message is parked under this id.
        """
        from sandstream._run.redrive import parked_entry

        await self.bus.parking.drop(await parked_entry(self.bus, entry_id))


def _items(input: Any) -> builtins.list[Raw]:
    # imported here: it loads the whole agent API, which listing does not need
    from sandstream._wire.options import compile_input

    return compile_input(input)


def _json(value: Any, what: str) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{what} must be JSON to cross the bus: {error}. Pass plain values, and let the tools "
            "look up the rest."
        ) from None
