"""A line of the list as it is shown, in the width that there is."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from sandstream._inspect.texts import count
from sandstream._inspect.visible_text import one_line
from sandstream.tui.overview.entries import Heading, Line
from sandstream.tui.theme import MARKS, STYLES

NARROW = 70
"""Below this width a line has only the title and the activity."""
WIDE = 100
"""From this width on a line also has the agent and the provider."""
_TITLE_SHARE = 0.38


def heading(it: Heading) -> Content:
    """The line above a group."""
    return Content.assemble((f" {one_line(it.text)}", "bold $primary"), (f"  {it.count}", "dim"))


def row(it: Line, width: int) -> Content:
    """One entry as one line."""
    entry = it.entry
    mark = MARKS.get(entry.state, "·")
    style = STYLES.get(entry.state, "")
    title = one_line(entry.title)
    if entry.fork_of and not it.prefix:
        title = f"↳ {title}"
    doing = one_line(entry.doing)
    if width < NARROW:
        room = max(8, width - 4 - cell_len(it.prefix))
        title_width = max(8, room * 2 // 5)
        return Content.assemble(
            (f" {it.prefix}", "dim"),
            (f"{mark} ", style),
            (fit(title, title_width), ""),
            (f" {fit(doing or entry.state, room - title_width - 1)}", "dim"),
        )
    facts = [f"{count(entry.tokens):>6}"]
    if width >= WIDE:
        facts = [fit(entry.agent, 12), fit(entry.provider or "-", 8), *facts]
    tail = " ".join(facts) + f" {age(entry.changed):>4}"
    room = width - cell_len(tail) - 3
    title_width = max(12, int(room * _TITLE_SHARE))
    state = fit(entry.state, 9)
    doing_width = max(4, room - title_width - 14)
    return Content.assemble(
        (f" {it.prefix}", "dim"),
        (f"{mark} ", style),
        (fit(title, title_width - 2 - cell_len(it.prefix)), ""),
        (f" {state} ", style),
        (fit(doing, doing_width), "$foreground 80%"),
        (f" {tail}", "dim"),
    )


def fit(text: str, width: int) -> str:
    """The text in exactly so many columns, cut with …"""
    text = one_line(text)
    if width <= 0:
        return ""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


def age(time: str) -> str:
    """How long ago a time of the server is: 5s, 12m, 3h, 8d."""
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()
    except (ValueError, TypeError):
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
