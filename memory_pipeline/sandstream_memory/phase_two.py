"""Phase 2: an agent merges raw memories into the handbook, in its own workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandstream_bus.wire.memories import Rollout

from sandstream_memory.acceptance import Accepted, MergeRefused, accept
from sandstream_memory.layout import (
    MARKER_FILE,
    MEMORIES,
    MEMORY_FILE,
    RAW_FILE,
    SELECTION_FILE,
    SUMMARY_FILE,
    Files,
)
from sandstream_memory.prompts import prompt, with_extra
from sandstream_memory.selection import (
    Selection,
    raw_memories_file,
    selection_file,
    summary_of,
)

__all__ = [
    "AGENT_NAME",
    "PROMPT_VERSION",
    "Accepted",
    "MergeRefused",
    "accept",
    "instructions",
    "request_text",
    "workspace_files",
]

PROMPT_VERSION = "phase_two_v1"
AGENT_NAME = "memory-consolidator"


def instructions(extra_prompt: str | None = None) -> str:
    return with_extra(prompt(PROMPT_VERSION), extra_prompt)


def request_text(selection: Selection, rollouts: Mapping[str, Rollout]) -> str:
    """The rollouts that are new, retained and removed, listed by their summary files."""
    parts = [
        "Consolidate the memory in memories/ as your instructions describe.",
        f"Selected: {len(selection.selected)} rollouts, newest first, all in raw_memories.md.",
        _listed("Added (new or grown since the last consolidation)", selection.added, rollouts),
        _listed("Retained (merged before)", selection.retained, rollouts),
        _listed("Removed (no longer support anything)", selection.removed, rollouts),
    ]
    return "\n\n".join(parts)


def _listed(title: str, ids: Sequence[str], rollouts: Mapping[str, Rollout]) -> str:
    if not ids:
        return f"{title}: none"
    lines = [f"{title}: {len(ids)}"]
    for rollout_id in ids:
        rollout = rollouts.get(rollout_id)
        if rollout is None:
            lines.append(f"- {rollout_id!r} (its files are gone)")
            continue
        path = summary_of(rollout).removeprefix(MEMORIES) or "no summary"
        about = f"{rollout.updated_at or 'unknown'}, {rollout.terminal_state or 'unknown'}"
        lines.append(f"- {path} ({about})")
    return "\n".join(lines)


def workspace_files(
    files: Files, selection: Selection, rollouts: Mapping[str, Rollout], updated_at: str
) -> Files:
    """The files of the agent's workspace: the whole memory except the transcripts."""
    held = {path: data for path, data in files.items() if path.startswith(MEMORIES)}
    held.pop(MARKER_FILE, None)
    held.setdefault(MEMORY_FILE, b"")
    held.setdefault(SUMMARY_FILE, b"")
    held[RAW_FILE] = raw_memories_file(files, selection, rollouts)
    held[SELECTION_FILE] = selection_file(selection, rollouts, updated_at)
    return dict(sorted(held.items()))
