"""Parse the handbook into blocks, and find the rollouts that a text names as its sources.

A block begins with a first-level heading. A text names a rollout by one of its files (summary, raw
memory or transcript) or, in a line that begins with ``Sources:`` or ``Runs:``, by name or run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import msgspec
from sandstream_bus.wire.memories import Rollout

from sandstream_memory.layout import raw_path, rollout_path
from sandstream_memory.selection import summary_of

_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_CODE_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_TOKEN = re.compile(r"[\w./-]+")
_SOURCES_LINE = re.compile(r"\W*(?:sources?|runs?|rollouts?|rollout[_ ](?:ids?|names?))\W*:", re.I)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SUFFIXES = (".md", ".jsonl")
_OF_ROLLOUTS = ("rollout_summaries", "raw_memories", "sessions")


class Section(msgspec.Struct, frozen=True):
    """A heading with the text below it, or the text before the first heading."""

    level: int
    """0 if there is no heading."""
    title: str
    lines: list[str]
    """Includes the heading."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()

    @property
    def body(self) -> list[str]:
        return self.lines[1:] if self.level else self.lines


def sections(lines: list[str], level: int) -> list[Section]:
    """Split at headings of this level or above; deeper headings stay inside their section."""
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
    """Move all headings one level deeper."""
    return [
        f"#{line}" if heading is not None and len(heading[1]) < 6 else line
        for line, heading in _with_headings(lines)
    ]


def is_heading(line: str) -> bool:
    """Whether the line looks like a heading, regardless of code fences."""
    return _HEADING.fullmatch(line.rstrip()) is not None


def _with_headings(lines: Iterable[str]) -> Iterator[tuple[str, re.Match[str] | None]]:
    fence = ""
    for line in lines:
        mark = _CODE_FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        yield line, None if fence or mark else _HEADING.fullmatch(line.rstrip())


# --- sources --------------------------------------------------------------------------------------


class Sources:
    """Finds which of the given rollouts a text names, and whether it names others."""

    def __init__(
        self,
        rollouts: Collection[Rollout],
        others: Collection[Rollout] = (),
        other_files: Collection[str] = (),
    ) -> None:
        """``other_files``: canonical paths of files of other rollouts."""
        self._files: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for rollout in rollouts:
            self._files |= dict.fromkeys(_files_of(rollout), rollout.id)
            self._names |= dict.fromkeys((rollout.name, *rollout.runs), rollout.id)
        self._others = {_short(path) for path in other_files}
        self._others |= {path.rpartition("/")[2] for path in self._others}
        self._other_names = {name for path in other_files if (name := _name_in(path))}
        for other in others:
            self._others |= _files_of(other)
            self._other_names.add(other.name)
        self._owners = dict.fromkeys(self._other_names, "")
        self._owners |= {each.name: each.id for each in rollouts}
        self._other_names |= {run for other in others for run in other.runs}
        self._others -= self._files.keys()
        self._other_names -= self._names.keys()

    def of(self, text: str) -> set[str]:
        """The ids of the given rollouts that the text names."""
        found = {each for path in cited_files(text) if (each := self.of_file(path))}
        return found | {self._names[name] for name in _names_in(text) if name in self._names}

    def of_file(self, path: str) -> str:
        """The id of the file's rollout, also under an earlier slug; empty if unknown."""
        return self._files.get(_short(path)) or self._owner_of_summary(path) or ""

    def is_file(self, word: str) -> bool:
        """Whether this word looks like the file of a rollout, known or not."""
        if "/" not in word:  # most words: without a folder, only known files count
            return bool(self._files.get(word)) or word in self._others
        return is_rollout_file(word) or bool(self.of_file(word)) or self.is_of_others(word)

    def of_name(self, name: str) -> str:
        return self._names.get(name, "")

    def names_others(self, text: str) -> bool:
        """Whether the text names any of the other rollouts."""
        if any(self.is_of_others(path) for path in cited_files(text)):
            return True
        return not self._other_names.isdisjoint(_names_in(text))

    def is_of_others(self, path: str) -> bool:
        return _short(path) in self._others or self._owner_of_summary(path) == ""

    def _owner_of_summary(self, path: str) -> str | None:
        """The owner by the rollout name at the start of the file name. Empty: one of the others;
        ``None``: unknown.
        """
        folder, _, file = _short(path).rpartition("/")
        if folder != "rollout_summaries" or _short(path) in self._files:
            return None
        if _short(path) in self._others:
            return ""
        ends = [at for at, letter in enumerate(file) if letter == "_"]
        names = (file[:end] for end in reversed(ends))  # the longest first
        return next((self._owners[name] for name in names if name in self._owners), None)


def _files_of(rollout: Rollout) -> set[str]:
    """The rollout's files, in the forms that texts use."""
    summary, recording = summary_of(rollout), rollout_path(rollout.name)
    found = {_short(path) for path in (summary, raw_path(rollout.name), recording)}
    return (found | {path.rpartition("/")[2] for path in (summary, recording)}) - {""}


def _name_in(path: str) -> str:
    """The rollout name in the path of a raw memory or transcript; empty for other paths."""
    folder, _, file = _short(path).rpartition("/")
    if folder in ("raw_memories", "sessions"):
        return file.removesuffix(".md").removesuffix(".jsonl")
    return ""


def _names_in(text: str) -> list[str]:
    """Possible names of rollouts or runs, from the lines that list sources."""
    lines = [line for line in text.split("\n") if names_sources(line)]
    return [name.rstrip(".") for line in lines for name in _NAME.findall(line)]


def names_sources(line: str) -> bool:
    """Whether the line begins with ``Sources:``, ``Runs:`` or similar."""
    return _SOURCES_LINE.match(line) is not None


def cited_files(text: str) -> list[str]:
    """The words of a text that could be files of rollouts, by their suffix."""
    if not any(suffix in text for suffix in _SUFFIXES):  # most texts; much faster than the words
        return []
    words = (word.rstrip(".") for word in _TOKEN.findall(text))
    return [word for word in words if word.endswith(_SUFFIXES)]


def is_rollout_file(path: str) -> bool:
    """Whether its folder is one for files of rollouts, known or not."""
    return _short(path).rpartition("/")[0] in _OF_ROLLOUTS


def _short(path: str) -> str:
    """The last folder and the file name: texts may or may not include the folders above."""
    return "/".join(path.split("/")[-2:])
