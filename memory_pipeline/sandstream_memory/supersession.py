"""A merge supersedes and never silently deletes; and every block names its sources.

If a merge dropped at least half of a block, the block is kept under ``# Superseded`` as long as one
of its sources is selected, or if it names none (a person or the agent itself wrote it). Its own
statements decide: another block that names the same source does not make up for them. A statement
that was replaced in its block by one from the same source does not count as dropped; otherwise each
correction would leave the old version behind.

A later merge may remove an existing entry if it names the entry's sources elsewhere. Every block
and every entry that disappears gets a remark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandstream_bus.wire.memories import Rollout

from sandstream_memory.attribution import MAX_SOURCES_BYTES, listed, with_sources
from sandstream_memory.excerpts import encoded
from sandstream_memory.handbook import Section, Sources, blocks, demoted, sections
from sandstream_memory.kept_blocks import DROPPED_BY, Keeper, own_statements, title_of
from sandstream_memory.selection import Selection

SUPERSEDED = "Superseded"
MAX_SUPERSEDED_BYTES = 64 * 1024
_INTRODUCTION = (
    "Entries that a merge left out although their sources still count. The blocks above are newer."
)
_MAX_RUNS_NAMED = 20


def completed_handbook(
    before: str,
    after: str,
    *,
    selection: Selection,
    rollouts: Mapping[str, Rollout],
    max_bytes: int,
) -> tuple[str, list[str]]:
    """The new handbook with the blocks that it must not lose, and notes on what was changed."""
    sources = Sources(list(rollouts.values()))
    old_blocks, old_entries = _split(before)
    new_blocks, new_entries = _split(after)
    notes: list[str] = []
    merged = [rollouts[each] for each in selection.added or selection.selected if each in rollouts]
    texts = with_sources(new_blocks, old_blocks, sources, rollouts, merged, max_bytes, notes)
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
    """The blocks, and the superseded entries."""
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
    """The entries that stay. An entry that a fresh one repeats is dropped."""
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
    reason = f"{DROPPED_BY}{listed(runs[:_MAX_RUNS_NAMED], ', ', MAX_SOURCES_BYTES, len(runs))}."
    return "\n".join([lines[0], "", reason, *lines[1:]]).strip()


def _fitting(entries: Sequence[str], room: int, notes: list[str]) -> list[str]:
    """The newest entries that fit."""
    fitting: list[str] = []
    for entry in entries:
        room -= len(encoded(entry)) + 2
        if room < 0:
            notes.append(f"no room for a superseded block: {entry.splitlines()[0].lstrip('# ')}")
        else:
            fitting.append(entry)
    return fitting
