"""What ``sandstream run`` does when its run waits for a person: asks at the terminal.

The answers go to the log under the name of the local user. If another person answers elsewhere
first, the question is withdrawn.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import ApprovalDecided, ApprovalRequested, RunWaiting
from sandstream_bus.wire.subjects import RunId

from sandstream._hosting.hosted_run import HostedRun
from sandstream._inspect.summaries import SummaryReader
from sandstream._run.process import Process
from sandstream.approvals import AlreadyDecided, ApprovalNotFound, decide
from sandstream.cli.commands.approvals.decisions import decider
from sandstream.cli.commands.approvals.texts import wanted_text
from sandstream.cli.session import say
from sandstream.cli.terminal.confirmation import typed_line
from sandstream.cli.terminal.render import clean, err
from sandstream.result import RunResultBase

_PROMPT = "approve? y, n, always, or what to tell the model instead: "


class NobodyToAsk(Exception):
    """The run waits for a person, and no terminal is available to ask."""

    def __init__(self, run: RunId, approvals: Sequence[ApprovalRequested]) -> None:
        super().__init__(run)
        self.run = run
        self.approvals = approvals


class _Answer(NamedTuple):
    approve: bool
    always: bool = False
    message: str | None = None


class Asker:
    """Asks the person at the terminal. Call :meth:`told` with every event that was shown."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.can_ask = sys.stdin.isatty() and sys.stderr.isatty()
        self.waiting: NobodyToAsk | None = None
        """Set while a question is open: the exception to raise if the person leaves."""
        self._waits = 0
        self._decided: set[tuple[str, str]] = set()
        self._news = asyncio.Event()

    def told(self, event: LogEvent) -> None:
        if isinstance(event.event, RunWaiting):
            self._waits += 1
        elif isinstance(event.event, ApprovalDecided):
            self._decided.add((event.event.run, event.event.call))
        else:
            return
        self._news.set()

    async def ask(self, run: RunId) -> None:
        """Ask all open questions of the run."""
        state = SummaryReader(run, await self._bus.log.read(run)).state
        questions = state.open_approvals()
        self.waiting = NobodyToAsk(run, questions)
        if not self.can_ask:
            raise self.waiting
        await self._until(lambda: self._waits >= state.waits)  # first what led to it
        answers = [(it, await self._answer(it)) for it in questions]
        for question, answer in answers:
            if answer is not None:
                await self._decide(run, question, answer)
        self.waiting = None

    async def _answer(self, question: ApprovalRequested) -> _Answer | None:
        """The person's answer; ``None`` if another person answered first."""
        screen = err()
        wants = f"{question.agent} wants to call "
        screen.line(screen.paint(clean(wants), "yellow") + clean(wanted_text(question)))
        keys = {(question.run, question.call), (question.run, question.call_id)}
        while True:
            screen.stream.write(screen.paint(_PROMPT, "bold"))
            screen.stream.flush()
            elsewhere = asyncio.ensure_future(self._until(lambda: bool(keys & self._decided)))
            line = asyncio.ensure_future(typed_line())
            try:
                await asyncio.wait({elsewhere, line}, return_when=asyncio.FIRST_COMPLETED)
                if not line.done():
                    say("another person has answered")
                    return None
                said = line.result()
            finally:
                for task in (elsewhere, line):
                    task.cancel()
            if said is None:
                screen.line()
                assert self.waiting is not None
                raise self.waiting
            if said.strip():
                return _meant(said.strip())

    async def _decide(self, run: RunId, question: ApprovalRequested, answer: _Answer) -> None:
        """Store the answer in the log of the root run, which passes it on."""
        try:
            await decide(
                self._bus,
                run,
                question.call_id or question.call,
                approve=answer.approve,
                always=answer.always,
                by=decider(None),
                message=answer.message,
            )
        except (AlreadyDecided, ApprovalNotFound) as error:
            say(f"sandstream: {error}")

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._news.clear()
            await self._news.wait()


async def with_questions(
    process: Process,
    asker: Asker,
    call: Callable[[Any], Awaitable[RunResultBase]],
    text: str,
) -> RunResultBase:
    """Run to the end, with answers where it waits for them."""
    result = await call(text)
    while result.interruptions:
        state = result.to_state()
        run = RunId(state.run_id)
        hosted = state.hosted if isinstance(state.hosted, HostedRun) else None
        if hosted is not None:  # the call may come before the run goes on here
            process.add_run(run, hosted)
        try:
            await asker.ask(run)
            result = await call(state)
        finally:
            if hosted is not None:
                process.remove_run(run, hosted)
    return result


def _meant(said: str) -> _Answer:
    match said.lower():
        case "y" | "yes":
            return _Answer(True)
        case "n" | "no":
            return _Answer(False)
        case "a" | "always":
            return _Answer(True, always=True)
        case _:
            return _Answer(False, message=said)
