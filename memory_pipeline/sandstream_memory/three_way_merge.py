"""Three-way merge of two versions of the same file.

There are no conflicts to resolve. A line is in the result if one side added it, or if it was in the
base and neither side deleted it. What both sides added in the same place appears once. A line that
both sides have is never lost, even if each side deleted a different copy of it. Blank lines belong
to the line before them: they all look alike, so they cannot identify a place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from sandstream_memory.alignment import matches
from sandstream_memory.clashes import without_clashes
from sandstream_memory.layout import Files, is_editable

_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_HEADING = re.compile(r"(#{1,6})\s")
_NO_HEADING = 7


class _Line(msgspec.Struct, frozen=True):
    text: str
    blanks: list[str]
    """The blank lines after it."""


_Added = tuple[int, _Line]
"""The index of the base line that it was added before, and the line."""


def merge_text(base: str, ours: str, theirs: str) -> str:
    """``base`` with the changes of both sides."""
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    lines, our_lines, their_lines = _lines(base), _lines(ours), _lines(theirs)
    ours_has_all = _has_all_changes(lines, our_lines, of=their_lines)
    theirs_has_all = _has_all_changes(lines, their_lines, of=our_lines)
    if ours_has_all != theirs_has_all:
        return ours if ours_has_all else theirs
    sides = _Side(lines, our_lines), _Side(lines, their_lines)
    merged = _merged_lines(lines, *sides, put_back=set())
    for is_careful in (False, True):
        too_few = _too_few(lines, our_lines, their_lines, merged)
        if not too_few:
            break
        put_back = _copies(lines, *sides, too_few, all_of_them=is_careful)
        merged = _merged_lines(lines, *sides, put_back=put_back)
    return _text(merged, ends_line=ours.endswith("\n") or theirs.endswith("\n"))


def _merged_lines(
    base: list[_Line], ours: _Side, theirs: _Side, *, put_back: set[int]
) -> list[_Line]:
    """``put_back``: lines of the base that stay although one side deleted them."""
    merged: list[_Line] = []
    start = 0
    for at in range(len(base) + 1):
        mine, yours = ours.kept.get(at), theirs.kept.get(at)
        is_kept = at in put_back or (mine is not None and yours is not None)
        if at == len(base) or is_kept:
            merged += _both(ours.added(start, at), theirs.added(start, at))
            start = at + 1
        if is_kept:
            merged.append(_with_blanks(base[at], mine or base[at], yours or base[at]))
    return merged


def _lines(text: str) -> list[_Line]:
    """The first one is an empty line that holds leading blank lines."""
    found = [_Line("", [])]
    for line in text.removesuffix("\n").split("\n") if text else ():
        if line.strip():
            found.append(_Line(line, []))
        else:
            found[-1].blanks.append(line)
    return found


def _text(lines: Sequence[_Line], *, ends_line: bool) -> str:
    split = [each for line in lines for each in (line.text, *line.blanks)]
    return "\n".join(split[1:]) + ("\n" if ends_line else "")


def _has_all_changes(base: list[_Line], side: list[_Line], *, of: list[_Line]) -> bool:
    """Whether the other side's changes were already merged into this side. The position does not
    matter, but an added line must be below the same headings: below others, the same words mean
    something else.
    """
    given = (base, side, of)
    before, here, there = (Counter(line.text for line in lines) for lines in given)
    changed = [text for text in {*before, *there} if before[text] != there[text]]
    if not changed or not all(
        here[text] >= there[text] if there[text] > before[text] else here[text] <= there[text]
        for text in changed
    ):
        return False
    added = there - before
    had, has, wanted = (Counter(_with_headings(lines)) for lines in given)
    return all(has[it] >= wanted[it] for it in wanted - had if it[-1] in added)


def _with_headings(lines: list[_Line]) -> Iterator[tuple[str, ...]]:
    """Each line, with the headings above it."""
    above: list[tuple[int, str]] = []
    for line in lines:
        heading = _HEADING.match(line.text)
        while heading and above and above[-1][0] >= len(heading[1]):
            above.pop()
        yield (*(text for _, text in above), line.text)
        if heading:
            above.append((len(heading[1]), line.text))


def _with_blanks(base: _Line, ours: _Line, theirs: _Line) -> _Line:
    if theirs.blanks == base.blanks:
        return ours
    return theirs if ours.blanks == base.blanks else max(ours, theirs, key=lambda e: len(e.blanks))


class _Side:
    """The changes of one side to the lines of the base."""

    def __init__(self, base: list[_Line], changed: list[_Line]) -> None:
        self.kept: dict[int, _Line] = {}
        self._added: dict[int, list[_Line]] = {}
        same = matches([line.text for line in base], [line.text for line in changed])
        last, last_new = 0, 0
        for at, new in [*same, (len(base), len(changed))]:
            if last_new < new:
                self._added[last] = changed[last_new:new]
            if at < len(base):
                self.kept[at] = changed[new]
            last, last_new = at + 1, new + 1

    def added(self, start: int, end: int) -> list[_Added]:
        """The lines that were added before one of these base lines."""
        return [(at, line) for at in range(start, end + 1) for line in self._added.get(at, ())]


# --- copies of a line -----------------------------------------------------------------------------


def _too_few(
    base: list[_Line], ours: list[_Line], theirs: list[_Line], merged: list[_Line]
) -> Counter[str]:
    """How many copies of which lines are missing. The result needs as many copies as both sides
    have, or as either has if neither side has fewer than the base.
    """
    given = (base, ours, theirs, merged)
    was, mine, yours, here = (Counter(line.text for line in lines) for lines in given)
    both, either = mine & yours, mine | yours
    wanted = {text: either[text] if both[text] >= was[text] else both[text] for text in either}
    return Counter(wanted) - here


def _copies(
    base: list[_Line], ours: _Side, theirs: _Side, wanted: Counter[str], *, all_of_them: bool
) -> set[int]:
    """The first base lines with these texts that exactly one side deleted.

    Putting a line back divides the additions around it, so that fewer of them may match. Putting
    back all copies guarantees enough of them in any case.
    """
    left = Counter(wanted)
    found: set[int] = set()
    for at, line in enumerate(base):
        if (at in ours.kept) != (at in theirs.kept) and left[line.text] > 0:
            found.add(at)
            left[line.text] -= 0 if all_of_them else 1
    return found


# --- what both added ------------------------------------------------------------------------------


def _both(ours: list[_Added], theirs: list[_Added]) -> list[_Line]:
    """The additions of both sides between two lines that both kept; equal ones appear once."""
    if _is_part(theirs, ours):
        return [line for _, line in ours]
    if _is_part(ours, theirs):
        return [line for _, line in theirs]
    return [line for _, line in _woven(_units(ours), _units(theirs))]


def _is_part(part: list[_Added], whole: list[_Added]) -> bool:
    rest = iter([line.text for _, line in whole])
    return all(line.text in rest for _, line in part)


def _woven(ours: list[list[_Added]], theirs: list[list[_Added]]) -> list[_Added]:
    """The units of both sides in order of position; ours first at the same position."""
    woven: list[_Added] = []
    mine, yours = 0, 0
    same = matches([_key(unit) for unit in ours], [_key(unit) for unit in theirs])
    for our_end, their_end in [*same, (len(ours), len(theirs))]:
        between = [*ours[mine:our_end], *theirs[yours:their_end]]
        units = sorted(between, key=lambda unit: unit[0][0]) + ours[our_end : our_end + 1]
        woven += [line for unit in units for line in unit]
        mine, yours = our_end + 1, their_end + 1
    return woven


def _key(unit: list[_Added]) -> tuple[str, ...]:
    return tuple(line.text for _, line in unit)


def _units(added: list[_Added]) -> list[list[_Added]]:
    """Group added lines into sections, paragraphs and list items, which stay together."""
    units: list[list[_Added]] = []
    level = _NO_HEADING
    is_list = False
    for place, line in added:
        heading = _HEADING.match(line.text)
        is_item = _LIST_ITEM.match(line.text) is not None
        last = units[-1][-1] if units else None
        begins = last is None or last[0] != place
        if heading and len(heading[1]) <= level:
            level = len(heading[1])
            begins = True
        elif level == _NO_HEADING and last is not None:
            begins = begins or bool(last[1].blanks) or (is_list and is_item)
        if begins:
            units.append([])
            is_list = is_item
        units[-1].append((place, line))
    return units


# --- files ----------------------------------------------------------------------------------------


def merge_files(base: Files, ours: Files, theirs: Files, notes: list[str] | None = None) -> Files:
    """Merge both sides' changes of the editable files.

    If a file is not text, ours wins. A file that one side deleted and the other changed stays. The
    result has no path clashes; what was changed for that is added to ``notes``.
    """
    merged: Files = {}
    for path in sorted({*base, *ours, *theirs}):
        if not is_editable(path):
            continue
        data = _merged(base.get(path), ours.get(path), theirs.get(path))
        if data is not None:
            merged[path] = data
    merged, clashes = without_clashes(merged)
    if notes is not None:
        notes += clashes
    return merged


def _merged(base: bytes | None, ours: bytes | None, theirs: bytes | None) -> bytes | None:
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    if ours is None or theirs is None:
        return ours if theirs is None else theirs
    try:
        texts = [(base or b"").decode(), ours.decode(), theirs.decode()]
    except UnicodeDecodeError:
        return ours
    return merge_text(*texts).encode()
