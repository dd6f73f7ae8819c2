"""Counts with nouns, for messages to people."""

from __future__ import annotations


def numbered(number: float, noun: str, plural: str = "", *, shown: str = "") -> str:
    """``1 message``, ``2 messages``.

    Args:
        number: the count.
        noun: the text after 1; it may include a verb, such as ``message waits``.
        plural: the text after other numbers; by default the noun with an s.
        shown: the number as text; by default in its shortest form.
    """
    written = shown or (str(number) if isinstance(number, int) else f"{number:g}")
    return f"{written} {noun if number == 1 else plural or f'{noun}s'}"
