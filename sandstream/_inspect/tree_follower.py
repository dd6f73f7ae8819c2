"""Following a run and all runs below it: what happened so far in order, then what happens.

Stored events of a tree are merged by their sequence. Live ones come run by run, each in order; the
end of the run at the top comes last, after those of the runs below that are still coming.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from typing import NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import CallRequested, LiveEvent, RunDone
from sandstream_bus.subjects import RunId

from sandstream.cli.trees import read_logs
from sandstream.summaries import read_known

_END_PATIENCE_S = 3.0


class Member(NamedTuple):
    """A run of the tree."""

    run: str
    depth: int
    name: str
    """What it is called among the others: its tool, numbered; empty for the one at the top."""


class TreeEvent(NamedTuple):
    member: Member
    event: LogEvent | LiveEvent


class _Ended(NamedTuple):
    task: asyncio.Task[None]


class TreeFollower:
    """Follows one tree, once. With ``deltas`` also the stream events of the model at the top: then
    it listens first, and what happened so far comes run by run, too.
    """

    def __init__(self, bus: Bus, root: str, *, deltas: bool = False) -> None:
        self._bus = bus
        self._root = root
        self._deltas = deltas
        self._members = {root: Member(root, 0, "")}
        self._names: Counter[str] = Counter()
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._inbox: asyncio.Queue[tuple[str, LogEvent | LiveEvent | _Ended]] = asyncio.Queue()
        self._open: set[str] = set()
        """Runs below the top that have begun and not ended."""

    async def stored(self, first: list[LogEvent]) -> list[TreeEvent]:
        """The events of the tree as they are now; ``first`` are those of the run at the top."""
        return list(self._merged(await read_logs(self._bus, self._root, first)))

    async def events(self) -> AsyncGenerator[TreeEvent, None]:
        """All events of the tree, up to the end of the run at the top. Close it if you stop."""
        first: list[LogEvent] = []
        if not self._deltas:
            first = await read_known(self._bus, self._bus.subjects.run_all(self._root))
        logs = await read_logs(self._bus, self._root, first)
        for told in self._merged(logs):
            yield told
        if first and isinstance(first[-1].event, RunDone):
            return
        async with contextlib.aclosing(self._live(logs)) as live:
            async for told in live:
                yield told

    def _merged(self, logs: dict[str, list[LogEvent]]) -> Iterator[TreeEvent]:
        history = [(event, run) for run, events in logs.items() for event in events]
        for event, run in sorted(history, key=lambda it: it[0].sequence):
            self._meet(event, run)
            yield TreeEvent(self._members[run], event)

    async def _live(self, logs: dict[str, list[LogEvent]]) -> AsyncGenerator[TreeEvent, None]:
        for run, events in logs.items():
            if not events or not isinstance(events[-1].event, RunDone):
                self._pump(run, events[-1].sequence if events else 0)
                if run != self._root and events:
                    self._open.add(run)
        try:
            async for told in self._told():
                yield told
        finally:
            for pump in self._pumps.values():
                pump.cancel()
            await asyncio.gather(*self._pumps.values(), return_exceptions=True)

    async def _told(self) -> AsyncGenerator[TreeEvent, None]:
        end: LogEvent | None = None
        patience: float | None = None
        while end is None or self._open:
            try:
                async with asyncio.timeout(patience):
                    run, event = await self._inbox.get()
            except TimeoutError:
                break  # a run below does not end: its own affair
            if isinstance(event, _Ended):
                self._open.discard(run)
                event.task.result()  # raises what went wrong
                continue
            if isinstance(event, LogEvent):
                if run == self._root and isinstance(event.event, RunDone):
                    end, patience = event, _END_PATIENCE_S
                    continue
                if run != self._root:
                    self._open.add(run)
                child = self._meet(event, run)
                if child is not None:
                    self._pump(child, 0)
            yield TreeEvent(self._members[run], event)
        if end is not None:
            yield TreeEvent(self._members[self._root], end)

    def _meet(self, event: LogEvent, run: str) -> str | None:
        """If the event starts a run that is new here: that run."""
        call = event.event
        if not isinstance(call, CallRequested) or call.kind != "child" or not call.child:
            return None
        if call.child in self._members:
            return None
        self._names[call.name] += 1
        number = self._names[call.name]
        name = call.name if number == 1 else f"{call.name}#{number}"
        self._members[call.child] = Member(call.child, self._members[run].depth + 1, name)
        return call.child

    def _pump(self, run: str, after: int) -> None:
        if run in self._pumps:
            return

        async def pump() -> None:
            deltas = self._deltas and run == self._root
            async for event in self._bus.follow.run(RunId(run), after=after, deltas=deltas):
                self._inbox.put_nowait((run, event))

        task = asyncio.ensure_future(pump())
        task.add_done_callback(lambda done: self._inbox.put_nowait((run, _Ended(done))))
        self._pumps[run] = task
