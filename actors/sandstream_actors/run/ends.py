"""How a run ends: its last event, from its state. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw
from sandstream_bus.wire.memory_specs import MemoryPart, scope_of
from sandstream_bus.wire.messages import DoneStatus, ErrorInfo, RunDone

from sandstream_actors.run.state import RunState


class Finish(msgspec.Struct, frozen=True, tag=True):
    """End the run."""

    done: RunDone


_STATUS: dict[str, DoneStatus] = {
    "max_turns": "max_turns",
    "budget": "budget",
    "cancelled": "cancelled",
    "input_guardrail": "guardrail",
    "output_guardrail": "guardrail",
    "tool_input_guardrail": "guardrail",
    "tool_output_guardrail": "guardrail",
}


def completed(state: RunState, output: Raw, source: Literal["model", "tool", "handler"]) -> Finish:
    return _end(state, "completed", output=output, output_from=source)


def cancelled(state: RunState) -> Finish:
    """The run was cancelled by a user or by a limit of its tree."""
    request = state.cancel
    code = request.code if request else "cancelled"
    reason = request.reason if request else ""
    error = ErrorInfo(
        code=code,
        message=reason or "the run was cancelled",
        data={"budget": request.budget} if request and code == "budget" else {},
    )
    return _end(state, _STATUS[code], error=error)


def failed(state: RunState, error: ErrorInfo) -> Finish:
    return _end(state, _STATUS.get(error.code, "failed"), error=error)


def memory_part(state: RunState) -> MemoryPart | None:
    """The run's relation to a memory: the memory of its last agent counts."""
    if state.options.memory is not None:
        return state.options.memory
    agent = state.agents.get(state.agent_name)
    if agent is None or agent.memory is None or not agent.memory.generates:
        return None
    if agent.sandbox is None or state.started is None or state.started.parent is not None:
        return None
    scope = scope_of(agent.memory, state.sandbox_id(agent))
    return MemoryPart(scope=scope, id=rollout_of(state))


def rollout_of(state: RunState) -> str:
    """The rollout of the run: its conversation, session or group; otherwise the run itself."""
    options = state.options
    session = options.session.id if options.session is not None else ""
    return options.conversation_id or session or options.group_id or f"run-{state.run}"


def _end(state: RunState, status: DoneStatus, **more: object) -> Finish:
    return Finish(
        RunDone(
            status=status,
            agent=state.agent_name,
            turns=state.turn,
            usage=state.usage,
            memory=memory_part(state),
            **more,  # type: ignore[arg-type]
        )
    )
