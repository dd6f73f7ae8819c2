"""One file's diff on one file's text. Pure.

A diff is a sequence of hunks. A hunk may start with ``@@`` lines, which say where to look, then has
lines of context (a space), to remove (``-``) and to add (``+``). Its old lines are searched for
from where the last hunk ended: as they are, then without trailing white space, then without
surrounding white space. ``*** End of File`` ties a hunk to the end of the text.

The texts of errors are read by models that were trained on this format; they name the line where
the search started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sandstream_actors.sandbox.tools.patch_errors import PatchDiffError
from sandstream_actors.sandbox.tools.patch_parse import END

END_OF_FILE = "*** End of File"
_FILE_ENDS = (END, "*** Update File:", "*** Delete File:", "*** Add File:")
_HUNK_ENDS = (*_FILE_ENDS, END_OF_FILE)

_LOOKS: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
"""How lines are compared, strictest first."""


def created_text(diff: str) -> str:
    """The text of a new file. As in the diff, no line end follows the last line."""
    lines = []
    for line in _lines_of(diff):
        if line.startswith(_FILE_ENDS):
            break
        if not line.startswith("+"):
            raise PatchDiffError(f"Invalid Add File Line: {line}")
        lines.append(line[1:])
    return _line_end_of(diff).join(lines)


def updated_text(text: str, diff: str) -> str:
    """The text with all hunks applied. Its line ends stay unchanged."""
    line_end = _line_end_of(text if "\n" in text else diff)
    lines = text.replace("\r\n", "\n").split("\n")
    return line_end.join(_edited(lines, _Hunks(diff, lines).edits()))


def _lines_of(diff: str) -> list[str]:
    lines = [line.rstrip("\r") for line in re.split(r"\r?\n", diff)]
    if lines[-1] == "":
        lines.pop()
    return lines


def _line_end_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


class _Edit(NamedTuple):
    at: int
    """A line of the hunk's old text; later of the file."""
    remove: int
    insert: list[str]


class _Hunk(NamedTuple):
    old: list[str]
    edits: list[_Edit]
    at_end: bool


class _Hunks:
    """Reads hunks and finds their places, in turn: where one is found decides about the next."""

    def __init__(self, diff: str, lines: list[str]) -> None:
        self._diff = [*_lines_of(diff), END]
        self._next = 0
        self._lines = lines
        self._cursor = 0

    def edits(self) -> Iterator[_Edit]:
        while not self._diff[self._next].startswith(_HUNK_ENDS):
            self._follow_anchors()
            hunk = self._read_hunk()
            place = _find(self._lines, hunk.old, self._cursor, at_end=hunk.at_end)
            if place is None:
                what = "Invalid EOF Context" if hunk.at_end else "Invalid Context"
                raise PatchDiffError(f"{what} {self._cursor}:\n" + "\n".join(hunk.old))
            self._cursor = place + len(hunk.old)
            for edit in hunk.edits:
                yield edit._replace(at=place + edit.at)

    def _follow_anchors(self) -> None:
        start = self._next
        while self._diff[self._next] == "@@" or self._diff[self._next].startswith("@@ "):
            self._next += 1
        headers = self._diff[start : self._next]
        if not headers and self._cursor > 0:
            raise PatchDiffError(f"Invalid Line:\n{self._diff[self._next]}")
        anchors = [text for header in headers if (text := header[3:]).strip()]
        for number, anchor in enumerate(anchors):
            found = self._find_anchor(anchor, may_be_behind=number == 0)
            if found is not None:
                self._cursor = found
            elif len(headers) > 1:
                raise PatchDiffError(f"Invalid Anchor {self._cursor}:\n{anchor}")

    def _find_anchor(self, anchor: str, *, may_be_behind: bool) -> int | None:
        """Where to continue. An anchor before the current place has no effect."""
        for look in (str, str.strip):
            wanted = look(anchor)
            behind = self._lines[: self._cursor] if may_be_behind else []
            if any(look(line) == wanted for line in behind):
                return self._cursor
            for index in range(self._cursor, len(self._lines)):
                if look(self._lines[index]) == wanted:
                    return index + 1
        return None

    def _read_hunk(self) -> _Hunk:
        start = self._next
        old: list[str] = []
        edits: list[_Edit] = []
        removed, inserted = 0, list[str]()

        def close_edit() -> None:
            nonlocal removed, inserted
            if removed or inserted:
                edits.append(_Edit(len(old) - removed, removed, inserted))
            removed, inserted = 0, []

        while not (line := self._diff[self._next]).startswith(("@@", *_HUNK_ENDS)):
            if line == "***":
                break
            sign, content = (line[0], line[1:]) if line else (" ", "")
            if sign not in " +-":
                raise PatchDiffError(f"Invalid Line: {line}")
            self._next += 1
            if sign == "+":
                inserted.append(content)
                continue
            if sign == "-":
                removed += 1
            else:
                close_edit()
            old.append(content)
        close_edit()

        if self._diff[self._next] == END_OF_FILE:
            self._next += 1
            return _Hunk(old, edits, at_end=True)
        if self._next == start:
            raise PatchDiffError(f"Nothing in this section - index={self._next} {line}")
        return _Hunk(old, edits, at_end=False)


def _find(lines: list[str], wanted: list[str], start: int, *, at_end: bool) -> int | None:
    if not at_end:
        return _find_from(lines, wanted, start)
    # The empty piece after the last line end is not a line.
    real = lines[:-1] if lines[-1] == "" else lines
    place = _find_from(real, wanted, max(0, len(real) - len(wanted)))
    if place is None:
        place = _find_from(real, wanted, min(start, len(real)))
    return place


def _find_from(lines: list[str], wanted: list[str], start: int) -> int | None:
    if not wanted:
        return start
    for look in _LOOKS:
        pattern = [look(line) for line in wanted]
        seen = [look(line) for line in lines[start:]]
        for index in range(len(seen) - len(pattern) + 1):
            if seen[index : index + len(pattern)] == pattern:
                return start + index
    return None


def _edited(lines: list[str], edits: Iterator[_Edit]) -> list[str]:
    # All hunks are read before the first edit: a bad one later on is the error to report.
    result: list[str] = []
    done = 0
    for edit in list(edits):
        if edit.at > len(lines):
            raise PatchDiffError(
                f"applyDiff: chunk.origIndex {edit.at} > input length {len(lines)}"
            )
        if done > edit.at:
            raise PatchDiffError(f"applyDiff: overlapping chunk at {edit.at} (cursor {done})")
        result += lines[done : edit.at]
        result += edit.insert
        done = edit.at + edit.remove
    return result + lines[done:]
