"""Decide which files of a consolidation's workspace to accept.

The merging agent has read untrusted text, so its files are untrusted too: only files that it may
change are accepted, within limits and without secrets. A block that it dropped although its sources
still count is kept under ``# Superseded``; a block that names no source is given one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from sandstream_bus.wire.memories import Rollout

from sandstream_memory.clashes import without_clashes
from sandstream_memory.excerpts import Scrub, encoded, shortened_bytes
from sandstream_memory.layout import (
    MARKER_FILE,
    MEMORY_FILE,
    SKILLS,
    SUMMARY_FILE,
    Files,
    is_editable,
)
from sandstream_memory.limits import (
    MAX_OTHER_BYTES,
    MAX_OTHER_FILES,
    MAX_SUMMARY_BYTES,
    most_bytes,
)
from sandstream_memory.selection import Selection
from sandstream_memory.supersession import completed_handbook

_SKILL = re.compile(r"[a-z0-9-]{1,64}/.+", re.S)
_SUMMARY_NOTE = "\n\n[... the middle of this digest was left out: it was too long ...]\n\n"


class MergeRefused(ValueError):
    """The files of a consolidation cannot be accepted."""


class Accepted(msgspec.Struct, frozen=True):
    files: Files
    """All files of the memory after the merge."""
    notes: list[str]
    """Changes that were not accepted unaltered, and why."""


def accept(
    before: Files,
    after: Files,
    *,
    selection: Selection,
    rollouts: Mapping[str, Rollout],
    scrub: Scrub,
    max_bytes: int,
) -> Accepted:
    """The memory after the merge, from the workspace files before and after it."""
    notes: list[str] = []
    result = {path: data for path, data in before.items() if not is_editable(path)}
    result.pop(MARKER_FILE, None)
    _note_what_is_not_taken(before, after, notes)
    result |= _others(before, after, scrub, notes)
    has_to_say = bool(selection.selected)
    handbook = _text(after, MEMORY_FILE, has_to_say)
    summary = scrub(_text(after, SUMMARY_FILE, has_to_say))
    limit = most_bytes(MEMORY_FILE, max_bytes)
    whole, more_notes = completed_handbook(
        _old_text(before), scrub(handbook), selection=selection, rollouts=rollouts, max_bytes=limit
    )
    notes += more_notes
    result[MEMORY_FILE] = encoded(whole)
    if len(result[MEMORY_FILE]) > limit:
        raise MergeRefused(
            f"{MEMORY_FILE} has {len(result[MEMORY_FILE])} bytes, more than the {limit} allowed: "
            "it must be condensed"
        )
    result[SUMMARY_FILE] = encoded(shortened_bytes(summary, MAX_SUMMARY_BYTES, _SUMMARY_NOTE))
    if len(encoded(summary)) > MAX_SUMMARY_BYTES:
        notes.append(f"{SUMMARY_FILE} was cut to {MAX_SUMMARY_BYTES} bytes")
    total = sum(len(data) for path, data in result.items() if is_editable(path))
    if total > max_bytes:
        raise MergeRefused(f"the memory has {total} bytes, more than the {max_bytes} allowed")
    laid_out, clashes = without_clashes(result)
    return Accepted(laid_out, notes + clashes)


def _text(files: Files, path: str, has_to_say: bool) -> str:
    try:
        text = files.get(path, b"").decode()
    except UnicodeDecodeError as error:
        raise MergeRefused(f"{path} is not UTF-8: {error}") from error
    if has_to_say and not text.strip():
        raise MergeRefused(f"{path} is empty or missing after the merge")
    return text


def _old_text(before: Files) -> str:
    return before.get(MEMORY_FILE, b"").decode("utf-8", "replace")


def _note_what_is_not_taken(before: Files, after: Files, notes: list[str]) -> None:
    for path in sorted({*before, *after}):
        if is_editable(path) or path == MARKER_FILE or before.get(path) == after.get(path):
            continue
        if path in before:
            notes.append(f"{path} is made by the pipeline: its change was not taken over")
        else:
            notes.append(f"{path!r} is not a file of a memory: it was not accepted")


def _others(before: Files, after: Files, scrub: Scrub, notes: list[str]) -> Files:
    """The accepted skills and notes."""
    taken: Files = {}
    for path in sorted(after):
        if not is_editable(path) or path in (MEMORY_FILE, SUMMARY_FILE):
            continue
        problem = _problem(path, after[path])
        if problem is None and len(taken) >= MAX_OTHER_FILES:
            problem = f"there are more than {MAX_OTHER_FILES} files"
        if problem is None:
            taken[path] = encoded(scrub(after[path].decode()))
            continue
        notes.append(f"{path} was not taken over: {problem}")
        if path in before:
            taken[path] = before[path]
    gone = [path for path in before if is_editable(path) and path not in after]
    notes += [f"{path} was deleted" for path in sorted(gone)]
    return taken


def _problem(path: str, data: bytes) -> str | None:
    if path.startswith(SKILLS) and not _SKILL.fullmatch(path.removeprefix(SKILLS)):
        return "a skill's directory has 1 to 64 of a-z, 0-9 and '-'"
    if len(data) > MAX_OTHER_BYTES:
        return f"it has {len(data)} bytes, more than the {MAX_OTHER_BYTES} allowed"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return None
