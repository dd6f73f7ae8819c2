"""Memories without some rollouts, and without what only they support."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from sandstream_bus.memory_messages import Rollout

from sandstream_memory.bounding import encoded
from sandstream_memory.handbook import Sources, cited_files, sections
from sandstream_memory.layout import (
    MEMORY_FILE,
    RAW_FILE,
    RAW_MEMORIES,
    SELECTION_FILE,
    SESSIONS,
    SUMMARIES,
    SUMMARY_FILE,
    Files,
    raw_path,
    rollout_path,
)
from sandstream_memory.rollouts import without_runs
from sandstream_memory.selection import (
    joined_raw_memories,
    selected_items,
    summary_of,
    without_selected,
)

_DEEPEST = 6
_OF_ROLLOUTS = (SESSIONS, RAW_MEMORIES, SUMMARIES)
_PATH_HEADER = re.compile(rb"^rollout_path: (\S+)$", re.M)


def without_rollouts(files: Files, rollouts: Collection[Rollout]) -> Files:
    """The files without these rollouts and what only they support.

    Of a recording, the lines of ``runs`` go; the raw memory and the summary go as a whole. What
    other rollouts support too stays, without naming these.
    """
    left = _without_own_files(files, rollouts)
    others = [path for path in left if path.startswith(_OF_ROLLOUTS)]
    sources = Sources(rollouts, others)
    if (data := left.get(MEMORY_FILE)) is not None:
        left[MEMORY_FILE] = _pruned(data, sources, 1)
    if (data := left.get(SUMMARY_FILE)) is not None:
        left[SUMMARY_FILE] = _pruned(data, sources, _DEEPEST + 1)
    ids = {rollout.id for rollout in rollouts}
    if SELECTION_FILE in left:
        left[SELECTION_FILE] = without_selected(left, ids)
    if RAW_FILE in left:
        names = [_name_of_item(item) for item in selected_items(left)]
        left[RAW_FILE] = joined_raw_memories(left, names)
    return left


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
            del left[path]  # of an earlier slug
    return left


def _name_of_item(item: Mapping[str, object]) -> str:
    return str(item.get("rollout_path", "")).removeprefix(SESSIONS).removesuffix(".jsonl")


# --- what only they support -----------------------------------------------------------------------


def _pruned(data: bytes, sources: Sources, level: int) -> bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    lines = _pruned_lines(text.split("\n"), sources, level)
    return encoded("\n".join(lines))


def _pruned_lines(lines: list[str], sources: Sources, level: int) -> list[str]:
    """Without the sections, then without the lines, that name only rollouts of ``sources``."""
    if level > _DEEPEST:
        return _without_lines(lines, sources)
    kept: list[str] = []
    for section in sections(lines, level):
        if section.level != level:
            kept += _pruned_lines(section.lines, sources, level + 1)
        elif not _names_only_these("\n".join(section.lines), sources):
            kept.append(section.lines[0])
            kept += _pruned_lines(section.lines[1:], sources, level + 1)
    return kept


def _names_only_these(text: str, sources: Sources) -> bool:
    return bool(sources.of(text)) and not _names_others(text, sources)


def _names_others(text: str, sources: Sources) -> bool:
    return any(sources.is_of_others(path) for path in cited_files(text))


def _without_lines(lines: list[str], sources: Sources) -> list[str]:
    kept: list[str] = []
    dropped_indent: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if dropped_indent is not None:
            is_below = bool(line.strip()) and indent > dropped_indent
            if is_below and not _names_others(line, sources):
                continue
            dropped_indent = None
        if _names_only_these(line, sources):
            dropped_indent = indent
            continue
        kept.append(_without_names(line, sources))
    return kept


def _without_names(line: str, sources: Sources) -> str:
    """A line that others support too: it names these no more."""
    for path in cited_files(line):
        if sources.of_file(path):
            line = re.sub(rf"`?{re.escape(path)}`?(?:\s*[,;])?\s*", "", line)
    return line
