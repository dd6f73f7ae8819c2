"""Terminal output: colour, widths, tables, live redraw. Knows nothing of runs or of the bus."""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TextIO

from sandstream_bus.environment import variable

from sandstream._inspect.visible_text import STEERING, visible
from sandstream._inspect.visible_text import clean as clean
from sandstream._inspect.visible_text import one_line as one_line

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_ALL_BUT_COLOURS = re.compile(rf"(?!\x1b\[[0-9;]*m)(?:{STEERING.pattern})")


class Screen:
    """One output stream: whether it has colour, and how wide it is."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        named = variable("TERM") != "dumb"
        self.has_colour = self.is_terminal and named and not variable("NO_COLOR")

    @property
    def width(self) -> int:
        """Columns; without a terminal nothing is cut, unless COLUMNS says so."""
        if not self.is_terminal and not variable("COLUMNS"):
            return 10_000
        return shutil.get_terminal_size((80, 24)).columns

    @property
    def height(self) -> int:
        return shutil.get_terminal_size((80, 24)).lines

    def paint(self, text: str, style: str) -> str:
        """The text in a style such as ``green`` or ``bold cyan``; empty: as it is."""
        if not self.has_colour or not style or not text:
            return text
        codes = ";".join(_CODES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        """A line for people. Foreign text in it should be clean, also for its width; here nothing
        but colours passes.
        """
        self.put(visible((_ALL_BUT_COLOURS if self.has_colour else STEERING).sub("", text)))

    def put(self, text: str) -> None:
        """Data as it is, for the program that reads it."""
        self.stream.write(text + "\n")
        self.stream.flush()


def out() -> Screen:
    return Screen(sys.stdout)


def err() -> Screen:
    return Screen(sys.stderr)


# --- text -----------------------------------------------------------------------------------------


def columns_of(text: str) -> int:
    """How many columns a terminal needs for the text."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(text: str, width: int) -> str:
    """The text, cut with … to fit."""
    if columns_of(text) <= width:
        return text
    room = max(width - 1, 0)
    kept: list[str] = []
    for char in text:
        room -= _columns(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def pad(text: str, width: int, align: str = "<") -> str:
    space = " " * max(0, width - columns_of(text))
    return space + text if align == ">" else text + space


# --- times and numbers ----------------------------------------------------------------------------


def parse_time(text: str) -> datetime | None:
    """A time of the server (RFC 3339, nanoseconds)."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def clock(text: str) -> str:
    """The local time of day."""
    time = parse_time(text)
    return time.astimezone().strftime("%H:%M:%S") if time else "--:--:--"


def seconds_between(start: str, end: str) -> float | None:
    """From one server time to another, or to now."""
    first = parse_time(start)
    last = parse_time(end) if end else datetime.now(UTC)
    if first is None or last is None:
        return None
    return max(0.0, (last - first).total_seconds())


def duration(seconds: float | None) -> str:
    """A duration in at most five characters."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes = int(seconds + 0.5) // 60
    if minutes < 60:
        return f"{minutes}m{int(seconds + 0.5) % 60:02d}s"[:6]
    if minutes < 48 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes // 1440}d"


def age(start: str) -> str:
    """How long ago, in the one unit that matters."""
    seconds = seconds_between(start, "")
    if seconds is None:
        return "-"
    for limit, divisor, unit in ((60, 1, "s"), (3600, 60, "m"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // divisor)}{unit}"
    return f"{int(seconds // 86_400)}d"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


# --- tables ---------------------------------------------------------------------------------------


class Column(NamedTuple):
    title: str
    align: str = "<"
    shrinks: int = 0
    """May be cut down to so many columns; 0: never."""
    drops: int = 0
    """May be left out where it does not fit, the highest first; 0: never."""


class Cell(NamedTuple):
    text: str
    style: str = ""
    prefix: str = ""
    """Ours, and drawn as it is: the branches of a tree."""


Row = Sequence[Cell]
_GAP = "  "


def table(screen: Screen, columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """The lines of a table that fits the screen, with a dim header."""
    cells = [[cell.prefix + one_line(cell.text) for cell in row] for row in rows]
    natural = [
        max([columns_of(column.title), *(columns_of(line[index]) for line in cells)])
        for index, column in enumerate(columns)
    ]
    widths = _fitted(columns, natural, screen.width)
    header = [
        pad(shorten(columns[index].title, width), width, columns[index].align)
        for index, width in widths.items()
    ]
    lines = [screen.paint(_GAP.join(header).rstrip(), "dim")]
    last = max(widths)
    for row, texts in zip(rows, cells, strict=True):
        parts: list[str] = []
        for index, width in widths.items():
            shown = pad(shorten(texts[index], width), width, columns[index].align)
            shown = shown.rstrip() if index == last else shown
            parts.append(screen.paint(shown, row[index].style))
        lines.append(_GAP.join(parts))
    return lines


def _fitted(columns: Sequence[Column], natural: Sequence[int], room: int) -> dict[int, int]:
    """The widths of the columns that are shown, by index: some dropped, then some cut."""
    widths = dict(enumerate(natural))

    def total(of: dict[int, int]) -> int:
        return sum(of.values()) + len(_GAP) * (len(of) - 1)

    def least(index: int) -> int:
        return min(natural[index], columns[index].shrinks or natural[index])

    by_drop = sorted(range(len(columns)), key=lambda index: -columns[index].drops)
    for index in by_drop:
        if columns[index].drops and total({one: least(one) for one in widths}) > room:
            del widths[index]
    while total(widths) > room:
        widest = max(widths, key=lambda index: widths[index] - least(index))
        if widths[widest] == least(widest):
            break
        widths[widest] -= 1
    return widths


# --- live redraw ----------------------------------------------------------------------------------


class LiveArea:
    """Redraws lines in place on the terminal's alternate screen, so that a resize leaves no traces.

    Use it with ``with``: the main screen and the cursor are restored in any case.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __enter__(self) -> LiveArea:
        self._screen.stream.write("\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J")
        self._screen.stream.flush()
        return self

    def __exit__(self, *exc: object) -> None:
        self._screen.stream.write("\x1b[?25h\x1b[?1049l")
        self._screen.stream.flush()

    def draw(self, lines: Sequence[str]) -> None:
        shown = lines[: max(1, self._screen.height - 1)]
        body = "".join(f"{line}\x1b[K\r\n" for line in shown)
        self._screen.stream.write(f"\x1b[H{body}\x1b[J")
        self._screen.stream.flush()
