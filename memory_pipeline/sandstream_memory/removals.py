"""Remove rollouts from a memory, with everything that only they support."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from sandstream_bus.wire.memories import Rollout

from sandstream_memory.excerpts import encoded
from sandstream_memory.handbook import Sources
from sandstream_memory.layout import (
    MEMORY_FILE,
    RAW_FILE,
    RAW_MEMORIES,
    SELECTION_FILE,
    SESSIONS,
    SKILLS,
    SUMMARIES,
    SUMMARY_FILE,
    Files,
    is_editable,
    raw_path,
    rollout_path,
)
from sandstream_memory.pruned_texts import (
    is_only_of,
    pruned_handbook,
    said_no_more,
    supported_digest,
    without_said,
)
from sandstream_memory.rollouts import without_runs
from sandstream_memory.selection import (
    joined_raw_memories,
    selected_items,
    summary_of,
    without_selected,
)

_OF_ROLLOUTS = (SESSIONS, RAW_MEMORIES, SUMMARIES)
_PATH_HEADER = re.compile(rb"^rollout_path: (\S+)$", re.M)


def without_rollouts(
    files: Files, rollouts: Collection[Rollout], others: Collection[Rollout] = ()
) -> Files:
    """The files without these rollouts and what only they support.

    From a transcript, the lines of ``runs`` are removed; the raw memory and the summary are removed
    as a whole. What other rollouts support too stays, without naming the removed ones. ``others``
    are all rollouts that stay: a text may name them by a run or an earlier file, which the files do
    not show.

    Lines removed from the handbook are also removed from skills and notes. Once these rollouts were
    merged, the digest may mention them in any words, so it keeps only what others surely support,
    often nothing. The next merge writes it anew; until then a removed fact must not appear in the
    instructions of every run.
    """
    ids = {rollout.id for rollout in rollouts}
    left = _without_own_files(files, rollouts)
    of_others = [path for path in left if path.startswith(_OF_ROLLOUTS)]
    sources = Sources(rollouts, [each for each in others if each.id not in ids], of_others)
    was_merged = any(each.is_merged for each in rollouts) or any(
        item.get("rollout_id") in ids for item in selected_items(files)
    )
    _prune(left, sources, was_merged)
    if SELECTION_FILE in left:
        left[SELECTION_FILE] = without_selected(left, ids)
    if RAW_FILE in left:
        names = [_name_of_item(item) for item in selected_items(left)]
        left[RAW_FILE] = joined_raw_memories(left, names)
    return left


def _prune(files: Files, sources: Sources, was_merged: bool) -> None:
    before = _text(files, MEMORY_FILE) or ""
    after = pruned_handbook(before, sources)
    if before:
        files[MEMORY_FILE] = encoded(after)
    gone = said_no_more(before, after, sources)
    for path in [path for path in files if is_editable(path) and path != MEMORY_FILE]:
        text = _text(files, path)
        if text is None:
            continue
        if path == SUMMARY_FILE and (was_merged or after != before):
            files[path] = encoded(supported_digest(text, after, sources))
        elif path.startswith(SKILLS) and is_only_of(text, sources):
            del files[path]
        else:
            files[path] = encoded(without_said(text, sources, gone))


def _text(files: Files, path: str) -> str | None:
    try:
        return files[path].decode() if path in files else None
    except UnicodeDecodeError:
        return None


def _without_own_files(files: Files, rollouts: Collection[Rollout]) -> Files:
    left = dict(files)
    for rollout in rollouts:
        left.pop(raw_path(rollout.name), None)
        left.pop(summary_of(rollout), None)
        recording = rollout_path(rollout.name)
        if recording in left:
            left[recording] = without_runs(left[recording], rollout.runs)
            if not left[recording]:
                del left[recording]
    recordings = {rollout_path(rollout.name) for rollout in rollouts}
    for path in [path for path in left if path.startswith(SUMMARIES)]:
        header = _PATH_HEADER.search(left[path].partition(b"\n\n")[0])
        if header and header[1].decode("utf-8", "replace") in recordings:
            del left[path]  # a summary under an earlier slug
    return left


def _name_of_item(item: Mapping[str, object]) -> str:
    return str(item.get("rollout_path", "")).removeprefix(SESSIONS).removesuffix(".jsonl")
