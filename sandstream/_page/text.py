"""Foreign text on a page: secrets masked, what would deceive the eye made visible, long texts cut.

Everything that a page shows of a run goes through here, before it is escaped.
"""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec
from sandstream_actors.secrets.patterns import MASK, names_a_secret
from sandstream_actors.tracing.redaction import scrub
from sandstream_bus.counts import numbered

from sandstream._inspect.visible_text import DECEIVING

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """The text with nothing in it that cannot be seen, steers or turns the reading direction: such
    a character is shown as its code. Line ends and tabs stay.
    """
    text = text.encode("utf-8", "replace").decode().replace("\r", "")
    return DECEIVING.sub(_code, _CONTROLS.sub(_code, text))


def _code(match: re.Match[str]) -> str:
    return f"⟨U+{ord(match.group()):04X}⟩"


class Texts:
    """Makes foreign texts fit for a page: no secrets, nothing invisible, not too long. ``most``
    is the longest one that is shown whole; 0: any.
    """

    def __init__(self, most: int) -> None:
        self.most = most

    def text(self, text: str, most: int | None = None) -> str:
        """Foreign text: masked, visible, cut. Not yet escaped."""
        return visible(self._cut(scrub(text), most))

    def line(self, text: str, most: int = 200) -> str:
        """Foreign text as one line, however long texts may be."""
        text = " ".join(scrub(text[: most * 4]).split())
        return visible(text if len(text) <= most else text[:most] + "…")

    def value(self, value: Any) -> str:
        """A JSON value as people read it: strings as they are, the rest over several lines."""
        if isinstance(value, str):
            return self.text(value)
        shortened = self._within(value)
        return self._cut(msgspec.json.format(msgspec.json.encode(shortened), indent=2).decode())

    def json_text(self, text: str) -> str:
        """A text that may be JSON: laid out if it is and may be shown whole."""
        is_long = 0 < self.most < len(text)
        if text[:1] in ("{", "[") and not is_long:
            try:
                return self.value(msgspec.json.decode(text))
            except msgspec.DecodeError:
                pass  # not JSON after all
        return self.text(text)

    def _cut(self, text: str, most: int | None = None) -> str:
        limit = self.most if most is None or not self.most else min(most, self.most)
        left = len(text) - limit
        if not limit or left <= 0:
            return text
        return f"{text[:limit]}… ({numbered(left, 'more character', shown=f'{left:,}')})"

    def _within(self, value: Any, name: str = "") -> Any:
        """A JSON value with its texts fit to be shown. ``name``: what it is called there."""
        match value:
            case str():
                return MASK if names_a_secret(name, value) else self.text(value)
            case dict():
                return {self.text(key): self._within(it, key) for key, it in value.items()}
            case list() | tuple():
                return [self._within(it, name) for it in value]
            case _:
                return value


def spelled(length_ns: int) -> str:
    """A duration as the scripts write it too: 340 ms, 1.24 s, 3m 05s, 2h 13m, 4d 2h."""
    ms = max(0, length_ns) / 1e6
    if ms < 1000:
        return f"{ms:.1f} ms" if 0 < ms < 10 else f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}m {int(seconds % 60):02d}s"
    hours = minutes // 60
    return f"{hours}h {minutes % 60:02d}m" if hours < 48 else f"{hours // 24}d {hours % 24}h"


def escaped(text: str) -> str:
    """For markup: between tags and in quoted attributes."""
    return html.escape(text, quote=True)


def embedded_json(value: Any) -> str:
    """JSON for a script element: nothing in it can end the element or begin a comment."""
    text = msgspec.json.encode(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
