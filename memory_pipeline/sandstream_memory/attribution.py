"""Add sources to the blocks of a handbook where the merging agent omitted them.

A block without sources gets the sources of the old blocks that made the same statements. If it says
anything new, it also gets the rollouts that were merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandstream_bus.wire.memories import Rollout

from sandstream_memory.excerpts import encoded
from sandstream_memory.handbook import Section, Sources
from sandstream_memory.kept_blocks import own_statements, title_of
from sandstream_memory.layout import MEMORIES
from sandstream_memory.phase_one import runs_named
from sandstream_memory.selection import summary_of
from sandstream_memory.statements import Said

MAX_SOURCES_BYTES = 2048
"""The limit for a line that lists sources or runs."""
_MAX_RUNS_OF_A_SOURCE = 3


def with_sources(
    new: Sequence[Section],
    old: Sequence[Section],
    sources: Sources,
    rollouts: Mapping[str, Rollout],
    merged: Sequence[Rollout],
    max_bytes: int,
    notes: list[str],
) -> list[str]:
    """The texts of the blocks, with sources added to new blocks that name none.

    The added text uses at most half of the handbook's remaining room: a good text must not be
    refused because of it.
    """
    known = {each.text for each in old}
    bare = [
        each.text not in known and _says_something(each) and not sources.of(each.text)
        for each in new
    ]
    room = (max_bytes - sum(len(encoded(each.text)) for each in new)) // 2
    room = min(MAX_SOURCES_BYTES, room // max(sum(bare), 1))
    before = _Before(old, sources)
    texts = []
    for block, is_bare in zip(new, bare, strict=True):
        named = ""
        if is_bare and merged:
            inherited = [rollouts[id] for id in before.sources_of(block) if id in rollouts]
            fresh = merged if not inherited or before.is_beyond(block) else []
            named = _named([*fresh, *(it for it in inherited if it not in fresh)], room)
            done = "sources were added to" if named else "no room for the sources of"
            notes.append(f"{done}: {title_of(block)}")
        texts.append(f"{block.text}\n\nSources: {named}" if named else block.text)
    return texts


def _says_something(block: Section) -> bool:
    return bool("".join(block.body).strip())


class _Before:
    """The statements of the old handbook, and their sources."""

    def __init__(self, old: Sequence[Section], sources: Sources) -> None:
        self._sources = sources
        self._blocks = [(own_statements(each), sources.of(each.text)) for each in old]
        self._said = self._said_by("\n".join(each.text for each in old))

    def sources_of(self, block: Section) -> list[str]:
        """The sources of the old blocks that made some of this block's statements."""
        said = self._said_by(block.text)
        found = [
            id for own, named in self._blocks if any(map(said.says, own)) for id in sorted(named)
        ]
        return list(dict.fromkeys(found))

    def is_beyond(self, block: Section) -> bool:
        """Whether it says anything that the old handbook did not."""
        return not all(map(self._said.says, own_statements(block)))

    def _said_by(self, text: str) -> Said:
        return Said(text.split("\n"), self._sources.is_file)


def _named(merged: Sequence[Rollout], max_bytes: int) -> str:
    """Their files, with their runs if there is room."""
    files = [summary_of(each).removeprefix(MEMORIES) or each.name for each in merged]
    runs = [f"(runs {runs_named(each, _MAX_RUNS_OF_A_SOURCE)})" for each in merged]
    whole = [f"{file} {its_runs}" for file, its_runs in zip(files, runs, strict=True)]
    count = len(merged)
    return listed(whole, "; ", max_bytes, count) or listed(files, "; ", max_bytes, count)


def listed(named: Sequence[str], between: str, max_bytes: int, count: int) -> str:
    """As many names as fit, and how many more of ``count`` there are."""
    taken: list[str] = []
    room = max_bytes - len(f"{between}and {count} more")
    for each in named:
        room -= len(encoded(each)) + len(between)
        if room < 0:
            break
        taken.append(each)
    more = count - len(taken)
    return between.join([*taken, f"and {more} more"] if more and taken else taken)
