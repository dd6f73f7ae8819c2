"""Bars of a timeline in columns of a terminal: what each column shows, and how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sandstream._inspect.axis import TimeAxis
from sandstream._inspect.parts import Part, PartKind
from sandstream._inspect.timeline import Row
from sandstream.cli.terminal.render import Screen

_LEFT_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_WAITS: dict[PartKind, str] = {"queued": "░", "lost": "▒", "person": "┄", "rate_limit": "~"}
_THIN_QUEUE = "─"
"""In a bar that frames others: all work below it waits in a queue."""
_WAIT_STYLES: dict[PartKind, str] = {
    "queued": "dim",
    "lost": "red",
    "person": "bold yellow",
    "rate_limit": "bold magenta",
}
_WORK_STYLES = {
    "agent": "cyan",
    "workflow": "cyan",
    "chat": "blue",
    "tool": "green",
    "sandbox": "green",
    "handoff": "magenta",
    "guardrail": "magenta",
}
_BAD_ENDS = ("failed", "max_turns", "error")
_NO_WORK = frozenset({" ", _THIN_QUEUE, *_WAITS.values()})
GUIDE = "┊"
GOES_ON = "▸"


class Bar(NamedTuple):
    """One drawn column after the other: the character, and its style."""

    columns: list[tuple[str, str]]

    def text(self, screen: Screen, guides: frozenset[int] = frozenset()) -> str:
        """The bar in colour, with faint lines at the ticks behind it."""
        pieces: list[str] = []
        run, run_style = "", ""
        for place, (char, style) in enumerate(self.columns):
            if char == " " and place in guides and screen.has_colour:
                char, style = GUIDE, "dim"
            if style != run_style:
                pieces.append(screen.paint(run, run_style))
                run, run_style = "", style
            run += char
        pieces.append(screen.paint(run, run_style))
        return "".join(pieces)


def bar_of(row: Row, axis: TimeAxis, width: int) -> Bar:
    """A row's bar. What frames other bars is a line, what works is a block."""
    style = "red" if row.status in _BAD_ENDS else _WORK_STYLES.get(row.operation, "")
    shape: Literal["line", "block"] = "line" if _is_frame(row) else "block"
    covered = _covered(row.parts, axis, width)
    began = int(axis.share(row.work_ns) * width)
    queue_end = began if row.queued_ns > 0 else -1
    columns = [
        _column(it, shape, style, is_own_queue=place <= queue_end)
        for place, it in enumerate(covered)
    ]
    last = min(width - 1, max(began, int(axis.share(row.end_ns) * width - 1e-9)))
    if all(char in _NO_WORK for char, _ in columns):
        columns[min(width - 1, began)] = _speck(row, style)
    if row.is_open:
        columns[last] = (GOES_ON, style)
    return Bar(columns)


def group_bar(rows: Sequence[Row], axis: TimeAxis, width: int) -> Bar:
    """How many of the rows were worked on at a time: the higher the more."""
    working = [0.0] * width
    waiting = [0.0] * width
    for row in rows:
        for place, covered in enumerate(_covered(row.parts, axis, width)):
            working[place] += sum(b - a for kind, a, b in covered if kind == "work")
            waiting[place] += sum(b - a for kind, a, b in covered if kind != "work")
    most = max(working) or 1.0
    style = _WORK_STYLES.get(rows[0].operation, "")
    columns: list[tuple[str, str]] = []
    for at_work, at_rest in zip(working, waiting, strict=True):
        if at_work > 0:
            columns.append((_HEIGHTS[max(1, round(8 * at_work / most))], style))
        else:
            columns.append((_WAITS["queued"], "dim") if at_rest > 0 else (" ", ""))
    if not any(working) and not any(waiting):
        columns[min(width - 1, int(axis.share(rows[0].start_ns) * width))] = ("▏", style)
    return Bar(columns)


def _is_frame(row: Row) -> bool:
    return row.operation in ("agent", "workflow") or row.child_count > 0


def _speck(row: Row, style: str) -> tuple[str, str]:
    """A part that is too short for its column is still drawn."""
    kind = row.parts[-1].kind
    if kind != "work":
        return _WAITS[kind], _WAIT_STYLES[kind]
    return ("╸" if _is_frame(row) else "▏"), style


_Covered = list[tuple[PartKind, float, float]]


def _covered(parts: Sequence[Part], axis: TimeAxis, width: int) -> list[_Covered]:
    """For each column what covers it, from where to where."""
    columns: list[_Covered] = [[] for _ in range(width)]
    for part in parts:
        start, end = axis.share(part.start_ns) * width, axis.share(part.end_ns) * width
        for place in range(int(start), min(width, int(end) + 1)):
            left, right = max(start, place), min(end, place + 1)
            if right > left:
                columns[place].append((part.kind, left - place, right - place))
    return columns


def _column(
    covered: _Covered, shape: Literal["line", "block"], style: str, *, is_own_queue: bool
) -> tuple[str, str]:
    if not covered:
        return " ", ""
    lengths: dict[PartKind, float] = {}
    for kind, left, right in covered:
        lengths[kind] = lengths.get(kind, 0.0) + right - left
    strongest = max(lengths, key=lambda kind: (lengths[kind], kind == "work"))
    if strongest != "work":
        is_thin = strongest == "queued" and shape == "line" and not is_own_queue
        if lengths[strongest] < 0.25 and len(lengths) == 1 and not is_thin:
            return (" ", "") if strongest == "queued" else (_WAITS[strongest], style)
        return (_THIN_QUEUE if is_thin else _WAITS[strongest]), _WAIT_STYLES[strongest]
    if shape == "line":
        return _line(min(it[1] for it in covered), max(it[2] for it in covered)), style
    left = min(left for kind, left, _ in covered if kind == "work")
    right = max(right for kind, _, right in covered if kind == "work")
    return _block(left, right), style


def _block(left: float, right: float) -> str:
    """A block from the left edge can end at any eighth; one from within can only begin at a few."""
    if left < 0.25:
        return _LEFT_EIGHTHS[max(1, round(8 * right))]
    if right < 0.75:
        return "▏" if right < 0.5 else "▌"
    return "▐" if left < 0.75 else "▕"


def _line(left: float, right: float) -> str:
    if left >= 0.5:
        return "╺"
    return "╸" if right <= 0.5 else "━"
