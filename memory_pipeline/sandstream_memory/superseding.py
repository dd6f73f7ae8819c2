"""A merge supersedes, never silently deletes; and every block says where it comes from.

A block of which a merge dropped at least half is kept under ``# Superseded`` as long as one of its
sources is selected, or if it names none (a person or the agent itself wrote it). It is judged by
its own statements: that another block names the same source does not make up for them. A statement
that was replaced in its block, by one of the same source, is not dropped; otherwise each correction
would leave the old version behind.

An entry that is there already may be removed by a later merge that names its sources elsewhere.
Every block that is gone, and every entry, has a remark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandstream_bus.memory_messages import Rollout

from sandstream_memory.bounding import encoded
from sandstream_memory.handbook import Section, Sources, blocks, demoted, sections
from sandstream_memory.keeping import DROPPED_BY, Keeper, own_statements, title_of
from sandstream_memory.layout import MEMORIES
from sandstream_memory.phase_one import runs_named
from sandstream_memory.selection import Selection, summary_of

SUPERSEDED = "Superseded"
MAX_SUPERSEDED_BYTES = 64 * 1024
_INTRODUCTION = (
    "Entries that a merge left out although their sources still count. The blocks above are newer."
)
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
    keeper = Keeper(old_blocks, new_blocks, body, sources, selection)
    judged = [(each, keeper.judge(each)) for each in old_blocks]
    notes += [f"{verdict.remark}: {title_of(each)}" for each, verdict in judged if verdict.remark]
    fresh = [_as_entry(each, merged) for each, verdict in judged if verdict.is_kept]
    left = _left(old_entries, new_entries, fresh, keeper, notes)
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


# --- what a merge lost ----------------------------------------------------------------------------


def _left(
    old: Sequence[Section],
    new: Sequence[Section],
    fresh: Sequence[str],
    keeper: Keeper,
    notes: list[str],
) -> list[str]:
    """The entries that stay. One that a fresh one repeats goes."""
    kept = [each for each in new if not keeper.is_forgotten(each)]
    texts = {each.text for each in kept}
    kept += [each for each in old if each.text not in texts and keeper.must_stay(each)]
    repeated = keeper.said_by("\n".join(fresh))
    left = [
        each
        for each in kept
        if not (own := own_statements(each)) or not all(map(repeated.says, own))
    ]
    texts = {each.text for each in left}
    notes += [
        f"no longer kept as superseded: {title_of(each)}" for each in old if each.text not in texts
    ]
    return [each.text for each in left]


def _as_entry(block: Section, merged: Sequence[Rollout]) -> str:
    lines = demoted(block.lines) if block.level else [f"## {title_of(block)}", *block.lines]
    runs = [run for each in merged for run in each.runs]
    reason = f"{DROPPED_BY}{_listed(runs[:_MAX_RUNS_NAMED], ', ', _MAX_SOURCES_BYTES, len(runs))}."
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
            notes.append(f"{done}: {title_of(block)}")
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
