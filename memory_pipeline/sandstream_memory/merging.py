"""Three-way merges: what two sides made of the same file, in one.

There are no conflicts to be solved by anybody. A line is in the result if one side added it, or if
it was there and no side deleted it. What both added at the same place is there once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher

from sandstream_memory.layout import Files, is_editable

_Place = tuple[list[str], list[str]]
"""What both sides added before a line."""
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")


def merge_text(base: str, ours: str, theirs: str) -> str:
    """Both sides' changes of ``base``."""
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    lines = base.split("\n")
    our_lines, their_lines = ours.split("\n"), theirs.split("\n")
    our_side, their_side = _Side(lines, our_lines), _Side(lines, their_lines)
    merged: list[str] = []
    region: list[_Place] = []
    for at in range(len(lines) + 1):
        region.append((our_side.added[at], their_side.added[at]))
        if at == len(lines) or (our_side.is_kept[at] and their_side.is_kept[at]):
            merged += _both(region)
            merged += lines[at : at + 1]
            region = []
    counted = Counter(merged)
    if counted == Counter(our_lines):
        return ours
    if counted == Counter(their_lines):
        return theirs
    return "\n".join(merged)


class _Side:
    """What one side did to the lines."""

    def __init__(self, base: list[str], changed: list[str]) -> None:
        self.is_kept = [False] * len(base)
        self.added: list[list[str]] = [[] for _ in range(len(base) + 1)]
        """By the line of ``base`` that they stand before."""
        for kind, start, end, new_start, new_end in _edits(base, changed):
            if kind == "equal":
                self.is_kept[start:end] = [True] * (end - start)
            else:
                self.added[start] += changed[new_start:new_end]


def _edits(base: list[str], changed: list[str]) -> Iterable[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, base, changed).get_opcodes()


def _both(region: list[_Place]) -> list[str]:
    """What both added between two lines that both kept: ours, and what of theirs is new."""
    ours = [line for place in region for line in place[0]]
    theirs = [line for place in region for line in place[1]]
    if _is_subsequence(theirs, ours):
        return ours
    if _is_subsequence(ours, theirs):
        return theirs
    items = {line for line in ours if _LIST_ITEM.match(line)}
    merged: list[str] = []
    for our_part, their_part in region:
        merged += our_part
        for paragraph in _paragraphs(their_part):
            if not _is_run(paragraph, ours):
                merged += [line for line in paragraph if line not in items]
    return merged


def _is_subsequence(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(line in rest for line in part)


def _paragraphs(lines: list[str]) -> list[list[str]]:
    """Split behind blank lines."""
    parts: list[list[str]] = [[]]
    for line in lines:
        parts[-1].append(line)
        if not line.strip():
            parts.append([])
    return [part for part in parts if part]


def _is_run(part: list[str], whole: list[str]) -> bool:
    """Are these lines, one after the other, in the others?"""
    starts = range(len(whole) - len(part) + 1)
    return any(whole[at] == part[0] and whole[at : at + len(part)] == part for at in starts)


# --- files ----------------------------------------------------------------------------------------


def merge_files(base: Files, ours: Files, theirs: Files) -> Files:
    """Both sides' changes of the editable files. Of a file that is no text, ours; a file that one
    side deleted and the other changed stays.
    """
    merged: Files = {}
    for path in sorted({*base, *ours, *theirs}):
        if not is_editable(path):
            continue
        data = _merged(base.get(path), ours.get(path), theirs.get(path))
        if data is not None:
            merged[path] = data
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
