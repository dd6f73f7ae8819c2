"""The next step of a run: a pure function of its state. This is the agent loop.

Each step follows from the log, never from the message that woke the harness. So a redelivery after
a crash finds by itself which step is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw
from sandstream_bus.wire.messages import (
    CallFinished,
    CallKind,
    CallRequested,
    ErrorInfo,
    HandedOff,
    RunWaiting,
    StopDecision,
    TurnRequested,
)
from sandstream_bus.wire.specs import NO_JSON, AgentSpec, ToolSpec

from sandstream_actors.harness.sandbox_steps import (
    before_sandbox_turn,
    close_sandboxes,
    open_sandbox,
)
from sandstream_actors.harness.step_kinds import (
    Ask,
    AskModel,
    HandOver,
    OpenConversation,
    Pause,
    RearmTimer,
    Step,
    Wait,
)
from sandstream_actors.harness.tool_steps import expired, work_on
from sandstream_actors.harness.tree_budget import exceeded_by_calls, exceeded_by_turn
from sandstream_actors.run.call_results import PARALLEL_GUARDS, looking_at
from sandstream_actors.run.ends import Finish, cancelled, completed, failed
from sandstream_actors.run.output_items import AnswerView
from sandstream_actors.run.state import PAUSED, RunState


class _Definition(msgspec.Struct):
    type: str = ""


_stop = msgspec.json.Decoder(StopDecision).decode
_handed_off = msgspec.json.Decoder(HandedOff).decode
_definition = msgspec.json.Decoder(_Definition).decode
_encode = msgspec.json.encode


def next_step(state: RunState) -> Step:
    """Decide the next step. Total: every state has one.

    A run ends only after its last hooks and guardrails, after its session is written and its
    sandboxes are closed, so that readers of the end find everything complete. A cancelled run does
    not wait for these.
    """
    if state.done is not None or state.started is None:
        return Wait()
    step = decide(state)
    if isinstance(step, Finish) and step.done.status == "completed":
        step = _before_end(state, step)
    elif isinstance(step, Finish) and _is_told_to_session(state, step.done.error):
        step = _save(state) or step
    if isinstance(step, Finish) and state.cancel is None and state.to_close():
        return close_sandboxes(state)
    return step


def _is_told_to_session(state: RunState, error: ErrorInfo | None) -> bool:
    """Does the session get the run's last turn although the run failed?

    It gets input that a guardrail refused, and the items that output guardrails kept of the turn.
    """
    if error is None:
        return False
    check = state.results.get(f"t{state.turn}-finish")
    is_refused = error.code == "input_guardrail" and not state.input_saved
    return is_refused or (check is not None and check.error is error)


def decide(state: RunState) -> Step:
    """The next step, without the work that precedes a run's end."""
    if state.cancel is not None and state.cancel.mode == "immediate":
        return cancelled(state)
    if state.agent_name not in state.agents:
        message = f"agent {state.agent_name!r} is not part of this run"
        return failed(state, ErrorInfo(code="unknown_agent", message=message))
    fatal = next(fatal_results(state), None)
    error = fatal.error if fatal is not None else expired(state)
    if error is not None:
        return failed(state, error)
    if _guards_lost(state):
        return _host_call(state, "guard", 1, name="parallel", call=PARALLEL_GUARDS)
    if state.answer is None:
        return _before_model(state)
    return _after_model(state, state.answer)


def _before_end(state: RunState, end: Finish) -> Step:
    """The work that must precede a run's end."""
    if state.staged:
        return _before_model(state)  # more input has arrived
    turn, output = state.turn, end.done.output
    if "agent_end" in state.agent.hooks and f"t{turn}-end" not in state.results:
        return _host_call(
            state, "finish", turn, call=f"t{turn}-end", name="agent_end", value=output
        )
    if _guards_missing(state):
        return Wait()
    if state.agent.checks_output and f"t{turn}-finish" not in state.results:
        source = end.done.output_from
        name = "" if source == "model" else source
        return _host_call(state, "finish", turn, name=name, value=output)
    return _save(state) or end


# --- before the model call ------------------------------------------------------------------------


def _before_model(state: RunState) -> Step:
    saving = _save(state) if state.turn > 0 else None
    if saving is not None:
        return saving
    if state.cancel is not None:
        return cancelled(state)
    turn = state.turn + 1
    limit = state.options.max_turns
    if limit is not None and turn > limit:
        error = ErrorInfo(code="max_turns", message=f"Max turns ({limit}) exceeded")
        return _with_handler(state, "max_turns", turn, error)
    over = exceeded_by_turn(state)
    if over is not None:
        return failed(state, over)
    if state.deferred is not None:
        return RearmTimer()
    if state.turn > 0 and _guards_missing(state):
        return Wait()
    step = _conversation(state)
    if step is not None:
        return step
    agent = state.agent
    if state.turn == 0 and "blocking" in agent.guards and "t1-guard" not in state.results:
        return _host_call(state, "guard", turn, name="blocking")
    step = _guard_staged(state, agent)
    if step is not None:
        return step
    if agent.sandbox is not None:
        step = before_sandbox_turn(state, agent.sandbox, turn)
        if step is not None:
            return step
    saving = _save(state)
    if saving is not None:
        return saving
    step = _head_start(state, agent)
    if step is not None:
        return step
    beside = _parallel_guards(state, agent)
    if agent.hosted_model:
        return _with(beside, _host_call(state, "model", turn))
    if state.prepared is None and needs_preparation(state, agent):
        return _with(beside, _host_call(state, "prepare", turn))
    return AskModel(turn, beside)


def _conversation(state: RunState) -> Step | None:
    """The history comes first: from the bus, or from the user's session."""
    session = state.options.session
    if session is None:
        return None
    if session.kind == "bus" and not state.has_conversation:
        return OpenConversation()
    if state.turn > 0 or "t0-history" in state.results:
        return None
    if session.kind == "host" or session.merges:
        return _host_call(state, "history", 0)
    return None


def _save(state: RunState, *, paused: bool = False) -> Ask | Wait | None:
    """The user's session gets the input, and then each turn. Before approvals are requested, it
    also gets the finished part of the turn.
    """
    session = state.options.session
    call = state.next_save(paused=paused)
    if session is None or session.kind != "host" or call is None:
        return None
    return _host_call(state, "save", state.turn, call=call, name=PAUSED if paused else "")


def _guard_staged(state: RunState, agent: AgentSpec) -> Step | None:
    """New input is input too: the agent's guardrails check it before the model is called."""
    if not agent.guards or not any(items for _, items in state.staged):
        return None
    call = f"t{state.turn + 1}-guard-{state.staged[-1][0]}"
    if call in state.results:
        return None
    return _host_call(state, "guard", state.turn + 1, name="staged", call=call)


def _head_start(state: RunState, agent: AgentSpec) -> Ask | Wait | None:
    """Parallel guardrails start before the model is called: a guardrail that refuses the input at
    once saves that call. If they take longer, the tool host reports that, and the harness
    continues.
    """
    if state.turn > 0 or "parallel" not in agent.guards or not agent.guards_announced:
        return None
    if PARALLEL_GUARDS in state.results or looking_at(PARALLEL_GUARDS) in state.results:
        return None
    return _host_call(state, "guard", 1, name="parallel", call=PARALLEL_GUARDS)


def _parallel_guards(state: RunState, agent: AgentSpec) -> list[CallRequested]:
    if state.turn > 0 or "parallel" not in agent.guards or PARALLEL_GUARDS in state.asked:
        return []
    step = _host_call(state, "guard", 1, name="parallel", call=PARALLEL_GUARDS)
    return step.calls if isinstance(step, Ask) else []


def _guards_missing(state: RunState) -> bool:
    """Is a guardrail of the run's input still without a result?"""
    return PARALLEL_GUARDS in state.asked and PARALLEL_GUARDS not in state.results


def _guards_lost(state: RunState) -> bool:
    """Did the run move away from the process whose guardrails ran beside its first turn? Then they
    run again, so that no unchecked input passes.
    """
    assert state.started is not None
    is_first = state.agent_name == state.started.graph.start  # the next one waits for them
    heard = PARALLEL_GUARDS in state.asked or PARALLEL_GUARDS in state.results
    return state.turn > 0 and is_first and "parallel" in state.agent.guards and not heard


def _with(beside: list[CallRequested], step: Ask | Wait) -> Ask | Wait:
    calls = [*beside, *(step.calls if isinstance(step, Ask) else [])]
    return Ask(calls) if calls else Wait()


def needs_preparation(state: RunState, agent: AgentSpec) -> bool:
    """Does the user's code take part in building the model's request?"""
    conditional = any(it.conditional for it in agent.tools) or any(
        it.conditional for it in agent.handoffs
    )
    hooked = "llm_start" in agent.hooks or (state.agent_is_new and "agent_start" in agent.hooks)
    asked = agent.dynamic or agent.lists_tools or state.options.filters_input
    return asked or conditional or hooked


# --- after the model's answer ---------------------------------------------------------------------


def _after_model(state: RunState, answer: AnswerView) -> Step:
    misuse = _misuse(state, answer)
    if misuse is not None:
        return failed(state, misuse)
    if _needs_review(state) and state.reviewed is None:
        return _host_call(state, "review", state.turn)
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


def _needs_review(state: RunState) -> bool:
    """Must the tool host check the answer before anything else is done with it?"""
    if "llm_end" in state.agent.hooks:
        return True
    tools = [state.tool(call.name) for call in state.tool_calls]
    approvals = {tool.approval for tool in tools if tool is not None}
    guarded = state.options.pre_approval_guardrails and approvals != {"never"}
    return "ask_host" in approvals or (guarded and bool(approvals))


def _tool_turn(state: RunState, answer: AnswerView) -> Step:
    missing = state.open_tool_calls()
    if not missing:
        return _after_tools(state, answer)
    work = work_on(state, missing)
    over = exceeded_by_calls(state, work.new)
    if over is not None:
        return failed(state, over)
    if work.calls and state.agent.sandbox is not None:
        step = open_sandbox(state, state.turn)
        if step is not None:
            return Ask(step.calls, work.approvals) if isinstance(step, Ask) else step
    if work.calls or work.approvals:
        return Ask(work.calls, work.approvals)
    return Wait() if work.in_progress else _pause(state)


def _pause(state: RunState) -> Step:
    """All calls wait for people: close the sandboxes, then record that the run waits."""
    if _guards_missing(state):
        return Wait()
    saving = _save(state, paused=True)
    if saving is not None:
        return saving
    if state.to_close():
        return close_sandboxes(state)
    approvals = state.open_approvals()
    known = {(it.run, it.call) for it in state.waiting.approvals} if state.waiting else None
    if not approvals or known == {(it.run, it.call) for it in approvals}:
        return Wait()
    return Pause(RunWaiting(turn=state.turn, approvals=approvals))


def _after_tools(state: RunState, answer: AnswerView) -> Step:
    """A handoff has priority. Results of function tools may end a run; those of custom tools go
    back to the model.
    """
    if state.handoff_calls:
        return _hand_over(state)
    behavior = state.agent.tool_use
    calls = [call for call in state.tool_calls if not call.is_custom]
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
            result = state.settled(call)
            assert result is not None
            return completed(state, result.value or result.output or Raw(b'""'), "tool")
    return _before_model(state)


def _hand_over(state: RunState) -> Step:
    """The first handoff of an answer counts."""
    call = state.handoff_calls[0]
    spec = state.handoff(call)
    assert spec is not None
    handed = HandedOff(agent=spec.agent)
    if spec.ask_host:
        result = state.results.get(f"t{state.turn}-handoff")
        if result is None:
            return _host_call(
                state,
                "handoff",
                state.turn,
                name=call.name,
                call_id=call.call_id,
                arguments=call.arguments,
            )
        handed = _handed_off(result.output)
    if handed.agent not in state.agents and handed.agent not in handed.agents:
        message = f"the handoff {call.name} leads to {handed.agent!r}, which is not part of the run"
        return failed(state, ErrorInfo(code="unknown_agent", message=message))
    if _guards_missing(state):
        # their results go to this agent's pool; the next agent's pool would not get them
        return Wait()
    return HandOver(
        TurnRequested(
            turn=state.turn + 1,
            agent=handed.agent,
            reason="handoff",
            agents=handed.agents,
            rewrite=handed.rewrite,
        )
    )


def _structured_output(state: RunState, answer: AnswerView) -> Step:
    handled = "invalid_final_output" in state.options.handled_errors
    if not answer.text and not handled:
        return _before_model(state)
    if state.agent.output is not None and not state.agent.output.validated:
        return completed(state, _as_json(answer.text or ""), "model")
    result = state.results.get(f"t{state.turn}-output")
    if result is None:
        return _host_call(state, "output", state.turn)
    decision = _stop(result.output or b'{"final":true}')
    if decision.value:
        return completed(state, decision.value, "handler")
    return completed(state, _as_json(answer.text or ""), "model")


def _as_json(text: str) -> Raw:
    """A typed answer is JSON, unless its type has a custom format."""
    try:
        return msgspec.json.decode(text, type=Raw)
    except msgspec.DecodeError:
        return Raw(_encode(text))


def _misuse(state: RunState, answer: AnswerView) -> ErrorInfo | None:
    """Answers that break the protocol end the run with a model_behavior error."""
    if answer.misuse is not None:
        return _behavior(answer.misuse)
    reported = state.options.tool_not_found != "raise_error"
    for call in state.tool_calls:
        tool = None if call.name in state.disabled_tools else state.tool(call.name)
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
    except msgspec.DecodeError:  # written by another client; the endpoint reports the error
        return False


# --- the parts of steps ---------------------------------------------------------------------------


def _host_call(
    state: RunState,
    kind: CallKind,
    turn: int,
    error: ErrorInfo | None = None,
    *,
    call: str = "",
    name: str = "",
    call_id: str = "",
    arguments: str = "",
    value: Raw = NO_JSON,
) -> Ask | Wait:
    call = call or f"t{turn}-{kind}"
    if call in state.asked:
        return Wait()
    request = CallRequested(
        call=call,
        kind=kind,
        turn=turn,
        agent=state.agent_name,
        name=name,
        call_id=call_id,
        arguments=arguments,
        reply_pool=state.pool,
        usage=state.usage,
        error=error,
        value=value,
    )
    return Ask([request])


def _with_handler(state: RunState, kind: str, turn: int, error: ErrorInfo) -> Step:
    """Call the error handler, if there is one; if it returns nothing, the error stands."""
    if kind in state.options.handled_errors:
        result = state.results.get(f"t{turn}-error")
        if result is None:
            return _host_call(state, "error", turn, error)
        decision = _stop(result.output or b'{"final":false}')
        if decision.final:
            return completed(state, decision.value or Raw(b"null"), "handler")
    return failed(state, error)


def fatal_results(state: RunState) -> Iterator[CallFinished]:
    """The outcomes that end the run."""
    for result in state.results.values():
        # the log records the failed checkpoint; it does not undo the run's work
        if result.error is None or result.output or result.traits.may_fail:
            continue
        child = result.call.removesuffix("-watch") if result.traits.is_during_child else ""
        if not child or _raises(state, child):
            yield result


def _raises(state: RunState, call: str) -> bool:
    """Does the failure of this child run end the run?"""
    name = next((it.name for it in state.tool_calls if it.id == call), "")
    tool = state.tool(name)
    return tool is not None and tool.child is not None and tool.child.failure == "raise"


def _behavior(message: str, **data: str) -> ErrorInfo:
    return ErrorInfo(code="model_behavior", message=message, data=dict(data))
