"""Start the run of a phase: an ordinary run on the bus, traced, budgeted, cancellable.

The run takes its tracing settings from the run that it was started for and belongs to the same
trace. It uses the same harness pool, and so the same model provider, while that pool is served.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.runs import Conflict
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.memories import MemoryState, Merge, Rollout
from sandstream_bus.wire.memory_specs import MemoryPart, MemoryUse, PhaseModel
from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.sandboxes import PlanTree, SandboxSpec, SandboxUse, WorkspacePlan
from sandstream_bus.wire.specs import (
    AgentSpec,
    Budget,
    GraphSpec,
    OutputSpec,
    RunOptions,
    ToolSpec,
)
from sandstream_bus.wire.subjects import RunId
from sandstream_memory import phase_one, phase_two
from sandstream_memory.layout import Files
from sandstream_memory.selection import Selection

from sandstream_actors.memory.context import Means
from sandstream_actors.run.budgets import with_deadline
from sandstream_actors.run.headers import trace_header
from sandstream_actors.run.observed_log import read_run
from sandstream_actors.run.output_items import user_message
from sandstream_actors.run.sandbox_tools import APPLY_PATCH, EXEC_COMMAND, WRITE_STDIN
from sandstream_actors.run.state import RunState

EXTRACTION_BUDGET: Final = Budget(turns=1, seconds=900)
CONSOLIDATION_S: Final = 3600.0
CALLS_PER_TURN: Final = 8
_FILE_MODE: Final = 0o644
_NO_HOST: Final = "memory"
"""The host of phases that use no model object of the user: they need no tool host."""


class HostGone(Exception):
    """The model is an object in a process that is gone."""


class Origin(NamedTuple):
    """The run from which a phase takes its settings."""

    run: str
    use: MemoryUse
    pool: str
    """Empty if unknown."""
    traced: bool = True
    trace_contents: bool = True
    group_id: str | None = None
    traceparent: str | None = None


async def origin_of(bus: Bus, state: MemoryState, run: str) -> Origin:
    """Read it from the run's log, or from the scope alone if that log has expired."""
    events, _ = await read_run(bus, run)
    known = RunState.of(RunId(run), events)
    if known.started is None:
        return Origin(run, state.use, "")
    agent = known.agents.get(known.agent_name)
    return Origin(
        run=run,
        use=(agent.memory if agent is not None else None) or state.use,
        pool=known.places.pool,
        traced=known.options.traced,
        trace_contents=known.options.trace_contents,
        group_id=known.options.group_id,
        traceparent=trace_header(known),
    )


def last_run(state: MemoryState) -> str:
    """The run that the scope's settings come from; empty if all runs were removed."""
    latest = max(state.rollouts.values(), key=lambda it: it.updated_at, default=None)
    return latest.runs[-1] if latest is not None and latest.runs else ""


# --- phase 1 --------------------------------------------------------------------------------------


async def start_extraction(
    means: Means, state: MemoryState, rollout: Rollout, transcript: bytes
) -> None:
    """Start the run that ``rollout.extracting`` names, unless it was started already."""
    origin = await origin_of(means.bus, state, rollout.runs[-1])
    agent = AgentSpec(
        name=phase_one.AGENT_NAME,
        instructions=phase_one.instructions(origin.use.extra_prompt),
        output=OutputSpec(
            name=phase_one.OUTPUT_NAME,
            schema=Raw(msgspec.json.encode(phase_one.OUTPUT_SCHEMA)),
            strict=True,
            validated=False,
        ),
        **_model(origin.use.phase_one),
    )
    options = _options(
        origin,
        name="Memory: extraction",
        max_turns=1,
        budget=EXTRACTION_BUDGET,
        part=MemoryPart(
            scope=state.scope,
            step="extract",
            id=rollout.id,
            attempt=rollout.attempt,
            origin=origin.run,
        ),
    )
    text = phase_one.request_text(transcript)
    await _start(means, RunId(rollout.extracting), agent, options, text, origin)


# --- phase 2 --------------------------------------------------------------------------------------


async def start_consolidation(
    means: Means, state: MemoryState, merge: Merge, selection: Selection, files: Files
) -> None:
    """Start the run of this merge, unless it was started already. ``files``: its workspace."""
    origin = await origin_of(means.bus, state, last_run(state))
    use = state.use
    tree = await means.store.add_files(
        [(path, data, _FILE_MODE) for path, data in sorted(files.items())]
    )
    provider, node = await means.place()
    agent = AgentSpec(
        name=phase_two.AGENT_NAME,
        instructions=phase_two.instructions(use.extra_prompt),
        tools=[_built_in(it) for it in (EXEC_COMMAND, WRITE_STDIN, APPLY_PATCH)],
        sandbox=SandboxUse(
            spec=SandboxSpec(
                provider=provider,
                node=node,
                plan=WorkspacePlan(trees=[PlanTree(tree=tree)]),
                network="none",
            )
        ),
        **_model(use.phase_two),
    )
    options = _options(
        origin,
        name="Memory: consolidation",
        max_turns=use.phase_two_max_turns,
        budget=Budget(
            turns=use.phase_two_max_turns,
            tool_calls=use.phase_two_max_turns * CALLS_PER_TURN,
            seconds=CONSOLIDATION_S,
        ),
        part=MemoryPart(
            scope=state.scope,
            step="merge",
            id=str(merge.number),
            attempt=merge.attempt,
            origin=origin.run,
        ),
    )
    text = phase_two.request_text(selection, state.rollouts)
    await _start(means, RunId(merge.run), agent, options, text, origin)


def _built_in(definition: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=str(definition["name"]),
        definition=Raw(msgspec.json.encode(definition)),
        sandbox=True,
    )


# --- both -----------------------------------------------------------------------------------------


def _model(phase: PhaseModel) -> dict[str, Any]:
    return {
        "model": phase.model,
        "settings": phase.settings,
        "hosted_model": phase.hosted,
        "host": phase.host if phase.hosted else _NO_HOST,
    }


def _options(
    origin: Origin, *, name: str, max_turns: int, budget: Budget, part: MemoryPart
) -> RunOptions:
    return RunOptions(
        max_turns=max_turns,
        workflow_name=name,
        group_id=origin.group_id,
        metadata={"memory_scope": part.scope, "memory_step": part.step, "memory_id": part.id},
        traced=origin.traced,
        trace_contents=origin.trace_contents,
        budget=with_deadline(budget),
        memory=part,
    )


async def _start(
    means: Means, run: RunId, agent: AgentSpec, options: RunOptions, text: str, origin: Origin
) -> None:
    bus = means.bus
    if agent.hosted_model and not await bus.presence.is_served(f"tools-{agent.host}"):
        raise HostGone(
            f"the model of {agent.name} is an object of the process {agent.host}, which is gone; "
            "a process that runs an agent with this memory brings it back"
        )
    pool = origin.pool
    if not pool or not await bus.presence.is_served(f"harness-{pool}"):
        pool = means.pool
    started = RunStarted(
        graph=GraphSpec(start=agent.name, agents={agent.name: agent}),
        input=[user_message(text)],
        is_text=True,
        options=options,
        pool=pool,
    )
    crashpoint("memory.before_start")
    try:
        await bus.work_log.append(
            run,
            bus.subjects.start(run, pool),
            started,
            after=0,
            msg_id=f"{run}:start",
            headers={TRACEPARENT: origin.traceparent} if origin.traceparent else None,
        )
    except Conflict:
        return  # it exists: another process started it and died
    crashpoint("memory.after_start")
