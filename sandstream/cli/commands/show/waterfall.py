"""The waterfall of a run tree in a terminal: who did what when, as bars on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sandstream_bus.counts import numbered

from sandstream._inspect.axis import TimeAxis, axis_of
from sandstream._inspect.selection import Entry, Gap, Group, entries
from sandstream._inspect.texts import call_text, count
from sandstream._inspect.timeline import Row, Timeline
from sandstream._inspect.workers import Where
from sandstream.cli.commands.show.bars import bar_of, group_bar
from sandstream.cli.terminal.mask import masked, masked_line
from sandstream.cli.terminal.render import (
    Screen,
    columns_of,
    duration,
    pad,
    shorten,
)
from sandstream.cli.terminal.run_table import STATUS_STYLES

NARROWEST = 60
WIDEST = 200
WIDTH_OF_FILES = 120
"""The width without a terminal."""
_MEANINGS = [
    ("█", "█▉▊▋▌▍▎▏▐▕", "work"),
    ("━", "━╸╺", "a whole with parts below it"),
    ("░", "░", "in a queue"),
    ("─", "─", "all parts in queues"),
    ("▒", "▒", "lost with its process, up to the takeover"),
    ("┄", "┄", "waits for a person"),
    ("~", "~", "waits for a rate limit"),
    ("▂▅▇", "▁▂▃▄▅▆▇", "how many at a time"),
    ("▸", "▸", "goes on"),
]
"""What a legend shows for which signs, and what these mean."""
_WIDE = 100
_LEAST_BAR = 14
_LEAST_NOTES = 8
_LEAST_LABEL = 16
_TOOK = 6
_SHORT_ID = 24
_SECOND = 1e9


class _Line(NamedTuple):
    """One entry's texts, before they are fitted into columns."""

    branch: str
    label: str
    detail: str
    took: str
    tokens: str
    notes: list[tuple[str, str]]
    where: str = ""
    """The process that did it."""
    label_style: str = ""
    below: str = ""
    """More on a line of its own: what went wrong."""
    below_style: str = "red"


class _How(NamedTuple):
    """What texts depend on besides their rows."""

    root: str
    """The run that is looked at."""
    quiet: set[str]
    """Rows whose failure another row already shows."""
    is_wide: bool
    where: Where


class _Widths(NamedTuple):
    label: int
    bar: int
    tokens: int
    notes: int
    where: int
    where_title: str


def waterfall_lines(
    screen: Screen, timeline: Timeline, *, root: str = "", show_all: bool = False
) -> list[str]:
    """All lines: the axis, a row for each entry, the legend. ``root``: the run looked at."""
    if not timeline.rows:
        return []
    width = WIDTH_OF_FILES if screen.width > 1_000 else min(WIDEST, max(NARROWEST, screen.width))
    shown: Sequence[Entry] = timeline.rows if show_all else entries(timeline.rows)
    branches = _branches(shown)
    axis = axis_of(timeline)
    where = Where.of(timeline.rows, is_wide=width >= _WIDE)
    how = _How(root, _said_below(timeline.rows), width >= _WIDE, where)
    texts = [_texts(entry, branch, how) for entry, branch in zip(shown, branches, strict=True)]
    widths = _fit(texts, width, where.title)
    guides = _guides(axis, widths.bar)
    lines = _header(screen, axis, widths)
    for entry, text in zip(shown, texts, strict=True):
        lines.extend(_drawn(screen, entry, text, axis, widths, guides, width))
    return [*lines, "", *_legend(screen, lines, width, is_broken=bool(axis.breaks))]


# --- texts ----------------------------------------------------------------------------------------


def _texts(entry: Entry, branch: str, how: _How) -> _Line:
    match entry:
        case Row():
            return _row_texts(entry, branch, how)
        case Group():
            return _group_texts(entry, branch)
        case Gap():
            failed = f", {entry.failed} of them failed" if entry.failed else ""
            text = f"⋮ {numbered(entry.count, 'more row')}{failed} (--all)"
            return _Line(branch, text, "", "", "", [], "", "dim")


def _row_texts(row: Row, branch: str, how: _How) -> _Line:
    notes: list[tuple[str, str]] = []
    if row.attempts > 1:
        notes.append((numbered(row.attempts, "attempt"), "yellow"))
    elif row.takeovers:
        notes.append((numbered(row.takeovers, "takeover"), "yellow"))
    if row.retries:
        notes.append((numbered(row.retries, "retry", "retries"), "yellow"))
    if row.is_run and row.status != "completed":
        notes.append((row.status.replace("_", " "), STATUS_STYLES.get(row.status, "")))
    elif row.is_open and row.operation not in ("approval", "wait"):
        notes.append(("running", "cyan"))
    if row.decision or row.operation == "approval":
        notes.append(_decision(row))
    if row.truncated:
        notes.append(("its start is lost", "yellow"))
    if row.turns > 1 and how.is_wide:
        notes.append((numbered(row.turns, "turn"), "dim"))
    return _Line(
        branch,
        masked_line(row.label) or "?",
        _detail(row, how.root),
        duration(row.took_ns / _SECOND),
        _tokens(row.input_tokens, row.output_tokens),
        notes,
        masked_line(how.where.text(row.worker)),
        _label_style(row),
        "" if row.span_id in how.quiet else _error(row),
    )


def _said_below(rows: Sequence[Row]) -> set[str]:
    """The rows whose failure only repeats that of a row below them."""
    found: set[str] = set()
    failed = {row.span_id: row for row in rows if row.is_failed}
    parents = {row.span_id: row.parent_id for row in rows}
    for row in failed.values():
        above = parents[row.span_id]
        while above:
            if above in failed and failed[above].error_message == row.error_message:
                found.add(above)
            above = parents[above]
    return found


def _label_style(row: Row) -> str:
    if row.is_failed:
        return "red"
    return "bold" if row.operation in ("agent", "workflow") else ""


def _decision(row: Row) -> tuple[str, str]:
    if not row.decision:
        return ("waits", "bold yellow") if row.is_open else ("", "")
    style = "green" if row.decision == "approved" else "red"
    return (f"{row.decision} by {masked_line(row.by)}" if row.by else row.decision), style


def _error(row: Row) -> str:
    if not row.is_failed:
        return ""
    kind, message = masked_line(row.error), masked_line(row.error_message)
    return f"✗ {kind}: {message}" if message else f"✗ {kind}"


def _detail(row: Row, root: str) -> str:
    if row.is_run and row.run != root:
        name = masked(row.run)
        is_long = len(name) > _SHORT_ID and bool(root) and name.startswith(root)
        return "…" + name.removeprefix(root) if is_long else name
    if row.detail:
        return masked_line(call_text("", row.detail))[1:-1]
    return ""


def _tokens(received: int, sent: int) -> str:
    return f"{count(received)}→{count(sent)}" if received or sent else ""


def _group_texts(group: Group, branch: str) -> _Line:
    first = group.rows[0]
    spread = " · ".join(
        duration(it / _SECOND) for it in (group.shortest_ns, group.median_ns, group.longest_ns)
    )
    notes: list[tuple[str, str]] = []
    if group.retried:
        notes.insert(0, (f"{group.retried} tried again", "yellow"))
    if group.failed:
        notes.insert(0, (f"{group.failed} failed", "red"))
    if running := sum(row.is_open for row in group.rows):
        notes.insert(0, (f"{running} running", "cyan"))
    return _Line(
        branch,
        f"{masked_line(first.label)} ×{len(group.rows)}",
        "",
        duration((group.end_ns - group.start_ns) / _SECOND),
        _tokens(group.input_tokens, group.output_tokens),
        notes,
        "",
        "bold",
        f"each {spread} (shortest, median, longest)",
        "dim",
    )


# --- columns --------------------------------------------------------------------------------------


def _branches(shown: Sequence[Entry]) -> list[str]:
    """The lines of the tree before each label."""
    found: list[str] = []
    goes_on: dict[int, bool] = {}
    for entry in reversed(shown):
        for deeper in [depth for depth in goes_on if depth > entry.depth]:
            del goes_on[deeper]
        margin = "".join("│ " if goes_on.get(depth) else "  " for depth in range(1, entry.depth))
        own = ("├ " if goes_on.get(entry.depth) else "└ ") if entry.depth else ""
        found.append(margin + own)
        goes_on[entry.depth] = True
    return found[::-1]


def _fit(texts: Sequence[_Line], width: int, where_title: str) -> _Widths:
    """The bar gets the width that the texts leave; each text gets at most its share."""
    rows = [it for it in texts if it.took]
    labels = [columns_of(f"{it.branch}{it.label} {it.detail}".rstrip()) for it in rows]
    label = min(max([*labels, 5]), max(18, round(width * 0.36)))
    tokens = max([columns_of(it.tokens) for it in rows], default=0)
    tokens = max(tokens, len("TOKENS")) if tokens else 0
    noted = max([columns_of(_plain(it.notes)) for it in rows], default=0)
    notes = min(noted, max(12, round(width * 0.2)))
    where = max([columns_of(it.where) for it in rows], default=0)
    where = max(where, len(where_title)) if where else 0
    rest = width - 3 - _TOOK - (tokens + 2 if tokens else 0) - (where + 2 if where else 0)
    short = _LEAST_BAR - (rest - label - (notes + 2 if notes else 0))
    if short > 0 and notes:
        less = min(short, max(0, notes - _LEAST_NOTES))
        notes, short = notes - less, short - less
    label = max(_LEAST_LABEL, label - max(0, short))
    bar = rest - label - (notes + 2 if notes else 0)
    return _Widths(label, bar, tokens, notes, where, where_title)


def _plain(notes: Sequence[tuple[str, str]]) -> str:
    return " ".join(text for text, _ in notes if text)


def _guides(axis: TimeAxis, width: int) -> frozenset[int]:
    return frozenset(int(tick.share * width) for tick in axis.ticks(_most_ticks(width)))


def _most_ticks(width: int) -> int:
    return max(2, width // 8)


def _header(screen: Screen, axis: TimeAxis, widths: _Widths) -> list[str]:
    """The axis with its ticks; where time is drawn short, how much there is."""
    scale = [" "] * widths.bar

    def place(text: str, at: int) -> None:
        start = min(at, widths.bar - len(text))
        if start >= 0 and all(
            scale[it] == " "
            for it in range(max(0, start - 1), min(widths.bar, start + len(text) + 1))
        ):
            scale[start : start + len(text)] = text

    for stretch in axis.breaks:
        text = f"/{duration((stretch.end_ns - stretch.start_ns) / _SECOND)}/"
        middle = (stretch.left + stretch.right) / 2 * widths.bar
        place(text, round(middle - len(text) / 2))
    for tick in axis.ticks(_most_ticks(widths.bar)):
        place(tick.label, int(tick.share * widths.bar))
    line = pad("", widths.label) + "  " + "".join(scale) + " " + pad("TOOK", _TOOK, ">")
    if widths.tokens:
        line += "  " + pad("TOKENS", widths.tokens, ">")
    if widths.where:
        line += "  " + pad(widths.where_title, widths.where)
    return [screen.paint(line.rstrip(), "dim")]


def _drawn(
    screen: Screen,
    entry: Entry,
    text: _Line,
    axis: TimeAxis,
    widths: _Widths,
    guides: frozenset[int],
    width: int,
) -> list[str]:
    if isinstance(entry, Gap):
        return [screen.paint(text.branch + text.label, "dim")]
    if isinstance(entry, Group):
        bar = group_bar(entry.rows, axis, widths.bar)
    else:
        bar = bar_of(entry, axis, widths.bar)
    line = _label(screen, text, widths.label) + "  " + bar.text(screen, guides)
    line += " " + screen.paint(pad(text.took, _TOOK, ">"), "dim")
    if widths.tokens:
        line += "  " + pad(text.tokens, widths.tokens, ">")
    if widths.where:
        line += "  " + screen.paint(pad(text.where, widths.where), "dim")
    if widths.notes:
        line += "  " + _notes(screen, text.notes, widths.notes)
    lines = [line.rstrip()]
    if text.below:
        margin = text.branch.replace("├", "│").replace("└", " ") + "  "
        below = shorten(text.below, width - columns_of(margin))
        lines.append(screen.paint(margin, "dim") + screen.paint(below, text.below_style))
    return lines


def _label(screen: Screen, text: _Line, width: int) -> str:
    branch = shorten(text.branch, max(0, width - 6))
    room = width - columns_of(branch)
    label = shorten(text.label, room)
    room -= columns_of(label)
    detail = shorten(text.detail, room - 1) if text.detail and room > 4 else ""
    painted = screen.paint(branch, "dim") + screen.paint(label, text.label_style)
    if detail:
        painted += " " + screen.paint(detail, "dim")
        room -= columns_of(detail) + 1
    return painted + " " * max(0, room)


def _notes(screen: Screen, notes: Sequence[tuple[str, str]], width: int) -> str:
    painted: list[str] = []
    for text, style in notes:
        if not text or width < 2:
            continue
        fitting = shorten(text, width)
        painted.append(screen.paint(fitting, style))
        width -= columns_of(fitting) + 1
    return " ".join(painted)


def _legend(screen: Screen, lines: Sequence[str], width: int, *, is_broken: bool) -> list[str]:
    """What the signs mean: those that were drawn."""
    drawn = set("".join(lines))
    texts = [
        f"{sign} {meaning}" for sign, variants, meaning in _MEANINGS if drawn.intersection(variants)
    ]
    if is_broken:
        texts.append("/…/ a long wait drawn short")
    legend = [""]
    for text in texts:
        longer = f"{legend[-1]}   {text}" if legend[-1] else text
        if columns_of(longer) <= width:
            legend[-1] = longer
        else:
            legend.append(text)
    return [screen.paint(line, "dim") for line in legend]
