"""``sandstream watch`` without a run: all runs, live. A table on a terminal, else a line a change.

Starts from the list of newest runs and folds every event that comes. After a doubt (a reconnect, a
long silence) the runs that are shown as under way are read again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import msgspec
from sandstream_actors.run_state import RunState
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import RunStarted
from sandstream_bus.subjects import RunId

from sandstream.cli.event_texts import STATUS_STYLES
from sandstream.cli.render import (
    Cell,
    Column,
    LiveArea,
    Row,
    Screen,
    age,
    count,
    duration,
    out,
    seconds_between,
    table,
)
from sandstream.cli.runs import ending, in_tree_order
from sandstream.cli.session import connected, put_json
from sandstream.client import Client
from sandstream.summaries import RunSummary, summary_of_state

_FIRST_RUNS = 100
_LINGER_S = 120.0
_FRAME_S = 0.25
_COLUMNS = [
    Column("RUN", shrinks=22),
    Column("STATE"),
    Column("AGENT", shrinks=8, drops=2),
    Column("AGE", ">", drops=3),
    Column("TURNS", ">", drops=5),
    Column("TOKENS", ">", drops=4),
    Column("STEP", shrinks=12, drops=1),
]


class _Shown(msgspec.Struct):
    summary: RunSummary
    state: RunState | None
    """None once the run has ended."""
    gone_at: float = 0.0
    """When an ended run leaves the table (monotonic)."""


class RunBoard:
    """All runs that are worth a line now. ``on_change`` is told of every new summary."""

    def __init__(self, client: Client, on_change: Callable[[RunSummary], None]) -> None:
        self._client = client
        self._on_change = on_change
        self._shown: dict[RunId, _Shown] = {}

    async def load(self) -> None:
        """The newest runs as they are now."""
        for summary in reversed(await self._client.list(limit=_FIRST_RUNS)):
            run = RunId(summary.run_id)
            known = self._shown.get(run)
            if not summary.is_over:
                await self._read(run)
            elif known is None or known.state is not None:
                ended_s = seconds_between(summary.ended_at, "") or 0.0
                if ended_s < _LINGER_S:
                    self._put(run, _Shown(summary, None, time.monotonic() + _LINGER_S - ended_s))

    async def take(self, event: LogEvent) -> None:
        """Fold one event of any run."""
        run = self._client.bus.subjects.parse_run(event.subject).run
        known = self._shown.get(run)
        state = known.state if known is not None else None
        if known is not None and event.sequence <= known.summary.last_sequence:
            return
        if state is None:
            if not isinstance(event.event, RunStarted):
                await self._read(run)
                return
            state = RunState(run)
        state.apply(event.sequence, event.event)
        started_at = known.summary.started_at if known else event.stored.time
        self._show(state, started_at, event.stored.time)

    async def _read(self, run: RunId) -> None:
        events = await self._client.events(run)
        if events:
            state = RunState.of(run, events)
            self._show(state, events[0].stored.time, events[-1].stored.time)

    def _show(self, state: RunState, started_at: str, now: str) -> None:
        summary = summary_of_state(state)
        summary.started_at = started_at
        summary.last_sequence = state.last_seq
        if state.done is None:
            self._put(state.run, _Shown(summary, state))
        else:
            summary.ended_at = now
            self._put(state.run, _Shown(summary, None, time.monotonic() + _LINGER_S))

    def _put(self, run: RunId, shown: _Shown) -> None:
        known = self._shown.pop(run, None)
        self._shown[run] = shown
        if known is None or known.summary != shown.summary:
            self._on_change(shown.summary)

    def rows(self, limit: int) -> tuple[list[Row], int, Counter[str]]:
        """Runs under way, oldest first, with those below them; then ended ones, newest first, but
        not those below others. How many did not fit; how many at the top are in which state.
        """
        now = time.monotonic()
        for run in [run for run, shown in self._shown.items() if 0 < shown.gone_at < now]:
            del self._shown[run]
        summaries = [shown.summary for shown in self._shown.values()]
        running = sorted((it for it in summaries if not it.is_over), key=lambda it: it.started_at)
        ended = [it for it in summaries if it.is_over and not it.parent]
        ended.sort(key=lambda it: it.ended_at, reverse=True)
        shown = [*in_tree_order(running), *((it, "") for it in ended)]
        rows = [_row(summary, prefix) for summary, prefix in shown[: max(0, limit)]]
        tops = [it for it, _ in shown if not it.parent]
        states = Counter("ended" if it.is_over else it.status for it in tops)
        return rows, len(shown) - len(rows), states


async def watch_all(*, as_json: bool) -> int:
    """Show all runs until interrupted."""
    screen = out()
    async with connected() as client:
        if as_json:
            await _follow(client, put_json)
        elif not screen.is_terminal:
            await _follow(client, lambda summary: screen.line(_change(summary)))
        else:
            await _draw(client, screen)
    return 0


async def _follow(client: Client, on_change: Callable[[RunSummary], None]) -> None:
    await _feed(client, RunBoard(client, on_change))


async def _feed(client: Client, board: RunBoard) -> None:
    """Keep the board up to date, for ever."""
    inbox: asyncio.Queue[LogEvent | None] = asyncio.Queue()

    async def pump() -> None:
        async for event in client.bus.follow.all():
            inbox.put_nowait(event)

    pumping = asyncio.ensure_future(pump())
    try:
        await asyncio.sleep(0)  # subscribed first, so that nothing falls between list and events
        await client.bus.connection.flush()
        await board.load()
        while True:
            event = await inbox.get()
            if event is None:
                await board.load()
            else:
                await board.take(event)
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)


async def _draw(client: Client, screen: Screen) -> None:
    changed = asyncio.Event()
    board = RunBoard(client, lambda _: changed.set())
    feeding = asyncio.ensure_future(_feed(client, board))
    try:
        with LiveArea(screen) as area:
            while not feeding.done():
                area.draw(_frame(screen, board))
                changed.clear()
                await asyncio.sleep(_FRAME_S)
                try:  # without a change: once a second, for the ages and a new window size
                    async with asyncio.timeout(1 - _FRAME_S):
                        await changed.wait()
                except TimeoutError:
                    pass
        await feeding
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        for line in _frame(screen, board):  # what was last seen stays in the scrollback
            screen.line(line)


def _frame(screen: Screen, board: RunBoard) -> list[str]:
    rows, hidden, counts = board.rows(screen.height - 5)
    title = f"{counts['running']} running · {counts['ended']} ended lately"
    if counts["waiting"]:
        title += f" · {counts['waiting']} waiting for people: sandstream approvals"
    lines = [screen.paint(title, "bold"), ""]
    if rows:
        lines += table(screen, _COLUMNS, rows)
    else:
        lines.append(screen.paint("no runs now; submit one and it shows here", "dim"))
    if hidden:
        lines.append(screen.paint(f"… {hidden} more", "dim"))
    return lines


def _row(summary: RunSummary, prefix: str) -> Row:
    is_running = not summary.is_over
    past = "" if is_running else "dim"
    took = seconds_between(summary.started_at, summary.ended_at)
    return [
        Cell(summary.run_id, past, prefix),
        Cell(summary.status.replace("_", " "), STATUS_STYLES.get(summary.status, "")),
        Cell(summary.agent, past),
        Cell(age(summary.started_at) if is_running else duration(took), past),
        Cell(str(summary.turns), past),
        Cell(count(summary.usage.total_tokens), past),
        Cell(ending(summary), past),
    ]


def _change(summary: RunSummary) -> str:
    facts = [
        summary.run_id,
        summary.status,
        summary.agent,
        f"turns={summary.turns}",
        f"tokens={summary.usage.total_tokens}",
        ending(summary),
    ]
    return "  ".join(" ".join(fact.split()) for fact in facts)
