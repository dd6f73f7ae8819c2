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
_DROPPED_BY = "Left out by the merge of: "
_MAX_SOURCES_NAMED = 20


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
    texts = _with_sources(new_blocks, old_blocks, sources, selection, rollouts, notes)
    body = "\n\n".join(texts)
    lost = [each for each in old_blocks if _is_lost(each, body, sources, selection)]
    fresh = [_as_entry(each, selection, rollouts) for each in lost]
    notes += [f"kept as superseded: {_title(each)}" for each in lost]
    kept = {each.text: each for each in new_entries}
    for entry in old_entries:
        if entry.text not in kept and _is_lost(entry, body, sources, selection):
            kept[entry.text] = entry
    room = min(MAX_SUPERSEDED_BYTES, max_bytes - len(encoded(body)) - 1024)
    entries = _fitting([*fresh, *kept], room, notes)
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


def _is_lost(old: Section, body: str, sources: Sources, selection: Selection) -> bool:
    if old.text in body:
        return False
    named = sources.of(old.text)
    if named:
        return bool(named & set(selection.selected) - sources.of(body))
    if any(_is_of_unknown(line, sources) for line in old.lines):
        return False
    new_lines = {line.strip() for line in body.split("\n")}
    said = [line.strip() for line in old.body if line.strip() and not line.startswith(_DROPPED_BY)]
    return bool(said) and not any(line in new_lines for line in said)


def _is_of_unknown(line: str, sources: Sources) -> bool:
    """It names a rollout that does not exist any more."""
    return any(is_rollout_file(path) and not sources.of_file(path) for path in cited_files(line))


def _as_entry(block: Section, selection: Selection, rollouts: Mapping[str, Rollout]) -> str:
    lines = demoted(block.lines) if block.level else [f"## {_title(block)}", *block.lines]
    reason = _DROPPED_BY + _named(_newest(selection), rollouts)
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
    selection: Selection,
    rollouts: Mapping[str, Rollout],
    notes: list[str],
) -> list[str]:
    """The texts of the blocks; one that is new and names no source names what was merged."""
    known = {each.text for each in old}
    texts = []
    for block in new:
        text = block.text
        is_heading_only = bool(block.level) and not "".join(block.body).strip()
        if text not in known and not is_heading_only and not sources.of(text):
            named = _named(_newest(selection), rollouts)
            if named:
                text = f"{text}\n\nSources: {named}"
                notes.append(f"sources were added to: {_title(block)}")
        texts.append(text)
    return texts


def _newest(selection: Selection) -> list[str]:
    return list(selection.added or selection.selected)


def _named(ids: Sequence[str], rollouts: Mapping[str, Rollout]) -> str:
    known = [rollouts[each] for each in ids if each in rollouts]
    named = [
        f"{summary_of(each).removeprefix(MEMORIES) or each.name} (runs {runs_named(each)})"
        for each in known[:_MAX_SOURCES_NAMED]
    ]
    more = len(known) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])
