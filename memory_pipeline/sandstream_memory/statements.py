"""The statements of a text, and whether another text makes the same ones.

A statement is a list item, a table row or a paragraph, without its markers and sources. Another
text makes it if one of its statements has most of the words, and all words that contain digits. A
condensed text keeps most words; a text about something else keeps only some.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence

IsSource = Callable[[str], bool]
"""Whether this word names a source. Sources are not part of a statement."""
Words = tuple[str, ...]

_BEGINS = re.compile(r"\s*(?:[-*+]|\d+[.)]|\|)\s*")
_NO_STATEMENT = re.compile(r"\s*(?:#{1,6}\s|```|~~~|[-*_=|: ]+$)")
_TASK = re.compile(r"\[task \d+\]", re.I)
_WORD = re.compile(r"\w[\w./:@-]*\w|\w")
_DIGIT = re.compile(r"\d")
_ENOUGH = 0.75
"""The share of the words that must match."""
_MOST_COMPARED = 200
"""The limit of compared statements per shared word."""


def statements(lines: Iterable[str]) -> list[str]:
    """In order, each as one line, without headings."""
    found: list[list[str]] = []
    is_open = False
    for line in lines:
        if not line.strip() or _NO_STATEMENT.match(line):
            is_open = False
            continue
        mark = _BEGINS.match(line)
        if mark or not is_open:
            found.append([])
        found[-1].append(line[mark.end() :] if mark else line)
        is_open = not line.lstrip().startswith("|")
    return [" ".join(" ".join(parts).split()) for parts in found]


def words(statement: str, is_source: IsSource) -> Words:
    found = _WORD.findall(_TASK.sub("", statement))
    sources = {it for it in set(found) if is_source(it)}
    return tuple(it.casefold() for it in found if it not in sources)


class Said:
    """An index of the statements of a text."""

    def __init__(self, lines: Sequence[str], is_source: IsSource) -> None:
        self._is_source = is_source
        self._known: list[frozenset[str]] = []
        self._with: dict[str, list[int]] = {}
        for known in {words(each, is_source): None for each in statements(lines)}:
            for word in set(known):
                self._with.setdefault(word, []).append(len(self._known))
            self._known.append(frozenset(known))

    def says(self, statement: str) -> bool:
        wanted = frozenset(words(statement, self._is_source))
        exact = {word for word in wanted if _DIGIT.search(word)}
        needed = math.ceil(len(wanted) * _ENOUGH)
        rarest_first = sorted(wanted, key=lambda word: len(self._with.get(word, ())))
        # Any statement with enough of the words contains at least one of these.
        telling = rarest_first[: len(wanted) - needed + 1]
        candidates = (at for word in telling for at in self._with.get(word, ())[:_MOST_COMPARED])
        return not wanted or any(
            exact <= self._known[at] and len(wanted & self._known[at]) >= needed
            for at in candidates
        )
