"""Select the raw memories to consolidate, and compare with the last selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from sandstream_bus.wire.memories import Rollout

from sandstream_memory.excerpts import decoded, encoded
from sandstream_memory.layout import (
    MEMORIES,
    SELECTION_FILE,
    Files,
    raw_path,
    rollout_path,
    summary_path,
)

MAX_RAW_FILE_BYTES = 4 * 1024 * 1024
"""The limit for the file of all raw memories; those that do not fit exist as single files."""
_VERSION = 1
_NEVER = datetime.min.replace(tzinfo=UTC)


class Selection(msgspec.Struct, frozen=True):
    """Rollout ids, newest first."""

    selected: list[str]
    added: list[str] = []
    """Selected, and new or grown since the last consolidation."""
    retained: list[str] = []
    """Selected and unchanged."""
    removed: list[str] = []
    """Selected the last time, but not any more."""


def age_key(rollout: Rollout) -> tuple[datetime, str]:
    """Sorts rollouts oldest first; those of unknown age are older than all others."""
    try:
        at = datetime.fromisoformat(rollout.updated_at)
    except ValueError:
        return (_NEVER, rollout.id)
    return (at if at.tzinfo else at.replace(tzinfo=UTC), rollout.id)


def has_raw_memory(rollout: Rollout) -> bool:
    return bool(rollout.slug or rollout.summary_file)


def summary_of(rollout: Rollout) -> str:
    """The canonical path of its summary; empty if it has none."""
    if rollout.summary_file:
        return MEMORIES + rollout.summary_file.removeprefix(MEMORIES)
    return summary_path(rollout.name, rollout.slug) if rollout.slug else ""


def select(state_rollouts: Mapping[str, Rollout], previous: Sequence[str], limit: int) -> Selection:
    """Select the newest rollouts that have a raw memory."""
    usable = [each for each in state_rollouts.values() if has_raw_memory(each)]
    newest_first = sorted(usable, key=age_key, reverse=True)[: max(limit, 0)]
    selected = [each.id for each in newest_first]
    before = set(previous)
    added = [each.id for each in newest_first if each.id not in before or not each.is_merged]
    return Selection(
        selected=selected,
        added=added,
        retained=[each for each in selected if each not in added],
        removed=[each for each in previous if each not in selected],
    )


def selection_file(selection: Selection, rollouts: Mapping[str, Rollout], updated_at: str) -> bytes:
    """A record of what was consolidated, for the next time and for people."""
    items = [_item(rollouts[each]) for each in selection.selected if each in rollouts]
    return _encoded({"version": _VERSION, "updated_at": updated_at, "selected": items})


def _item(rollout: Rollout) -> dict[str, str]:
    return {
        "rollout_id": rollout.id,
        "updated_at": rollout.updated_at,
        "rollout_path": rollout_path(rollout.name),
        "rollout_summary_file": summary_of(rollout).removeprefix(MEMORIES),
        "terminal_state": rollout.terminal_state,
    }


def _encoded(selection: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(selection), indent=2) + b"\n"


def selected_items(files: Files) -> list[dict[str, Any]]:
    """The entries of a selection file; none if it cannot be read."""
    try:
        found = msgspec.json.decode(files.get(SELECTION_FILE, b""))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    items = found.get("selected") if isinstance(found, dict) else None
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def without_selected(files: Files, rollout_ids: set[str]) -> bytes:
    """The selection file without these entries; empty if it cannot be read."""
    items = selected_items(files)
    if not items:
        return b""
    found = msgspec.json.decode(files[SELECTION_FILE])
    return _encoded(
        found | {"selected": [e for e in items if e.get("rollout_id") not in rollout_ids]}
    )


def raw_memories_file(files: Files, selection: Selection, rollouts: Mapping[str, Rollout]) -> bytes:
    """The selected raw memories in one file, newest first."""
    names = [rollouts[each].name for each in selection.selected if each in rollouts]
    return joined_raw_memories(files, names)


def joined_raw_memories(files: Files, names: Sequence[str]) -> bytes:
    parts = ["# Raw memories, newest first\n"]
    room = MAX_RAW_FILE_BYTES
    for name in names:
        data = files.get(raw_path(name))
        if data is None:
            continue
        where = raw_path(name).removeprefix(MEMORIES)
        room -= len(data)
        body = decoded(data).strip() if room >= 0 else "(no room here: read that file)"
        parts.append(f"\n## {where}\n\n{body}\n")
    if len(parts) == 1:
        parts.append("\n(none)\n")
    return encoded("".join(parts))
