"""What a run needs next: a pure function of its state. The one place where the agent loop is
decided.

Each step follows from the head of the log, never from the message that woke the harness; so a
redelivery after a crash finds out by itself what is missing.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw
from sandstream_bus.messages import (
    CallKind,
    CallRequested,
    ErrorInfo,
    RunDone,
    StopDecision,
)
from sandstream_bus.sandbox_messages import SandboxUse
from sandstream_bus.specs import AgentSpec, ToolSpec

from sandstream_actors.output_items import AnswerView, ToolCall
from sandstream_actors.run_state import RunState


class _Definition(msgspec.Struct):
    type: str = ""


_stop = msgspec.json.Decoder(StopDecision).decode
_definition = msgspec.json.Decoder(_Definition).decode
_encode = msgspec.json.encode
_SIDE_KINDS = ("checkpoint", "close")


class Wait(msgspec.Struct, frozen=True, tag=True):
    """Nothing to do now; an event that is under way will wake the run."""


class AskModel(msgspec.Struct, frozen=True, tag=True):
    """Take a model turn. Only the holder of the trigger event does it."""

    turn: int


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Send these calls to the tool host or the sandbox actor; those that are in the log already are
    left out.
    """

    calls: list[CallRequested]


class RearmTimer(msgspec.Struct, frozen=True, tag=True):
    """The run waits for a rate limit: make sure that its timer is armed."""


class Finish(msgspec.Struct, frozen=True, tag=True):
    """End the run."""

    done: RunDone


Step = Wait | AskModel | Ask | RearmTimer | Finish


def next_step(state: RunState) -> Step:
    """Decide. Total: every state has a step.

    A run ends only after its sandboxes are closed, so that whoever sees the end finds the last
    checkpoint. A cancelled one does not wait: its sandboxes are closed after it.
    """
    if state.done is not None or state.started is None:
        return Wait()
    step = _decide(state)
    if isinstance(step, Finish) and step.done.status != "cancelled" and state.to_close():
        return _close_sandboxes(state)
    return step


def _decide(state: RunState) -> Step:
    assert state.started is not None
    if state.cancel is not None and state.cancel.mode == "immediate":
        return cancelled(state)
    if state.agent_name not in state.started.graph.agents:
        message = f"agent {state.agent_name!r} is not part of this run"
        return failed(state, ErrorInfo(code="unknown_agent", message=message))
    fatal = _fatal_result(state)
    if fatal is not None:
        return failed(state, fatal)
    if state.answer is None:
        return _before_model(state)
    return _after_model(state, state.answer)


# --- before the model call ------------------------------------------------------------------------


def _before_model(state: RunState) -> Step:
    if state.cancel is not None:
        return cancelled(state)
    turn = state.turn + 1
    limit = state.options.max_turns
    if limit is not None and turn > limit:
        error = ErrorInfo(code="max_turns", message=f"Max turns ({limit}) exceeded")
        return _with_handler(state, "max_turns", turn, error)
    if state.deferred is not None:
        return RearmTimer()
    agent = state.agent
    if agent.sandbox is not None:
        step = _before_sandbox_turn(state, agent.sandbox, turn)
        if step is not None:
            return step
    if agent.hosted_model:
        return _host_call(state, "model", turn)
    if state.prepared is None and needs_preparation(state, agent):
        return _host_call(state, "prepare", turn)
    return AskModel(turn)


def _before_sandbox_turn(state: RunState, use: SandboxUse, turn: int) -> Step | None:
    """An agent's first turn opens its sandbox; if so chosen, each tool turn ends in a
    checkpoint.
    """
    if state.agent_name not in state.sandboxes:
        return _sandbox_call(state, state.agent_name, "open", f"t{turn}-open", turn)
    used_tools = state.answer is not None and bool(state.answer.tool_calls)
    call = f"t{state.turn}-checkpoint"
    if use.checkpoint == "turn" and used_tools and call not in state.results:
        return _sandbox_call(state, state.agent_name, "checkpoint", call, state.turn)
    return None


def _close_sandboxes(state: RunState) -> Ask | Wait:
    calls = [it for it in closing_calls(state) if it.call not in state.asked]
    return Ask(calls) if calls else Wait()


def closing_calls(state: RunState) -> list[CallRequested]:
    """What lets go of the run's sandboxes."""
    return [
        _sandbox_request(
            state, name, "close", f"t{state.turn}-close-{opened.sandbox[-8:]}", state.turn
        )
        for name, _, opened in state.to_close()
    ]


def _sandbox_call(state: RunState, agent: str, kind: CallKind, call: str, turn: int) -> Ask | Wait:
    if call in state.asked:
        return Wait()
    return Ask([_sandbox_request(state, agent, kind, call, turn)])


def _sandbox_request(
    state: RunState, agent: str, kind: CallKind, call: str, turn: int
) -> CallRequested:
    assert state.started is not None
    return CallRequested(
        call=call,
        kind=kind,
        turn=turn,
        agent=agent,
        reply_pool=state.pool,
        sandbox=state.sandbox_id(state.started.graph.agents[agent]),
    )


def needs_preparation(state: RunState, agent: AgentSpec) -> bool:
    """Does the user's code take part in building the model's request?"""
    conditional = any(tool.conditional for tool in agent.tools)
    return agent.dynamic or conditional or state.options.filters_input


# --- after the model's answer ---------------------------------------------------------------------


def _after_model(state: RunState, answer: AnswerView) -> Step:
    misuse = _misuse(state, answer)
    if misuse is not None:
        return failed(state, misuse)
    if answer.tool_calls:
        return _tool_turn(state, answer)
    if answer.refusal is not None:
        error = ErrorInfo(
            code="model_refusal",
            message=f"The model refused to answer: {answer.refusal}",
            data={"refusal": answer.refusal},
        )
        return _with_handler(state, "model_refusal", state.turn, error)
    if answer.text is None and answer.has_hosted_tools:
        return _before_model(state)
    if state.agent.output is None:
        return completed(state, Raw(_encode(answer.text or "")), "model")
    return _structured_output(state, answer)


def _tool_turn(state: RunState, answer: AnswerView) -> Step:
    missing = state.open_tool_calls()
    if missing:
        limit = state.options.max_tool_concurrency
        running = sum(call.id in state.asked for call in missing)
        # custom tools of one answer run one after the other: a patch may build on the one before
        waiting = [call for call in missing if call.is_custom][1:]
        new = [call for call in missing if call.id not in state.asked and call not in waiting]
        if limit is not None:
            new = new[: max(0, max(1, limit) - running)]  # a limit of none would wait for ever
        return Ask([_tool_request(state, call) for call in new]) if new else Wait()
    return _after_tools(state, answer)


def _after_tools(state: RunState, answer: AnswerView) -> Step:
    """Results of function tools may end a run, those of custom tools go back to the model."""
    behavior = state.agent.tool_use
    calls = [call for call in answer.tool_calls if not call.is_custom]
    if behavior.kind == "ask_host" and calls:
        result = state.results.get(f"t{state.turn}-stop")
        if result is None:
            return _host_call(state, "stop", state.turn)
        decision = _stop(result.output or b'{"final":false}')
        if decision.final:
            return completed(state, decision.value or Raw(b"null"), "tool")
        return _before_model(state)
    for call in calls:
        if behavior.kind == "stop_on_first" or (
            behavior.kind == "stop_at" and call.name in behavior.names
        ):
            result = state.results[call.id]
            return completed(state, result.value or result.output or Raw(b'""'), "tool")
    return _before_model(state)


def _structured_output(state: RunState, answer: AnswerView) -> Step:
    handled = "invalid_final_output" in state.options.handled_errors
    if not answer.text and not handled:
        return _before_model(state)
    result = state.results.get(f"t{state.turn}-output")
    if result is None:
        return _host_call(state, "output", state.turn)
    decision = _stop(result.output or b'{"final":true}')
    if decision.value:
        return completed(state, decision.value, "handler")
    return completed(state, _as_json(answer.text or ""), "model")


def _as_json(text: str) -> Raw:
    """A typed answer is JSON, unless its type is a format of the user's own."""
    try:
        return msgspec.json.decode(text, type=Raw)
    except msgspec.DecodeError:
        return Raw(_encode(text))


def _misuse(state: RunState, answer: AnswerView) -> ErrorInfo | None:
    """Answers that break the protocol end the run with a model_behavior error."""
    if answer.misuse is not None:
        return _behavior(answer.misuse)
    reported = state.options.tool_not_found != "raise_error"
    offered = {tool.name: tool for tool in state.agent.tools}
    for call in answer.tool_calls:
        tool = None if call.name in state.disabled_tools else offered.get(call.name)
        if tool is None and reported and not call.is_custom:
            continue
        if tool is None or _is_custom(tool) != call.is_custom:
            return _behavior(
                f"Tool {call.name} not found in agent {state.agent_name}", tool=call.name
            )
    return None


def _is_custom(tool: ToolSpec) -> bool:
    try:
        return _definition(tool.definition).type == "custom"
    except msgspec.DecodeError:  # some other client's; the endpoint says what is wrong with it
        return False


# --- the parts of steps ---------------------------------------------------------------------------


def _tool_request(state: RunState, call: ToolCall) -> CallRequested:
    spec = next((tool for tool in state.agent.tools if tool.name == call.name), None)
    return CallRequested(
        call=call.id,
        kind="tool",
        turn=state.turn,
        agent=state.agent_name,
        name=call.name,
        call_id=call.call_id,
        arguments=call.arguments,
        at_most_once=spec.at_most_once if spec else False,
        reply_pool=state.pool,
        usage=state.usage,
        sandbox=state.sandbox_id(state.agent) if spec and spec.sandbox else "",
        cwd=state.agent.sandbox.cwd if state.agent.sandbox else "",
    )


def _host_call(
    state: RunState, kind: CallKind, turn: int, error: ErrorInfo | None = None
) -> Ask | Wait:
    call = f"t{turn}-{kind}"
    if call in state.asked:
        return Wait()
    request = CallRequested(
        call=call,
        kind=kind,
        turn=turn,
        agent=state.agent_name,
        reply_pool=state.pool,
        usage=state.usage,
        error=error,
    )
    return Ask([request])


def _with_handler(state: RunState, kind: str, turn: int, error: ErrorInfo) -> Step:
    """Ask the error handler, if there is one; without an answer from it the error stands."""
    if kind in state.options.handled_errors:
        result = state.results.get(f"t{turn}-error")
        if result is None:
            return _host_call(state, "error", turn, error)
        decision = _stop(result.output or b'{"final":false}')
        if decision.final:
            return completed(state, decision.value or Raw(b"null"), "handler")
    return failed(state, error)


def _fatal_result(state: RunState) -> ErrorInfo | None:
    for result in state.results.values():
        # that a checkpoint failed is in the log; it does not undo the run's work
        if result.error is not None and not result.output and result.kind not in _SIDE_KINDS:
            return result.error
    return None


def _behavior(message: str, **data: str) -> ErrorInfo:
    return ErrorInfo(code="model_behavior", message=message, data=dict(data))


def completed(state: RunState, output: Raw, source: Literal["model", "tool", "handler"]) -> Finish:
    return Finish(
        RunDone(
            status="completed",
            agent=state.agent_name,
            turns=state.turn,
            usage=state.usage,
            output=output,
            output_from=source,
        )
    )


def cancelled(state: RunState) -> Finish:
    reason = state.cancel.reason if state.cancel else ""
    return Finish(
        RunDone(
            status="cancelled",
            agent=state.agent_name,
            turns=state.turn,
            usage=state.usage,
            error=ErrorInfo(code="cancelled", message=reason or "the run was cancelled"),
        )
    )


def failed(state: RunState, error: ErrorInfo) -> Finish:
    status: Literal["failed", "max_turns"] = "max_turns" if error.code == "max_turns" else "failed"
    return Finish(
        RunDone(
            status=status,
            agent=state.agent_name,
            turns=state.turn,
            usage=state.usage,
            error=error,
        )
    )
