"""The handbook as blocks, and the rollouts that a piece of text names as its sources.

A block begins with a heading of the first level. A rollout is named by one of its files (its
summary, raw memory or recording), or, in a line that says ``Sources:`` or ``Runs:``, by its name or
a run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import msgspec
from sandstream_bus.memory_messages import Rollout

from sandstream_memory.layout import raw_path, rollout_path
from sandstream_memory.selection import summary_of

_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_CODE_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_TOKEN = re.compile(r"[\w./-]+")
_SOURCES_LINE = re.compile(r"\W*(?:sources?|runs?|rollouts?|rollout[_ ](?:ids?|names?))\W*:", re.I)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OF_ROLLOUTS = ("rollout_summaries", "raw_memories", "sessions")


class Section(msgspec.Struct, frozen=True):
    """A heading and what is below it, or what stands before the first heading."""

    level: int
    """0: there is no heading."""
    title: str
    lines: list[str]
    """With the heading."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()

    @property
    def body(self) -> list[str]:
        return self.lines[1:] if self.level else self.lines


def sections(lines: list[str], level: int) -> list[Section]:
    """The parts that headings of this level (or above) begin; deeper ones stay inside."""
    parts: list[Section] = []
    current = Section(0, "", [])
    for line, heading in _with_headings(lines):
        if heading is not None and len(heading[1]) <= level:
            if current.lines:
                parts.append(current)
            current = Section(len(heading[1]), heading[2].strip(), [])
        current.lines.append(line)
    return [*parts, current] if current.lines else parts


def blocks(text: str) -> list[Section]:
    """The blocks that are not blank."""
    return [each for each in sections(text.split("\n"), 1) if each.text]


def demoted(lines: list[str]) -> list[str]:
    """All headings one level deeper."""
    return [
        f"#{line}" if heading is not None and len(heading[1]) < 6 else line
        for line, heading in _with_headings(lines)
    ]


def _with_headings(lines: Iterable[str]) -> Iterator[tuple[str, re.Match[str] | None]]:
    fence = ""
    for line in lines:
        mark = _CODE_FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        yield line, None if fence or mark else _HEADING.fullmatch(line.rstrip())


# --- sources --------------------------------------------------------------------------------------


class Sources:
    """Finds the rollouts that a text names, and the files of others."""

    def __init__(self, rollouts: Collection[Rollout], others: Collection[str] = ()) -> None:
        self._others = {_short(path) for path in others}
        self._others |= {path.rpartition("/")[2] for path in self._others}
        self._files: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for rollout in rollouts:
            for path in (summary_of(rollout), raw_path(rollout.name), rollout_path(rollout.name)):
                self._files[_short(path)] = rollout.id
            self._files[summary_of(rollout).rpartition("/")[2]] = rollout.id
            self._files[rollout_path(rollout.name).rpartition("/")[2]] = rollout.id
            for name in (rollout.name, *rollout.runs):
                self._names[name] = rollout.id
        self._files.pop("", None)
        self._longest_first = sorted(
            ((each.name, each.id) for each in rollouts), key=lambda pair: -len(pair[0])
        )

    def of(self, text: str) -> set[str]:
        """The ids of those that it names."""
        found = {each for path in cited_files(text) if (each := self.of_file(path))}
        for line in text.split("\n"):
            if names_sources(line):
                names = [name.rstrip(".") for name in _NAME.findall(line)]
                found |= {self._names[name] for name in names if name in self._names}
        return found

    def of_file(self, path: str) -> str:
        """Whose file it is, also under a slug that it had before; empty: of none of these."""
        if known := self._files.get(_short(path)):
            return known
        folder, _, file = _short(path).rpartition("/")
        if folder != "rollout_summaries" or self.is_of_others(path):
            return ""
        owners = (each for name, each in self._longest_first if file.startswith(f"{name}_"))
        return next(owners, "")

    def is_of_others(self, path: str) -> bool:
        return _short(path) in self._others and _short(path) not in self._files


def names_sources(line: str) -> bool:
    """Does it say ``Sources:``, ``Runs:`` or the like?"""
    return _SOURCES_LINE.match(line) is not None


def cited_files(text: str) -> list[str]:
    """The words of a text that are names of such files as rollouts have."""
    words = (word.rstrip(".") for word in _TOKEN.findall(text))
    return [word for word in words if word.endswith((".md", ".jsonl"))]


def is_rollout_file(path: str) -> bool:
    """Is it, by its folder, a file of some rollout, known or not?"""
    return _short(path).rpartition("/")[0] in _OF_ROLLOUTS


def _short(path: str) -> str:
    """The last folder and the file: texts name the folders before it, or not."""
    return "/".join(path.split("/")[-2:])
