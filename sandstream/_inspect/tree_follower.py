"""Following a run and all runs below it: what happened so far in order, then what happens.

Stored events of a tree are merged by their sequence. Live ones come run by run, each in order; the
end of the run at the top comes last, after those of the runs below that are still coming.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CallRequested, LiveEvent, RunDone, RunReopened
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.summaries import read_known
from sandstream._inspect.trees import read_logs

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
    it listens first, and what happened so far comes run by run, too; ``on_listening`` is called
    once no delta can be missed. ``goes_on``: the run at the top is about to be retried, so the end
    that is stored now is not its end.
    """

    def __init__(
        self,
        bus: Bus,
        root: str,
        *,
        deltas: bool = False,
        on_listening: Callable[[], Awaitable[None]] | None = None,
        goes_on: bool = False,
    ) -> None:
        self._bus = bus
        self._root = root
        self._deltas = deltas
        self._on_listening = on_listening
        self._goes_on = goes_on
        self._members = {root: Member(root, 0, "")}
        self._names: Counter[str] = Counter()
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._inbox: asyncio.Queue[tuple[str, LogEvent | LiveEvent | _Ended]] = asyncio.Queue()
        self._open: set[str] = set()
        """Runs below the top that have begun and not ended."""
        self._last: dict[str, int] = {}
        """The newest event of each run that was read."""
        self._asked: dict[str, int] = {}
        """The newest call of each run below the top: a retry calls a run again that had ended."""

    async def stored(self, first: list[LogEvent]) -> list[TreeEvent]:
        """The events of the tree as they are now; ``first`` are those of the run at the top."""
        return list(self._merged(await read_logs(self._bus, self._root, first)))

    async def events(self) -> AsyncGenerator[TreeEvent, None]:
        """All events of the tree, up to the end of the run at the top. Close it if you stop."""
        first: list[LogEvent] = []
        if not self._deltas or self._goes_on:
            first = await read_known(self._bus, self._bus.subjects.run_all(self._root))
        logs = await read_logs(self._bus, self._root, first)
        for told in self._merged(logs):
            yield told
        if first and isinstance(first[-1].event, RunDone) and not self._goes_on:
            return
        async with contextlib.aclosing(self._live(logs)) as live:
            async for told in live:
                yield told

    def _merged(self, logs: dict[str, list[LogEvent]]) -> Iterator[TreeEvent]:
        history = [(event, run) for run, events in logs.items() for event in events]
        for event, run in sorted(history, key=lambda it: it[0].sequence):
            self._last[run] = event.sequence
            self._meet(event, run)
            yield TreeEvent(self._members[run], event)

    async def _live(self, logs: dict[str, list[LogEvent]]) -> AsyncGenerator[TreeEvent, None]:
        for run, events in logs.items():
            is_open = not events or not isinstance(events[-1].event, RunDone)
            if is_open or (self._goes_on and run == self._root):
                self._pump(run)
                if run != self._root and events:
                    self._open.add(run)
            else:
                self._pump_again(run)
        try:
            async for told in self._told():
                yield told
        finally:
            for pump in self._pumps.values():
                pump.cancel()
            await asyncio.gather(*self._pumps.values(), return_exceptions=True)

    async def _told(self) -> AsyncGenerator[TreeEvent, None]:
        end: LogEvent | None = None
        is_over = False
        patience: float | None = None
        while not is_over or self._open:
            try:
                async with asyncio.timeout(patience):
                    run, event = await self._inbox.get()
            except TimeoutError:
                break  # a run below does not end: its own affair
            if isinstance(event, _Ended):
                self._open.discard(run)
                event.task.result()  # raises what went wrong
                del self._pumps[run]
                if run == self._root:
                    is_over, patience = True, _END_PATIENCE_S
                else:
                    self._pump_again(run)
                continue
            if isinstance(event, LogEvent):
                self._last[run] = event.sequence
                if run == self._root and isinstance(event.event, RunDone):
                    end = event
                    continue
                if end is not None and run == self._root and isinstance(event.event, RunReopened):
                    yield TreeEvent(self._members[run], end)  # it was not the last one
                    end = None
                if run != self._root:
                    self._open.add(run)
                child = self._meet(event, run)
                if child is not None:
                    self._pump_again(child)
            yield TreeEvent(self._members[run], event)
        if end is not None:
            yield TreeEvent(self._members[self._root], end)

    def _meet(self, event: LogEvent, run: str) -> str | None:
        """If the event starts a run, or a retry calls that run again: that run."""
        call = event.event
        if not isinstance(call, CallRequested) or not call.traits.is_child_run or not call.child:
            return None
        self._asked[call.child] = event.sequence
        if call.child not in self._members:
            self._names[call.name] += 1
            number = self._names[call.name]
            name = call.name if number == 1 else f"{call.name}#{number}"
            self._members[call.child] = Member(call.child, self._members[run].depth + 1, name)
        return call.child

    def _pump_again(self, run: str) -> None:
        """Follow a run below the top, if it was called after the last of it that was read."""
        if self._asked.get(run, 0) > self._last.get(run, 0):
            self._pump(run)

    def _pump(self, run: str) -> None:
        if run in self._pumps:
            return
        after = self._last.get(run, 0)

        async def pump() -> None:
            is_root = run == self._root
            following = self._bus.follow.run(
                RunId(run),
                after=after,
                deltas=self._deltas and is_root,
                on_listening=self._on_listening if is_root else None,
            )
            async for event in following:
                self._inbox.put_nowait((run, event))

        task = asyncio.ensure_future(pump())
        task.add_done_callback(lambda done: self._inbox.put_nowait((run, _Ended(done))))
        self._pumps[run] = task
