"""Intake of a run that has ended: append it as a line to the file of its rollout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.memories import ExtractRequested, MemoryChanged, MemoryState, Rollout
from sandstream_bus.wire.memory_specs import MemoryPart, MemoryUse
from sandstream_bus.wire.messages import DoneStatus, RunDone
from sandstream_bus.wire.subjects import RunId
from sandstream_memory.layout import rollout_name, rollout_path
from sandstream_memory.rollouts import Terminal, appended, segment_line, without_runs

from sandstream_actors.memory.context import Means
from sandstream_actors.memory.eviction import without_oldest
from sandstream_actors.memory.outbox import ask_extraction, tell
from sandstream_actors.memory.scope.files import change, load_one, with_files, within_bounds
from sandstream_actors.run.observed_log import read_run
from sandstream_actors.run.state import RunState

logger = logging.getLogger(__name__)

KNOWN_WORKSPACES: Final = 32
"""How many recent workspaces are told about changes; others get them when they are opened."""
_SHARE_OF_A_FILE: Final = 4
"""One rollout may use up to a quarter of the memory's size limit."""
_STATES: Final[dict[DoneStatus, str]] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "max_turns": "max_turns_exceeded",
    "guardrail": "guardrail_tripped",
    "budget": "failed",
}


class _Segment(NamedTuple):
    """The record of one run."""

    run: str
    line: bytes
    updated_at: str
    terminal_state: str
    use: MemoryUse
    sandbox: str
    is_lasting: bool
    """Whether the workspace outlives its run."""
    is_again: bool
    """Whether the run had ended before and was reopened."""


async def note(means: Means, run: RunId, part: MemoryPart) -> None:
    """Record the run once, and request an extraction."""
    segment = await _segment(means, run, part)
    if segment is None:
        logger.warning(
            "a run cannot be remembered: its log cannot be read any more",
            extra={"run": run, "scope": part.scope},
        )
        return

    async def decide(state: MemoryState) -> MemoryState | None:
        return None if run in state.forgotten else await _noted(means, state, part, segment)

    crashpoint("memory.before_note")
    state = await change(means.bus, part.scope, decide)
    crashpoint("memory.after_note")
    rollout = state.rollouts.get(part.id)
    if rollout is None or run not in rollout.runs:
        return  # it was removed
    cause = f"noted:{run}:{segment.updated_at}"
    request = ExtractRequested(rollout=part.id, runs=rollout.runs.index(run) + 1)
    await ask_extraction(means.bus, part.scope, request, cause=cause)
    changed = MemoryChanged(revision=state.revision, kind="noted", runs=[run], rollout=part.id)
    await tell(means.bus, part.scope, changed, cause=cause)


async def _noted(
    means: Means, state: MemoryState, part: MemoryPart, segment: _Segment
) -> MemoryState | None:
    scope, id = part.scope, part.id
    rollout = state.rollouts.get(id) or Rollout(id=id, name=rollout_name(id))
    path = rollout_path(rollout.name)
    existing = await load_one(means.bus, state.scope, state.tree, path)
    runs = list(rollout.runs)
    extracted = rollout.extracted
    if segment.run in runs:
        if not segment.is_again or segment.updated_at.encode() in existing:
            return None
        # the run was reopened and has ended once more
        extracted = min(extracted, runs.index(segment.run))
        runs.remove(segment.run)
        existing = without_runs(existing, [segment.run])
    limit = max(state.use.max_bytes, segment.use.max_bytes) // _SHARE_OF_A_FILE
    data = appended(existing, segment.line, max_bytes=limit)
    tree = await with_files(means.bus, state.scope, state.tree, {path: data})
    rollout = msgspec.structs.replace(
        rollout,
        runs=[*runs, segment.run],
        extracted=extracted,
        updated_at=segment.updated_at,
        terminal_state=segment.terminal_state,
        problem="",
    )
    others = {key: it for key, it in state.rollouts.items() if key != id}
    sandboxes = state.sandboxes
    if segment.is_lasting:
        sandboxes = with_workspace(sandboxes, segment.sandbox)
    state = msgspec.structs.replace(
        state,
        scope=scope,  # an earlier request may have known only the digest of a long name
        revision=state.revision + 1,
        use=segment.use,
        rollouts={**others, id: rollout},
        sandboxes=sandboxes,
    )
    state, tree = without_oldest(state, tree)
    return msgspec.structs.replace(state, tree=within_bounds(state, tree))


def with_workspace(known: Sequence[str], sandbox: str) -> list[str]:
    """The workspaces that use a memory, most recently used last."""
    return [*(it for it in known if it != sandbox), sandbox][-KNOWN_WORKSPACES:]


async def _segment(means: Means, run: RunId, part: MemoryPart) -> _Segment | None:
    """Read the run's whole log, whichever event was delivered. Runs in a thread, because a log can
    be long.
    """
    events, _ = await read_run(means.bus, run)
    return await asyncio.to_thread(_made_of, means, run, part, events)


def _made_of(means: Means, run: RunId, part: MemoryPart, events: list[LogEvent]) -> _Segment | None:
    state = RunState.of(run, events)
    agent = state.agents.get(state.done.agent) if state.done is not None else None
    if state.done is None or agent is None or agent.memory is None or agent.sandbox is None:
        return None
    done = state.done
    updated_at = next(it.stored.time for it in reversed(events) if it.event is done)
    terminal = _terminal(done)
    line = segment_line(
        rollout_id=part.id,
        run=run,
        updated_at=updated_at,
        input=state.own_input,
        items=state.said,
        interruptions=_open_questions(state),
        terminal=terminal,
        final_output=msgspec.json.decode(done.output) if done.output else None,
        scrub=means.scrub,
    )
    return _Segment(
        run=run,
        line=line,
        updated_at=updated_at,
        terminal_state=terminal.state,
        use=agent.memory,
        sandbox=state.sandbox_id(agent),
        is_lasting=not agent.sandbox.owned or agent.sandbox.keep,
        is_again=state.dones > 1,
    )


def _terminal(done: RunDone) -> Terminal:
    return Terminal(
        state=_STATES[done.status],
        exception_type=done.error.code if done.error else None,
        exception_message=done.error.message if done.error else None,
        has_final_output=bool(done.output),
    )


def _open_questions(state: RunState) -> list[Any]:
    """The approvals that a run still waited for when it ended."""
    if state.waiting is None:
        return []
    return [
        {"name": it.name, "call_id": it.call_id, "arguments": it.arguments}
        for it in state.waiting.approvals
    ]
