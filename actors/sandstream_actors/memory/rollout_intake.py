"""A run has ended: what it did becomes a line in the file of its rollout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.log import LogEvent
from sandstream_bus.memory_messages import ExtractRequested, MemoryChanged, MemoryState, Rollout
from sandstream_bus.memory_specs import MemoryPart, MemoryUse
from sandstream_bus.messages import DoneStatus, RunDone
from sandstream_bus.subjects import RunId
from sandstream_memory.layout import rollout_name, rollout_path
from sandstream_memory.rollouts import Terminal, appended, segment_line, without_runs

from sandstream_actors.memory.files import change, load_one, with_files, within_bounds
from sandstream_actors.memory.means import Means
from sandstream_actors.memory.oldest import without_oldest
from sandstream_actors.memory.telling import ask_extraction, tell
from sandstream_actors.run_state import RunState
from sandstream_actors.tracing.run_reading import read_run

logger = logging.getLogger(__name__)

KNOWN_WORKSPACES: Final = 32
"""So many of the last that used a memory are told of its changes; others see them when opened."""
_SHARE_OF_A_FILE: Final = 4
"""One rollout may have a quarter of the room of the whole memory."""
_STATES: Final[dict[DoneStatus, str]] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "max_turns": "max_turns_exceeded",
    "guardrail": "guardrail_tripped",
    "budget": "failed",
}


class _Segment(NamedTuple):
    """What is to be noted of a run."""

    run: str
    line: bytes
    updated_at: str
    terminal_state: str
    use: MemoryUse
    sandbox: str
    is_lasting: bool
    """The workspace is not closed with its run."""
    is_again: bool
    """The run had ended before."""


async def note(means: Means, run: RunId, part: MemoryPart) -> None:
    """Write the run down, once, and have what is worth remembering extracted."""
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
        return  # somebody removed it
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
        # somebody reopened it, and it ended once more
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
        scope=scope,  # whoever asked before may have known but a digest of a long name
        revision=state.revision + 1,
        use=segment.use,
        rollouts={**others, id: rollout},
        sandboxes=sandboxes,
    )
    state, tree = without_oldest(state, tree)
    return msgspec.structs.replace(state, tree=within_bounds(state, tree))


def with_workspace(known: Sequence[str], sandbox: str) -> list[str]:
    """The workspaces that have a memory, with one that was just used."""
    return [*(it for it in known if it != sandbox), sandbox][-KNOWN_WORKSPACES:]


async def _segment(means: Means, run: RunId, part: MemoryPart) -> _Segment | None:
    """From the head of the run's log, whichever of its events woke us. Beside the loop: a log may
    be long, and what was said in it too.
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
    """What a run still waited for when it ended."""
    if state.waiting is None:
        return []
    return [
        {"name": it.name, "call_id": it.call_id, "arguments": it.arguments}
        for it in state.waiting.approvals
    ]
