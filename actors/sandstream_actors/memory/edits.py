"""Merge in what an agent or a person changed in a memory's files in a workspace."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.memories import (
    EditRequested,
    FileEdit,
    MemoryChanged,
    MemoryFailed,
    MemoryState,
    Revision,
)
from sandstream_memory.layout import Files, is_editable
from sandstream_memory.limits import within_limits
from sandstream_memory.three_way_merge import merge_files

from sandstream_actors.memory.authors import Authors, authors_of
from sandstream_actors.memory.context import Means
from sandstream_actors.memory.outbox import sync_workspaces, tell
from sandstream_actors.memory.rollout_intake import with_workspace
from sandstream_actors.memory.scope.files import (
    change,
    editable,
    load,
    revised,
    tree_at,
    with_files,
)

MAX_EDIT_BYTES: Final = 1024 * 1024
"""The limit for one file."""
_MOST_NOTES: Final = 20
_KEPT_EDITS: Final = 256
"""How many edits are remembered as done after they leave the history. Redeliveries come sooner."""


class _Refused(Exception):
    """The edit cannot be accepted."""


async def edit(means: Means, scope: str, request: EditRequested, sequence: int) -> None:
    """Merge the edit into the current memory. Repeating an edit changes nothing."""
    note = f"message {sequence}"
    notes: list[str] = []

    async def decide(state: MemoryState) -> MemoryState | None:
        notes.clear()
        if sequence in state.edits or _in_history(state, note) is not None:
            return None  # a redelivery; the edit may have been undone since
        return await _edited(means, state, request, sequence, notes)

    crashpoint("memory.before_edit")
    try:
        state = await change(means.bus, scope, decide)
    except _Refused as error:
        notes = [str(error)]
        state = (await means.bus.memories.read(scope)).state
    crashpoint("memory.after_edit")
    revision = _in_history(state, note)
    for number, problem in enumerate(_bounded(notes) if revision is None else revision.remarks):
        failed = MemoryFailed(step="edit", attempt=1, error=problem, run=request.run, is_final=True)
        await tell(means.bus, scope, failed, cause=f"edit:{sequence}:{number}")
    if revision is not None:
        changed = MemoryChanged(revision=revision.number, kind="edit", runs=revision.runs)
        await tell(means.bus, scope, changed, cause=f"edit:{sequence}")
        await sync_workspaces(means.bus, state)


def _bounded(notes: list[str]) -> list[str]:
    more = len(notes) - _MOST_NOTES
    return [*notes[:_MOST_NOTES], *([f"and {more} more"] if more > 0 else [])]


def _in_history(state: MemoryState, note: str) -> Revision | None:
    return next((it for it in state.history if it.kind == "edit" and it.note == note), None)


async def _edited(
    means: Means, state: MemoryState, request: EditRequested, sequence: int, notes: list[str]
) -> MemoryState | None:
    authors = await authors_of(means.bus, state, request)
    _check(state, request, authors)
    bus = means.bus
    base = await load(bus, state.scope, await tree_at(bus, state, request.base))
    head = await load(bus, state.scope, editable(state.tree))
    theirs = _applied(means, base, request.edits, notes)
    merged = await asyncio.to_thread(merge_files, base, head, theirs, notes)
    merged, beyond = within_limits(head, merged, state.use.max_bytes)
    notes += [f"of the edit from {request.sandbox}: {it}" for it in beyond]
    if merged == head:
        return None if notes or not state.revision else _with_edit(state, sequence)
    changes: dict[str, bytes | None] = dict.fromkeys(head.keys() - merged.keys())
    changes |= {path: data for path, data in merged.items() if head.get(path) != data}
    tree = await with_files(bus, state.scope, state.tree, changes)
    state = msgspec.structs.replace(
        _with_edit(state, sequence),
        sandboxes=with_workspace(state.sandboxes, request.sandbox),
    )
    return await revised(
        bus,
        state,
        tree,
        "edit",
        by=request.run or request.sandbox,
        runs=[run for run in authors.runs if run not in state.forgotten],
        note=f"message {sequence}",
        remarks=_bounded(notes),
    )


def _with_edit(state: MemoryState, sequence: int) -> MemoryState:
    return msgspec.structs.replace(state, edits=[*state.edits, sequence][-_KEPT_EDITS:])


def _check(state: MemoryState, request: EditRequested, authors: Authors) -> None:
    """Refuse an edit that would bring back removed content."""
    gone = [run for run in authors.runs if run in state.forgotten]
    if gone and (authors.is_told or len(gone) == len(authors.runs)):
        raise _Refused(
            f"the edit from {request.sandbox} was made by a run that was removed from the memory: "
            f"{gone[0]}"
        )
    if any(it.kind == "remove" and it.number > request.base for it in state.history):
        raise _Refused(
            f"the edit from {request.sandbox} was made on revision {request.base}, of which parts "
            "were removed since; it would bring them back"
        )
    if request.base > state.revision:
        raise _Refused(
            f"the edit from {request.sandbox} was made on revision {request.base}, but the memory "
            f"is at {state.revision}: it was removed since, and starts again"
        )


def _applied(means: Means, base: Files, edits: list[FileEdit], notes: list[str]) -> Files:
    """The base with the acceptable edits applied."""
    files = dict(base)
    for it in edits:
        problem = _problem(it)
        if problem:
            notes.append(f"{it.path[:200]!r}: {problem}")
        elif it.data is None:
            files.pop(it.path, None)
        else:
            files[it.path] = means.scrub(it.data.decode()).encode()
    return files


def _problem(edit: FileEdit) -> str:
    if not is_editable(edit.path):
        return "it is not an editable file of a memory"
    if edit.data is None:
        return ""
    if len(edit.data) > MAX_EDIT_BYTES:
        return f"it has {len(edit.data)} bytes; at most {MAX_EDIT_BYTES} are kept"
    try:
        edit.data.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return ""
