"""Foreign text on the screen: it is cleaned here, and nothing that steers a terminal passes.

:class:`NoControls` is the last step before the terminal. It removes what a widget forgot.
"""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter

from sandstream._inspect.visible_text import STEERING, clean, one_line


def text(foreign: str, style: str = "") -> Content:
    """Foreign text of several lines; nothing in it is markup."""
    return Content.styled(clean(foreign).expandtabs(4), style)


def line(foreign: str, style: str = "") -> Content:
    """Foreign text as one line; nothing in it is markup. Spaces before it stay."""
    indent = " " * (len(foreign) - len(foreign.lstrip(" ")))
    return Content.styled(indent + one_line(foreign), style)


class NoControls(LineFilter):
    """Removes control characters from everything that is written to the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Clean one line of the screen.

        Args:
            segments: The line.
            background: The colour behind it.

        Returns:
            The same line without control characters.
        """
        if not any(_is_odd(it) for it in segments):
            return segments
        return [
            Segment(STEERING.sub("", it.text).replace("\n", " "), it.style, it.control)
            if _is_odd(it)
            else it
            for it in segments
        ]


def _is_odd(segment: Segment) -> bool:
    text = segment.text
    return not segment.control and not text.isprintable() and bool(STEERING.search(text))
