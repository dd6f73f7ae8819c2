"""A merge supersedes, never silently deletes; and every block says where it comes from.

A block that a merge dropped is kept under ``# Superseded`` as long as one of its sources is
selected and named by nothing in the new handbook. A block that names no source (a person or the
agent itself wrote it) is kept if nothing of it is left. Both rules hold for what is there already,
so that a later merge can do away with an entry by saying what it says elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandstream_bus.memory_messages import Rollout

from sandstream_memory.bounding import encoded
from sandstream_memory.handbook import (
    Section,
    Sources,
    blocks,
    cited_files,
    demoted,
    is_rollout_file,
    sections,
)
from sandstream_memory.layout import MEMORIES
from sandstream_memory.phase_one import runs_named
from sandstream_memory.selection import Selection, summary_of

SUPERSEDED = "Superseded"
MAX_SUPERSEDED_BYTES = 64 * 1024
_INTRODUCTION = (
    "Entries that a merge left out although their sources still count. The blocks above are newer."
)
_DROPPED_BY = "Left out by the merge of runs "
_MAX_SOURCES_BYTES = 2048
"""Of a line that names sources, or runs."""
_MAX_RUNS_OF_A_SOURCE = 3
_MAX_RUNS_NAMED = 20


def completed_handbook(
    before: str,
    after: str,
    *,
    selection: Selection,
    rollouts: Mapping[str, Rollout],
    max_bytes: int,
) -> tuple[str, list[str]]:
    """The new handbook with what it must not lose, and notes of what was done to it."""
    sources = Sources(list(rollouts.values()))
    old_blocks, old_entries = _split(before)
    new_blocks, new_entries = _split(after)
    notes: list[str] = []
    merged = [rollouts[each] for each in selection.added or selection.selected if each in rollouts]
    texts = _with_sources(new_blocks, old_blocks, sources, merged, max_bytes, notes)
    body = "\n\n".join(texts)
    kept_by = _Keeper(body, sources, selection)
    lost = [each for each in old_blocks if kept_by.must_keep(each)]
    fresh = [_as_entry(each, merged) for each in lost]
    notes += [f"kept as superseded: {_title(each)}" for each in lost]
    left = [each.text for each in new_entries if not kept_by.is_forgotten(each)]
    left += [each.text for each in old_entries if kept_by.must_keep(each)]
    room = min(MAX_SUPERSEDED_BYTES, max_bytes - len(encoded(body)) - 1024)
    entries = _fitting(list(dict.fromkeys([*fresh, *left])), room, notes)
    if entries:
        body = "\n\n".join([body, f"# {SUPERSEDED}\n\n{_INTRODUCTION}", *entries])
    return f"{body.strip()}\n" if body.strip() else "", notes


def _split(text: str) -> tuple[list[Section], list[Section]]:
    """The blocks, and the entries of the superseded ones."""
    found, entries = [], []
    for block in blocks(text):
        if block.level == 1 and block.title == SUPERSEDED:
            entries += [each for each in sections(block.body, 2) if each.level == 2]
        else:
            found.append(block)
    return found, entries


def _title(block: Section) -> str:
    return block.title or "the text before the first heading"


# --- what a merge lost ----------------------------------------------------------------------------


class _Keeper:
    """Decides what of the old handbook must stay beside the new one."""

    def __init__(self, body: str, sources: Sources, selection: Selection) -> None:
        self._body = body
        self._lines = {line.strip() for line in body.split("\n")}
        self._sources = sources
        self._selected = set(selection.selected)
        self._unnamed = self._selected - sources.of(body)

    def must_keep(self, old: Section) -> bool:
        if old.text in self._body:
            return False
        named = self._sources.of(old.text)
        if named:
            return bool(named & self._unnamed)
        if any(is_rollout_file(path) for path in cited_files(old.text)):
            return False  # its sources do not exist any more
        said = [line.strip() for line in old.body if not line.startswith(_DROPPED_BY)]
        return any(said) and not any(line in self._lines for line in said if line)

    def is_forgotten(self, entry: Section) -> bool:
        """Nothing that is selected supports it any more."""
        named = self._sources.of(entry.text)
        return bool(named) and not named & self._selected


def _as_entry(block: Section, merged: Sequence[Rollout]) -> str:
    lines = demoted(block.lines) if block.level else [f"## {_title(block)}", *block.lines]
    runs = [run for each in merged for run in each.runs]
    reason = f"{_DROPPED_BY}{_listed(runs[:_MAX_RUNS_NAMED], ', ', _MAX_SOURCES_BYTES, len(runs))}."
    return "\n".join([lines[0], "", reason, *lines[1:]]).strip()


def _fitting(entries: Sequence[str], room: int, notes: list[str]) -> list[str]:
    """The newest entries that there is room for."""
    fitting: list[str] = []
    for entry in entries:
        room -= len(encoded(entry)) + 2
        if room < 0:
            notes.append(f"no room for what was superseded: {entry.splitlines()[0].lstrip('# ')}")
        else:
            fitting.append(entry)
    return fitting


# --- where a block comes from ---------------------------------------------------------------------


def _with_sources(
    new: Sequence[Section],
    old: Sequence[Section],
    sources: Sources,
    merged: Sequence[Rollout],
    max_bytes: int,
    notes: list[str],
) -> list[str]:
    """The texts of the blocks; one that is new and names no source names what was merged.

    That takes at most half of the room that the handbook has left: a good text must not be refused
    for what was added to it.
    """
    known = {each.text for each in old}
    bare = [
        each.text not in known and _says_something(each) and not sources.of(each.text)
        for each in new
    ]
    room = (max_bytes - sum(len(encoded(each.text)) for each in new)) // 2
    named = _named(merged, min(_MAX_SOURCES_BYTES, room // max(sum(bare), 1)))
    texts = []
    for block, is_bare in zip(new, bare, strict=True):
        if is_bare and merged:
            done = "sources were added to" if named else "no room for the sources of"
            notes.append(f"{done}: {_title(block)}")
        texts.append(f"{block.text}\n\nSources: {named}" if is_bare and named else block.text)
    return texts


def _says_something(block: Section) -> bool:
    return bool("".join(block.body).strip())


def _named(merged: Sequence[Rollout], max_bytes: int) -> str:
    """Their files, with their runs if there is room for that."""
    files = [summary_of(each).removeprefix(MEMORIES) or each.name for each in merged]
    runs = [f"(runs {runs_named(each, _MAX_RUNS_OF_A_SOURCE)})" for each in merged]
    whole = [f"{file} {its_runs}" for file, its_runs in zip(files, runs, strict=True)]
    count = len(merged)
    return _listed(whole, "; ", max_bytes, count) or _listed(files, "; ", max_bytes, count)


def _listed(named: Sequence[str], between: str, max_bytes: int, count: int) -> str:
    """As many as there is room for, and how many more of ``count`` there are."""
    taken: list[str] = []
    room = max_bytes - len(f"{between}and {count} more")
    for each in named:
        room -= len(encoded(each)) + len(between)
        if room < 0:
            break
        taken.append(each)
    more = count - len(taken)
    return between.join([*taken, f"and {more} more"] if more and taken else taken)
