"""All runs as they are now: those under way, and those that ended lately.

Starts from the lists of runs and reads every event that comes. After a doubt (a reconnect, a long
silence) the runs that count as under way are read again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.run_lists import list_open, list_runs
from sandstream._inspect.summaries import RunSummary, SummaryReader, read_known
from sandstream._inspect.texts import item_text

_FIRST_RUNS = 100
_LINGER_S = 120.0
_MOST_ASKED = 200


class _Known(msgspec.Struct):
    summary: RunSummary
    reader: SummaryReader | None
    """None once the run has ended."""
    gone_at: float = 0.0
    """When an ended run leaves the board (monotonic)."""
    asked: str = ""
    """The beginning of what it was asked to do."""


class RunBoard:
    """The runs that are worth a line now. ``on_change`` gets every new summary. Runs that have
    ended stay for ``linger_s``.
    """

    def __init__(
        self, bus: Bus, on_change: Callable[[RunSummary], None], *, linger_s: float = _LINGER_S
    ) -> None:
        self._bus = bus
        self._on_change = on_change
        self._linger_s = linger_s
        self._known: dict[RunId, _Known] = {}

    def runs(self) -> tuple[list[RunSummary], list[RunSummary]]:
        """Runs under way, oldest first; runs at the top that ended lately, newest first."""
        now = time.monotonic()
        for run in [run for run, known in self._known.items() if 0 < known.gone_at < now]:
            del self._known[run]
        summaries = [known.summary for known in self._known.values()]
        running = sorted((it for it in summaries if not it.is_over), key=lambda it: it.started_at)
        ended = [it for it in summaries if it.is_over and not it.parent]
        ended.sort(key=lambda it: it.ended_at, reverse=True)
        return running, ended

    def open_calls(self, run: str) -> list[tuple[str, str]]:
        """The name and the arguments of each call that a run waits for now."""
        known = self._known.get(RunId(run))
        if known is None or known.reader is None:
            return []
        state = known.reader.state
        return [(it.name, it.arguments) for it in state.open_tool_calls() if it.id in state.asked]

    def asked(self, run: str) -> str:
        """The beginning of what a run was asked to do; empty: it is not on the board."""
        known = self._known.get(RunId(run))
        return known.asked if known is not None else ""

    async def follow(self) -> None:
        """Keep the board up to date, until it is cancelled."""
        inbox: asyncio.Queue[LogEvent | None] = asyncio.Queue()

        async def pump() -> None:
            async for event in self._bus.follow.all():
                inbox.put_nowait(event)

        pumping = asyncio.ensure_future(pump())
        try:
            await asyncio.sleep(0)  # subscribe first: no event falls between lists and events
            await self._bus.connection.flush()
            await self._load()
            while True:
                event = await inbox.get()
                if event is None:
                    await self._load()
                else:
                    await self._take(event)
        finally:
            pumping.cancel()
            await asyncio.gather(pumping, return_exceptions=True)

    async def _load(self) -> None:
        """The newest runs, and the newest of those that have not ended, as they are now."""
        for summary in reversed(await list_open(self._bus, limit=_FIRST_RUNS)):
            await self._read(RunId(summary.run_id))
        for summary in reversed(await list_runs(self._bus, limit=_FIRST_RUNS)):
            run = RunId(summary.run_id)
            known = self._known.get(run)
            if not summary.is_over:
                if known is None or known.reader is None:
                    await self._read(run)
            elif known is None or known.reader is not None:
                ended_s = _seconds_since(summary.ended_at)
                if ended_s < self._linger_s:
                    await self._read(run, time.monotonic() + self._linger_s - ended_s)

    async def _take(self, event: LogEvent) -> None:
        """Read one event of any run."""
        run = self._bus.subjects.parse_run(event.subject).run
        known = self._known.get(run)
        if known is not None and event.sequence <= known.summary.last_sequence:
            return
        reader = known.reader if known is not None else None
        if reader is None:
            if not isinstance(event.event, RunStarted):
                await self._read(run)
                return
            reader = SummaryReader(run)
        reader.feed(event)
        self._put(run, reader)

    async def _read(self, run: RunId, gone_at: float | None = None) -> None:
        if events := await read_known(self._bus, self._bus.subjects.run_all(run)):
            self._put(run, SummaryReader(run, events), gone_at)

    def _put(self, run: RunId, reader: SummaryReader, gone_at: float | None = None) -> None:
        summary = reader.summary()
        summary.last_sequence = reader.state.last_seq
        before = self._known.pop(run, None)
        asked = before.asked if before is not None else _asked(reader)
        if not summary.is_over:
            self._known[run] = _Known(summary, reader, asked=asked)
        else:
            gone_at = time.monotonic() + self._linger_s if gone_at is None else gone_at
            self._known[run] = _Known(summary, None, gone_at, asked)
        if before is None or before.summary != summary:
            self._on_change(summary)


def _asked(reader: SummaryReader) -> str:
    items = [msgspec.json.decode(it) for it in reader.state.own_input[:1]]
    return "".join(map(item_text, items))[:_MOST_ASKED]


def _seconds_since(text: str) -> float:
    """How long ago a time of the server is; 0 if that is unknown."""
    try:
        passed = datetime.now(UTC) - datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return max(0.0, passed.total_seconds())
