"""``sandstream watch`` without a run: all runs, live. A table on a terminal, else lines."""

from __future__ import annotations

import asyncio
from collections import Counter

from sandstream._inspect.run_board import RunBoard
from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.texts import count
from sandstream.cli.session import connected, put_json
from sandstream.cli.terminal.render import (
    Cell,
    Column,
    LiveArea,
    Row,
    Screen,
    age,
    duration,
    one_line,
    out,
    seconds_between,
    table,
)
from sandstream.cli.terminal.run_table import STATUS_STYLES, ending, in_tree_order
from sandstream.client import Client

_FRAME_S = 0.25
_TAKEOVERS = 7
"""The place of a column that is shown only if there were any."""
_COLUMNS = [
    Column("RUN", shrinks=22),
    Column("STATE"),
    Column("AGENT", shrinks=8, drops=2),
    Column("AGE", ">", drops=3),
    Column("TOOK", ">", drops=5),
    Column("TURNS", ">", drops=6),
    Column("TOKENS", ">", drops=4),
    Column("TAKEOVERS", ">"),
    Column("STEP", shrinks=12, drops=1),
]


async def watch_all(*, as_json: bool) -> int:
    """Show all runs until interrupted."""
    screen = out()
    async with connected() as client:
        if as_json:
            await RunBoard(client.bus, put_json).follow()
        elif not screen.is_terminal:
            board = RunBoard(client.bus, lambda summary: screen.line(_change(summary)))
            await board.follow()
        else:
            await _draw(client, screen)
    return 0


async def _draw(client: Client, screen: Screen) -> None:
    changed = asyncio.Event()
    board = RunBoard(client.bus, lambda _: changed.set())
    feeding = asyncio.ensure_future(board.follow())
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
    running, ended = board.runs()
    shown = [*in_tree_order(running), *((it, "") for it in ended)]
    rows = [_row(summary, prefix) for summary, prefix in shown[: max(0, screen.height - 5)]]
    hidden = len(shown) - len(rows)
    tops = [it for it, _ in shown if not it.parent]
    counts = Counter("ended" if it.is_over else it.status for it in tops)
    title = f"{counts['running']} running · {counts['ended']} ended lately"
    if counts["waiting"]:
        title += f" · {counts['waiting']} waiting for people: sandstream approvals"
    lines = [screen.paint(title, "bold"), ""]
    if rows:
        lines += _table(screen, rows)
    else:
        lines.append(screen.paint("no runs now; submit one and it shows here", "dim"))
    if hidden:
        lines.append(screen.paint(f"… {hidden} more", "dim"))
    return lines


def _table(screen: Screen, rows: list[Row]) -> list[str]:
    places = list(range(len(_COLUMNS)))
    if all(not row[_TAKEOVERS].text for row in rows):
        del places[_TAKEOVERS]
    shown = [[row[at] for at in places] for row in rows]
    return table(screen, [_COLUMNS[at] for at in places], shown)


def _row(summary: RunSummary, prefix: str) -> Row:
    is_running = not summary.is_over
    past = "" if is_running else "dim"
    took = seconds_between(summary.started_at, summary.ended_at)
    return [
        Cell(summary.run_id, past, prefix),
        Cell(summary.status.replace("_", " "), STATUS_STYLES.get(summary.status, "")),
        Cell(summary.agent, past),
        Cell(age(summary.started_at), past),
        Cell("" if is_running else duration(took), past),
        Cell(str(summary.turns), past),
        Cell(count(summary.usage.total_tokens), past),
        Cell(str(summary.takeovers or ""), "yellow"),
        Cell(ending(summary), past),
    ]


def _change(summary: RunSummary) -> str:
    facts = [
        summary.run_id,
        summary.status,
        summary.agent,
        f"turns={summary.turns}",
        f"tokens={summary.usage.total_tokens}",
        *([f"takeovers={summary.takeovers}"] if summary.takeovers else []),
        ending(summary),
    ]
    return "  ".join(map(one_line, facts))
