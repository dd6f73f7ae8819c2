"""When a run opens, saves and closes the sandboxes of its agents. Pure."""

from __future__ import annotations

from sandstream_bus.wire.messages import CallKind
from sandstream_bus.wire.sandboxes import SandboxUse

from sandstream_actors.harness.step_kinds import Ask, Step, Wait
from sandstream_actors.run.sandbox_calls import closing_calls, sandbox_request
from sandstream_actors.run.state import RunState


def before_sandbox_turn(state: RunState, use: SandboxUse, turn: int) -> Step | None:
    """An agent's first turn opens its sandbox; if so chosen, each tool turn ends in a
    checkpoint.
    """
    step = open_sandbox(state, turn)
    if step is not None:
        return step
    used_tools = state.answer is not None and bool(state.answer.tool_calls)
    call = f"t{state.turn}-checkpoint"
    if use.checkpoint == "turn" and used_tools and call not in state.results:
        return _sandbox_call(state, state.agent_name, "checkpoint", call, state.turn)
    return None


def open_sandbox(state: RunState, turn: int) -> Ask | Wait | None:
    """It stays closed until the agent's first turn, and while the run waits for a person."""
    if state.agent.sandbox is None or state.agent_name in state.sandboxes:
        return None
    call = f"t{turn}-open{state.closings or ''}"
    return _sandbox_call(state, state.agent_name, "open", call, turn)


def close_sandboxes(state: RunState) -> Ask | Wait:
    calls = [it for it in closing_calls(state) if it.call not in state.asked]
    return Ask(calls) if calls else Wait()


def _sandbox_call(state: RunState, agent: str, kind: CallKind, call: str, turn: int) -> Ask | Wait:
    if call in state.asked:
        return Wait()
    return Ask([sandbox_request(state, agent, kind, call, turn)])
