"""Finds memories, their changes and their files by what people type; says what is near if there is
none.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from sandstream_actors.memory.actor import CONSUMER
from sandstream_actors.memory.scope.pending_work import (
    has_given_up,
    is_pending,
    selection_of,
    unmerged,
)
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.bus import Bus
from sandstream_bus.wire.memories import MemoryState, Revision, Rollout
from sandstream_bus.wire.memory_specs import is_workspace_scope
from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.subjects import is_token

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.sandbox_choice import sandboxes_of
from sandstream.cli.terminal.render import one_line, shorten
from sandstream.client import Client

_MOST_NAMED = 3
_LONGEST_NAME = 60


class MemorySummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One memory as ``--json`` prints it."""

    scope: str
    revision: int
    rollouts: int
    runs: int
    files: int
    size_bytes: int
    changed_at: str = ""
    to_extract: int = 0
    """Rollouts with runs that are to be looked through."""
    given_up: int = 0
    """Rollouts whose extraction failed; they are retried only on request."""
    to_merge: int = 0
    """Rollouts whose raw memories, or whose removal, are not in the handbook yet."""
    merging: str = ""
    """The run that consolidates now."""
    merges: int = 0
    problems: list[str] = []
    workspaces: list[str] = []
    """Sandboxes that have it."""

    @property
    def is_pending(self) -> bool:
        return bool(self.to_extract or self.to_merge or self.merging)


def summary_of(state: MemoryState) -> MemorySummary:
    rollouts = list(state.rollouts.values())
    selection = selection_of(state)
    times = [it.updated_at for it in rollouts] + [it.at for it in state.history]
    problems = [f"rollout {it.id}: {it.problem}" for it in rollouts if it.problem]
    if state.merge_problem:
        problems.append(f"consolidation: {state.merge_problem}")
    return MemorySummary(
        scope=state.scope,
        revision=state.revision,
        rollouts=len(rollouts),
        runs=sum(len(it.runs) for it in rollouts),
        files=len(state.tree),
        size_bytes=sum(ref.size for ref in state.tree.values()),
        changed_at=max(times, default=""),
        to_extract=sum(map(is_pending, rollouts)),
        given_up=sum(map(has_given_up, rollouts)),
        to_merge=len(unmerged(state, selection)) + len(selection.removed),
        merging=state.merging.run if state.merging is not None else "",
        merges=state.merges,
        problems=problems,
        workspaces=state.sandboxes,
    )


async def all_memories(bus: Bus) -> list[MemoryState]:
    """All memories, the latest change first; without those that were only requested."""
    read = [(await bus.memories.read(scope)).state for scope in await bus.memories.scopes()]
    found = [it for it in read if it.revision or it.rollouts]
    return sorted(found, key=lambda it: summary_of(it).changed_at, reverse=True)


async def unread_ends(bus: Bus) -> int:
    """How many messages no memory actor has read: ends of runs, which may belong to any memory."""
    info = await bus.topology.consumer_info(bus.connection, CONSUMER)
    return 0 if info is None else int(info["num_pending"] + info["num_ack_pending"])


async def memory_named(client: Client, name: str) -> MemoryState:
    """The memory of that name, or that of the workspace of a sandbox or of a run."""
    stored = await client.bus.memories.read(name)
    if stored.sequence:
        return stored.state
    scopes = await client.bus.memories.scopes()
    found = await _of_workspace(client, name, scopes)
    if len(found) == 1:
        return (await client.bus.memories.read(found[0])).state
    if found:
        raise CliError(Exit.USAGE, f"{_quoted(name)} has several memories: {_named(found)}")
    raise CliError(
        Exit.NOT_FOUND,
        f"there is no memory {_quoted(name)}{_near(name, scopes)}; "
        "`sandstream memory ls --all` lists all",
    )


async def _of_workspace(client: Client, name: str, scopes: Sequence[str]) -> list[str]:
    """The memories of a sandbox, or of the sandboxes of a run."""
    if not is_token(name):
        return []
    sandboxes = [name]
    events = await client.bus.sandboxes.read(name)
    records = [SandboxRecord.of(name, events)] if events else []
    if not records:
        started = next(
            (it.event for it in await client.events(name) if isinstance(it.event, RunStarted)),
            None,
        )
        if started is not None:
            found = await sandboxes_of(client.bus, name, started)
            sandboxes += [it.id for it in found]
            records = [it.record for it in found]
    own = [
        scope for scope in scopes if is_workspace_scope(scope) and scope.split(":")[1] in sandboxes
    ]
    mounted = [scope for record in records for scope in record.memories]
    return list(dict.fromkeys(own + [scope for scope in mounted if scope in scopes]))


def revision_named(state: MemoryState, number: int | None) -> Revision:
    """The change of that number, or the last one."""
    if not state.history:
        raise CliError(Exit.NOT_FOUND, f"memory {_quoted(state.scope)} has no changes yet")
    if number is None:
        return state.history[-1]
    for revision in state.history:
        if revision.number == number:
            return revision
    numbers = sorted((it.number for it in state.history), key=lambda it: (abs(it - number), it))
    near = ", ".join(map(str, sorted(numbers[:_MOST_NAMED])))
    raise CliError(
        Exit.NOT_FOUND,
        f"memory {_quoted(state.scope)} has no change {number}; near it: {near}; "
        f"`sandstream memory diff {_quoted(state.scope)} --list` lists all that are kept",
    )


class FoundPath(NamedTuple):
    paths: list[str]
    """Canonical ones: the file, or all files of the directory."""
    is_file: bool


def path_named(state: MemoryState, path: str) -> FoundPath:
    """The file or the directory of that name."""
    wanted = _canonical(state, path)
    for candidate in (wanted, f"memories/{wanted}"):
        if candidate in state.tree:
            return FoundPath([candidate], is_file=True)
        below = [it for it in sorted(state.tree) if it.startswith(f"{candidate}/")]
        if below:
            return FoundPath(below, is_file=False)
    known = [short_path(it) for it in sorted(state.tree)]
    raise CliError(
        Exit.NOT_FOUND,
        f"memory {_quoted(state.scope)} has no file {_quoted(path)}{_near(path, known)}; "
        f"`sandstream memory show {_quoted(state.scope)} --all` lists all",
    )


def _canonical(state: MemoryState, path: str) -> str:
    """The path without empty parts, below the canonical directories instead of the layout's."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    clean = "/".join(parts)
    use = state.use
    for own, canonical in ((use.memories_dir, "memories"), (use.sessions_dir, "sessions")):
        if clean == own or clean.startswith(f"{own}/"):
            return canonical + clean[len(own) :]
    return clean


def short_path(path: str) -> str:
    """The path as people type it: without the memory's directory."""
    return path.removeprefix("memories/")


def rollout_named(state: MemoryState, rollout: str) -> Rollout:
    found = state.rollouts.get(rollout)
    if found is not None:
        return found
    named = [it for it in state.rollouts.values() if it.name == rollout]
    if named:
        return named[0]
    raise CliError(
        Exit.NOT_FOUND,
        f"memory {_quoted(state.scope)} has no rollout {_quoted(rollout)}"
        f"{_near(rollout, state.rollouts)}; `sandstream memory show SCOPE --all` lists all",
    )


def check_run(state: MemoryState, run: str) -> None:
    """Does the memory know the run? Also one that only changed it, or that was removed before."""
    runs = [it for rollout in state.rollouts.values() for it in rollout.runs]
    runs += [it for change in state.history if change.kind == "edit" for it in change.runs]
    if run in runs or run in state.forgotten:
        return
    raise CliError(
        Exit.NOT_FOUND,
        f"memory {_quoted(state.scope)} has nothing of run {_quoted(run)}{_near(run, runs)}; "
        "`sandstream memory show SCOPE --all` lists all",
    )


# --- words ----------------------------------------------------------------------------------------


def _near(name: str, known: Iterable[str]) -> str:
    """The known names that were perhaps meant, for a message."""
    lower = name.lower()
    names = {it.lower(): it for it in known}
    near = difflib.get_close_matches(lower, names, n=_MOST_NAMED, cutoff=0.6)
    near += [it for it in names if lower in it and it not in near]
    near = [names[it] for it in near]
    return f" (did you mean {_named(near[:_MOST_NAMED])}?)" if near else ""


def _named(names: Iterable[str]) -> str:
    return ", ".join(_quoted(it) for it in names)


def _quoted(name: str) -> str:
    """Foreign names are short and do not steer the terminal."""
    return f"'{shorten(one_line(name), _LONGEST_NAME)}'"
