"""Characters of foreign text that deceive the eye: what steers a terminal, turns the direction of
reading, or cannot be seen. Screens, pages and logs show such a character as its code.

Knows nothing of where the text is shown.
"""

from __future__ import annotations

import re
from typing import Final

_DIRECTION: Final = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_HIDDEN: Final = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f"
    r"\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
_NO_CHARACTERS: Final = r"\ud800-\udfff"
# a joiner is at home between two characters that are not ASCII: in emoji, in Persian, in Hindi
_JOINERS: Final = r"(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
_DECEIVING: Final = f"[{_DIRECTION}{_HIDDEN}{_NO_CHARACTERS}]|{_JOINERS}"
_CONTROLS: Final = r"[\x00-\x1f\x7f-\x9f]"
_SPACES: Final = re.compile(r"\s+")

DECEIVING: Final = re.compile(_DECEIVING)
"""All of them but the control characters of ASCII and Latin-1."""
_ODD: Final = re.compile(f"{_CONTROLS}|{_DECEIVING}")
STEERING: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What steers a terminal: escape sequences and control characters, but not line ends and tabs."""


def clean(text: str) -> str:
    """Foreign text that is safe to print: control sequences are removed, and characters that look
    like others become their codes. Line ends and tabs stay.
    """
    return visible(STEERING.sub("", text))


def one_line(text: str) -> str:
    """Foreign text as one line."""
    return _SPACES.sub(" ", clean(text)).strip()


def visible(text: str) -> str:
    """The text with every deceiving character as its code; control characters stay."""
    return text if text.isascii() else DECEIVING.sub(_code, text)


def in_one_line(text: str) -> str:
    """The text with control characters and line ends as their codes, too: nothing in it can begin
    a line, or steer a terminal.
    """
    return _ODD.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    code = ord(match.group())
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        code -= 0xDC00
    if code < 0x100:
        return _SHORT.get(code) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_SHORT: Final = {0x09: r"\t", 0x0A: r"\n", 0x0D: r"\r"}
