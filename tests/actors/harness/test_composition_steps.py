"""Handoffs, approvals, guardrails, hooks, child runs and budgets as decisions. No server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.harness.step_kinds import (
    Ask,
    AskModel,
    HandOver,
    OpenConversation,
    Pause,
    Step,
    Wait,
)
from sandstream_actors.harness.steps import next_step
from sandstream_actors.run.ends import Finish
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    ErrorInfo,
    HandedOff,
    History,
    InputStaged,
    Prepared,
    Reviewed,
    Rewrite,
    RunEvent,
    RunMoved,
    RunWaiting,
    TurnRequested,
)
from sandstream_bus.wire.specs import (
    Budget,
    ChildGraph,
    ChildSpec,
    HandoffSpec,
    RunOptions,
    SessionUse,
    ToolSpec,
)
from support.scripted_log import RUN, answer, asks, begin, calls, ends, log, raw, says

BOOM = ErrorInfo(code="tool_error", message="boom")
TRIP = ErrorInfo(code="input_guardrail", message="tripped")


def gated(name: str, approval: Any = "always", **more: Any) -> ToolSpec:
    return ToolSpec(
        name=name, definition=raw({"type": "function", "name": name}), approval=approval, **more
    )


def to_b(**more: Any) -> HandoffSpec:
    return HandoffSpec(name="to_b", definition=raw({"name": "to_b"}), agent="b", **more)


def agent_tool(name: str = "sub", **more: Any) -> ToolSpec:
    return gated(name, "never", child=ChildSpec(graph="sub", options=RunOptions(), **more))


def fold(*events: RunEvent) -> RunState:
    return RunState.of(RUN, log(*events))


def after(*events: RunEvent) -> Step:
    return next_step(fold(*events))


def asked(step: Step) -> list[str]:
    assert isinstance(step, Ask), step
    return [call.call for call in step.calls]


def error_of(step: Step) -> ErrorInfo:
    assert isinstance(step, Finish), step
    assert step.done.error is not None
    return step.done.error


def wants(call: str, name: str = "f", turn: int = 1, **more: Any) -> ApprovalRequested:
    return ApprovalRequested(call=call, turn=turn, agent="a", name=name, call_id="c0", **more)


def says_yes(call: str = "t1-0", **more: Any) -> ApprovalDecided:
    return ApprovalDecided(call=call, approve=True, **more)


def says_no(call: str = "t1-0", **more: Any) -> ApprovalDecided:
    return ApprovalDecided(call=call, approve=False, **more)


def host(
    call: str, result: msgspec.Struct | dict[str, Any] | None, kind: Any, turn: int = 1
) -> list[RunEvent]:
    """A host call and its result."""
    output = {} if result is None else msgspec.json.decode(msgspec.json.encode(result))
    return [asks(call, kind, turn), ends(call, output, kind=kind, turn=turn)]


def items(state: RunState) -> list[Any]:
    return [msgspec.json.decode(item) for item in state.conversation()]


# --- handoffs -------------------------------------------------------------------------------------


def test_a_handoff_is_a_turn_for_the_next_agent() -> None:
    step = after(begin(handoffs=[to_b()]), answer(1, calls("to_b", "c0")))
    assert step == HandOver(TurnRequested(turn=2, agent="b", reason="handoff"))


def test_a_handoff_waits_for_guardrails_that_answer_to_this_pool() -> None:
    request = CallRequested(
        call="t1-guards", kind="guard", turn=1, agent="a", name="parallel", reply_pool="main"
    )
    start = begin(handoffs=[to_b()], guards=["parallel"])
    events = (start, request, answer(1, calls("to_b", "c0")))
    assert after(*events) == Wait()
    step = after(*events, ends("t1-guards", {}, kind="guard"))
    assert step == HandOver(TurnRequested(turn=2, agent="b", reason="handoff"))


def test_after_a_handoff_the_next_agent_sees_the_whole_conversation() -> None:
    state = fold(
        begin(handoffs=[to_b()]),
        answer(1, calls("to_b", "c0")),
        TurnRequested(turn=2, agent="b", reason="handoff"),
    )
    assert (next_step(state), state.trigger, state.agent_name) == (AskModel(2), 3, "b")
    assert items(state)[-1] == {
        "type": "function_call_output",
        "call_id": "c0",
        "output": '{"assistant": "b"}',
    }


def test_of_two_handoffs_in_one_answer_the_first_is_taken() -> None:
    state = fold(
        begin(handoffs=[to_b()]),
        answer(1, calls("to_b", "c0"), calls("to_b", "c1", '{"x":1}')),
        TurnRequested(turn=2, agent="b", reason="handoff"),
    )
    outputs = [it["output"] for it in items(state) if it.get("type") == "function_call_output"]
    assert outputs == ["Multiple handoffs detected, ignoring this one.", '{"assistant": "b"}']


def test_tools_of_the_same_answer_come_before_the_handoff() -> None:
    start = begin("f", handoffs=[to_b()])
    both = answer(1, calls("to_b", "c0"), calls("f", "c1"))
    assert asked(after(start, both)) == ["t1-1"]
    step = after(start, both, asks("t1-1"), ends("t1-1"))
    assert isinstance(step, HandOver)


def test_a_handoff_with_code_of_the_users_asks_the_host_first() -> None:
    start = begin(handoffs=[to_b(ask_host=True)])
    turn = answer(1, calls("to_b", "c0", '{"why":"x"}'))
    step = after(start, turn)
    assert asked(step) == ["t1-handoff"]
    rewrite = Rewrite(input=[raw({"role": "user", "content": "short"})], items=[], model_items=[])
    handed = HandedOff(agent="b", rewrite=rewrite)
    step = after(start, turn, *host("t1-handoff", handed, "handoff"))
    assert isinstance(step, HandOver) and step.turn.rewrite == rewrite
    state = fold(start, turn, *host("t1-handoff", handed, "handoff"), step.turn)
    assert items(state) == [{"role": "user", "content": "short"}]
    said = [msgspec.json.decode(item) for item in state.said]
    assert [it["type"] for it in said] == ["function_call", "function_call_output"]


def test_a_handoff_to_an_agent_that_is_not_there_fails_the_run() -> None:
    ghost = HandoffSpec(name="to_ghost", definition=raw({}), agent="ghost")
    assert error_of(after(begin(handoffs=[ghost]), answer(1, calls("to_ghost", "c")))).code == (
        "unknown_agent"
    )


def test_a_disabled_handoff_is_not_found() -> None:
    disabled = Prepared(disabled_tools=["to_b"])
    step = after(
        begin(handoffs=[to_b(conditional=True)]),
        *host("t1-prepare", disabled, "prepare"),
        answer(1, calls("to_b", "c0")),
    )
    assert error_of(step).code == "model_behavior"


# --- approvals ------------------------------------------------------------------------------------


def test_a_gated_call_is_asked_of_people_and_the_others_are_made() -> None:
    step = after(begin(gated("f"), "g"), answer(1, calls("f", "c0"), calls("g", "c1")))
    assert isinstance(step, Ask)
    assert ([it.call for it in step.calls], [it.call for it in step.approvals]) == (
        ["t1-1"],
        ["t1-0"],
    )


def test_a_run_that_only_people_can_continue_says_that_it_waits() -> None:
    start, turn = begin(gated("f"), "g"), answer(1, calls("f", "c0"), calls("g", "c1"))
    so_far = (start, turn, wants("t1-0"), asks("t1-1"))
    assert after(*so_far) == Wait()
    step = after(*so_far, ends("t1-1"))
    assert step == Pause(RunWaiting(turn=1, approvals=[wants("t1-0")]))
    assert isinstance(step, Pause)
    assert after(*so_far, ends("t1-1"), step.waiting) == Wait()


def test_an_approved_call_is_made_and_a_rejected_one_is_told() -> None:
    start, turn = begin(gated("f")), answer(1, calls("f", "c0"))
    assert asked(after(start, turn, wants("t1-0"), says_yes())) == ["t1-0"]
    state = fold(start, turn, wants("t1-0"), says_no())
    assert (next_step(state), state.trigger) == (AskModel(2), 4)
    assert items(state)[-1]["output"] == "Tool execution was not approved."
    state = fold(start, turn, wants("t1-0"), says_no(message="not today"))
    assert items(state)[-1]["output"] == "not today"


def test_the_first_decision_counts() -> None:
    state = fold(
        begin(gated("f")), answer(1, calls("f", "c0")), wants("t1-0"), says_no(), says_yes()
    )
    assert next_step(state) == AskModel(2)
    assert state.trigger == 4


def test_a_decision_may_name_the_models_call_id_and_one_for_nothing_is_ignored() -> None:
    start, turn = begin(gated("f")), answer(1, calls("f", "c0"))
    assert asked(after(start, turn, wants("t1-0"), says_yes("c0"))) == ["t1-0"]
    state = fold(start, turn, wants("t1-0"), says_yes("t7-3"))
    assert isinstance(next_step(state), Pause)


def test_a_sticky_decision_holds_for_later_calls() -> None:
    first = (begin(gated("f")), answer(1, calls("f", "c0")), wants("t1-0"))
    approved = (*first, says_yes(always=True), asks("t1-0"), ends("t1-0"))
    assert asked(after(*approved, answer(2, calls("f", "c1")))) == ["t2-0"]
    refused = fold(*first, says_no(always=True), answer(2, calls("f", "c1")))
    assert next_step(refused) == AskModel(3)
    assert items(refused)[-1] == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "Tool execution was not approved.",
    }


def test_where_a_function_decides_the_host_is_asked_before_anything_is_done() -> None:
    start = begin(gated("f", "ask_host"))
    turn = answer(1, calls("f", "c0"), calls("f", "c1", '{"x":1}'))
    assert asked(after(start, turn)) == ["t1-review"]
    review = host("t1-review", Reviewed(needs_approval=["t1-1"]), "review")
    step = after(start, turn, *review)
    assert isinstance(step, Ask)
    assert ([it.call for it in step.calls], [it.call for it in step.approvals]) == (
        ["t1-0"],
        ["t1-1"],
    )


def test_partial_decisions_run_what_is_decided_and_wait_again() -> None:
    start = begin(gated("f"))
    turn = answer(1, calls("f", "c0"), calls("f", "c1", '{"x":1}'))
    events = (start, turn, wants("t1-0"), wants("t1-1"), says_yes("t1-0"))
    assert asked(after(*events)) == ["t1-0"]
    step = after(*events, asks("t1-0"), ends("t1-0"))
    assert isinstance(step, Pause)
    assert [it.call for it in step.waiting.approvals] == ["t1-1"]


def test_an_expired_question_fails_the_run_where_that_was_chosen() -> None:
    expired = says_no(expired=True)
    start = begin(gated("f"), options={"approval_expiry": "fail"})
    step = after(start, answer(1, calls("f", "c0")), wants("t1-0"), expired)
    assert error_of(step).code == "approval_expired"


def test_a_handoff_waits_for_the_people_too() -> None:
    start = begin(gated("f"), handoffs=[to_b()])
    both = (start, answer(1, calls("f", "c0"), calls("to_b", "c1")), wants("t1-0"))
    assert isinstance(after(*both), Pause)
    assert isinstance(after(*both, says_no()), HandOver)


def test_a_session_has_what_is_done_before_people_are_asked() -> None:
    session = SessionUse(id="own", kind="host", merges=True)
    start = begin(gated("f"), "g", options={"session": session})
    turn = answer(1, calls("f", "c0"), calls("g", "c1"))
    events = [start, *host("t0-history", {"history": []}, "history")]
    events += [asks("t0-save", "save", 0), ends("t0-save", None, kind="save", turn=0)]
    events += [turn, wants("t1-0"), asks("t1-1"), ends("t1-1", "looked")]
    step = after(*events)
    assert isinstance(step, Ask) and asked(step) == ["t1-save"]
    assert len(fold(*events).said) == 2
    events.append(step.calls[0])
    assert len(fold(*events).said) == 3  # with the outcome of the call that is done
    events.append(ends("t1-save", None, kind="save"))
    paused = after(*events)
    assert isinstance(paused, Pause)
    events += [paused.waiting, says_yes(), asks("t1-0"), ends("t1-0", "paid")]
    said = [bytes(item) for item in fold(*events).said]
    assert [b"looked" in said[2], b"paid" in said[3], len(said)] == [True, True, 4]
    assert asked(after(*events)) == ["t1-save1"]
    assert fold(*events).session_has == 3


def test_a_pause_of_an_earlier_release_left_the_outcomes_to_the_next_write() -> None:
    session = SessionUse(id="own", kind="host", merges=True)
    start = begin(gated("f"), "g", options={"session": session})
    turn = answer(1, calls("f", "c0"), calls("g", "c1"))
    events = [start, *host("t0-history", {"history": []}, "history")]
    events += [asks("t0-save", "save", 0), ends("t0-save", None, kind="save", turn=0)]
    events += [turn, wants("t1-0"), asks("t1-1"), ends("t1-1", "looked")]
    events += [asks("t1-save", "save"), ends("t1-save", None, kind="save")]
    assert fold(*events).session_has == 2
    assert asked(after(*events)) == ["t1-save1"]


# --- guardrails and hooks -------------------------------------------------------------------------


def test_blocking_guardrails_come_first_and_parallel_ones_beside_the_model() -> None:
    start = begin(guards=["blocking", "parallel"])
    assert asked(after(start)) == ["t1-guard"]
    step = after(start, *host("t1-guard", None, "guard"))
    assert isinstance(step, AskModel)
    assert [it.call for it in step.beside] == ["t1-guards"]


def test_a_parallel_guardrail_does_not_start_the_first_turn_again() -> None:
    request = CallRequested(
        call="t1-guards", kind="guard", turn=1, agent="a", name="parallel", reply_pool="main"
    )
    state = fold(begin(guards=["parallel"]), request, ends("t1-guards", {}, kind="guard"))
    assert state.trigger == 1


def test_announced_guardrails_begin_before_the_model_is_asked() -> None:
    start = begin(guards=["parallel"], guards_announced=True)
    step = after(start)
    assert asked(step) == ["t1-guards"]
    assert isinstance(step, Ask)
    events = (start, step.calls[0])
    assert after(*events) == Wait()
    verdict = ends("t1-guards", {}, kind="guard")
    assert after(*events, verdict) == AskModel(1)
    assert fold(*events, verdict).trigger == 3
    refused = ends("t1-guards", None, kind="guard", error=TRIP)
    assert isinstance(after(*events, refused), Finish)


def test_slow_guardrails_free_the_first_turn_once() -> None:
    start = begin(guards=["parallel"], guards_announced=True)
    step = after(start)
    assert isinstance(step, Ask)
    looking = ends("t1-guards-looking", None, kind="guard")
    events = (start, step.calls[0], looking)
    assert after(*events) == AskModel(1)
    assert fold(*events).trigger == 3
    # the model was asked for the early word: the verdict must not let somebody else ask it, too
    assert fold(*events, ends("t1-guards", {}, kind="guard")).trigger == 3
    assert after(*events, answer(1, says("hello"))) == Wait()
    moved = RunMoved(pool="main", host="h")
    assert asked(after(*events, moved)) == ["t1-guards"]


@pytest.mark.parametrize("announced", [False, True])
def test_a_run_that_was_taken_over_has_its_input_checked_after_all(announced: bool) -> None:
    start = begin(guards=["parallel"], guards_announced=announced)
    request = CallRequested(
        call="t1-guards", kind="guard", turn=1, agent="a", name="parallel", reply_pool="main"
    )
    events: list[RunEvent] = [start, request]
    if announced:
        events.append(ends("t1-guards-looking", None, kind="guard"))
    events += [answer(1, says("hello")), RunMoved(pool="main", host="h")]
    assert asked(after(*events)) == ["t1-guards"]
    events.append(request)
    assert after(*events) == Wait()
    verdict = ends("t1-guards", {}, kind="guard")
    assert isinstance(after(*events, verdict), Finish)
    assert fold(*events, verdict).trigger == len(events) + 1
    refused = after(*events, ends("t1-guards", None, kind="guard", error=TRIP))
    assert isinstance(refused, Finish) and refused.done.status == "guardrail"


def test_a_tripped_guardrail_ends_the_run_and_an_open_one_holds_up_its_end() -> None:
    request = CallRequested(
        call="t1-guards", kind="guard", turn=1, agent="a", name="parallel", reply_pool="main"
    )
    start = (begin(guards=["parallel"]), request)
    step = after(*start, ends("t1-guards", None, kind="guard", error=TRIP))
    assert isinstance(step, Finish)
    assert step.done.status == "guardrail"
    assert after(*start, answer(1, says("hello"))) == Wait()
    done = after(*start, answer(1, says("hello")), ends("t1-guards", {}, kind="guard"))
    assert isinstance(done, Finish) and done.done.status == "completed"


def test_the_hook_of_the_end_waits_for_no_guardrail_and_the_outputs_for_the_inputs() -> None:
    request = CallRequested(
        call="t1-guards", kind="guard", turn=1, agent="a", name="parallel", reply_pool="main"
    )
    start = begin(guards=["parallel"], checks_output=True, hooks=["agent_end"])
    events = (start, request, answer(1, says("hello")))
    step = after(*events)
    assert isinstance(step, Ask) and asked(step) == ["t1-end"]
    assert (step.calls[0].name, step.calls[0].value) == ("agent_end", Raw(b'"hello"'))
    ended = (*events, asks("t1-end", "finish"), ends("t1-end", None, kind="finish"))
    assert after(*ended) == Wait()
    assert asked(after(*ended, ends("t1-guards", {}, kind="guard"))) == ["t1-finish"]


def test_the_final_output_passes_its_guardrails() -> None:
    start = begin(checks_output=True)
    step = after(start, answer(1, says("hello")))
    assert asked(step) == ["t1-finish"]
    assert isinstance(step, Ask) and step.calls[0].value == Raw(b'"hello"')
    trip = ErrorInfo(code="output_guardrail", message="no")
    step = after(
        start,
        answer(1, says("hello")),
        asks("t1-finish", "finish"),
        ends("t1-finish", None, kind="finish", error=trip),
    )
    assert isinstance(step, Finish) and step.done.status == "guardrail"


def test_hooks_ask_the_host_only_where_they_are() -> None:
    assert asked(after(begin(hooks=["agent_start"]))) == ["t1-prepare"]
    assert after(begin(hooks=["tool_start"])) == AskModel(1)
    assert asked(after(begin(hooks=["llm_end"]), answer(1, says("x")))) == ["t1-review"]


# --- child runs -----------------------------------------------------------------------------------


def parent(**child: Any) -> RunEvent:
    start = begin(agent_tool(**child))
    graph = msgspec.structs.replace(
        start.graph, children={"sub": ChildGraph(start="a", agents=start.graph.agents)}
    )
    return msgspec.structs.replace(start, graph=graph)


CALL = answer(1, calls("sub", "c0", '{"input":"do"}'))


def child_asked(call: str = "t1-0") -> CallRequested:
    return CallRequested(
        call=call, kind="child", turn=1, agent="a", reply_pool="main", child=f"{RUN}_{call}"
    )


def child_ends(output: object = "done", **more: Any) -> CallFinished:
    finished = ends("t1-0", output, kind="child", error=more.pop("error", None))
    return msgspec.structs.replace(finished, **more)


def test_an_agent_as_a_tool_is_a_run_of_its_own() -> None:
    step = after(parent(), CALL)
    assert isinstance(step, Ask)
    assert (step.calls[0].kind, step.calls[0].child) == ("child", f"{RUN}_t1-0")
    state = fold(parent(), CALL, child_asked(), child_ends("the answer"))
    assert next_step(state) == AskModel(2)
    assert items(state)[-1]["output"] == "the answer"


def test_a_failed_child_is_told_raised_or_explained_by_the_host() -> None:
    failed = child_ends(None, error=BOOM)
    state = fold(parent(), CALL, child_asked(), failed)
    assert items(state)[-1]["output"].startswith("An error occurred while running the tool")
    assert error_of(after(parent(failure="raise"), CALL, child_asked(), failed)) == BOOM
    assert asked(after(parent(failure="host"), CALL, child_asked(), failed)) == ["t1-0-output"]


def test_the_host_makes_input_and_output_where_it_was_asked_to() -> None:
    start = parent(input="host", output="host")
    assert asked(after(start, CALL)) == ["t1-0-input"]
    given = host("t1-0-input", None, "child_input")
    given[1] = ends("t1-0-input", {"input": []}, kind="child_input")
    assert asked(after(start, CALL, *given)) == ["t1-0"]
    over = (start, CALL, *given, child_asked(), child_ends({"x": 1}))
    assert asked(after(*over)) == ["t1-0-output"]
    state = fold(
        *over, asks("t1-0-output", "child_output"), ends("t1-0-output", "neat", kind="child_output")
    )
    assert items(state)[-1]["output"] == "neat"


def test_a_watched_child_is_settled_when_its_watcher_is() -> None:
    start = parent(watch=True)
    assert asked(after(start, CALL)) == ["t1-0-watch", "t1-0"]
    so_far = (start, CALL, child_asked(), asks("t1-0-watch", "watch"), child_ends("x"))
    assert after(*so_far) == Wait()
    assert after(*so_far, ends("t1-0-watch", {}, kind="watch")) == AskModel(2)


def test_what_children_use_counts_for_the_parent() -> None:
    from sandstream_bus.wire.messages import TokenUsage

    used = TokenUsage(requests=2, total_tokens=100)
    state = fold(parent(), CALL, child_asked(), child_ends(usage=used, turns=2, tool_calls=3))
    assert state.usage.total_tokens - fold(parent(), CALL).usage.total_tokens == 100
    assert (state.tree_turns, state.tool_calls_made) == (3, 4)


def test_a_waiting_child_makes_its_parent_wait_with_its_questions() -> None:
    waiting = ChildWaiting(
        call="t1-0", turn=1, child=f"{RUN}_t1-0", approvals=[wants("t2-0", run=f"{RUN}_t1-0")]
    )
    so_far = (parent(), CALL, child_asked(), waiting)
    step = after(*so_far)
    assert isinstance(step, Pause)
    assert [it.run for it in step.waiting.approvals] == [f"{RUN}_t1-0"]
    answered = says_yes("t2-0", run=f"{RUN}_t1-0")
    assert after(*so_far, step.waiting, answered) == Wait()
    assert fold(*so_far, step.waiting, answered).open_approvals() == []


def test_after_a_move_children_are_asked_for_again() -> None:
    moved = RunMoved(pool="main2", host="h9")
    step = after(parent(), CALL, child_asked(), moved)
    assert asked(step) == ["t1-0"]
    assert isinstance(step, Ask) and step.calls[0].reply_pool == "main2"


def test_after_a_move_a_child_that_waits_comes_along() -> None:
    waiting = ChildWaiting(
        call="t1-0", turn=1, child=f"{RUN}_t1-0", approvals=[wants("t2-0", run=f"{RUN}_t1-0")]
    )
    paused = after(parent(), CALL, child_asked(), waiting)
    assert isinstance(paused, Pause)
    moved = RunMoved(pool="main2", host="h9")
    so_far = (parent(), CALL, child_asked(), waiting, paused.waiting, moved)
    assert asked(after(*so_far)) == ["t1-0"]
    assert [it.call for it in fold(*so_far).open_approvals()] == ["t2-0"]


def test_a_question_that_was_answered_here_is_not_open_again_when_the_child_repeats_it() -> None:
    child = f"{RUN}_t1-0"
    waiting = ChildWaiting(
        call="t1-0", turn=1, child=child, approvals=[wants("t2-0", run=child), wants("t2-1")]
    )
    so_far = (parent(), CALL, child_asked(), waiting, says_yes("t2-0", run=child), waiting)
    state = fold(*so_far)
    assert [it.call for it in state.open_approvals()] == ["t2-1"]
    assert [it.call for it in state.decided_below.values()] == ["t2-0"]


def test_a_cancelled_parent_knows_its_open_children() -> None:
    state = fold(parent(), CALL, child_asked(), CancelRequested())
    assert isinstance(next_step(state), Finish)
    assert [it.child for it in state.open_children()] == [f"{RUN}_t1-0"]


# --- budgets --------------------------------------------------------------------------------------


def test_a_budget_is_checked_before_each_effect() -> None:
    def budget(**limits: Any) -> RunEvent:
        return begin("f", options={"budget": Budget(**limits)})

    one = (answer(1, calls("f", "c0")), asks("t1-0"), ends("t1-0"))
    for limits in ({"turns": 1}, {"tokens": 1}):
        step = after(budget(**limits), *one)
        assert isinstance(step, Finish) and step.done.status == "budget"
        assert error_of(step).data == {"budget": next(iter(limits))}
    two = answer(1, calls("f", "c0"), calls("f", "c1", '{"x":1}'))
    assert error_of(after(budget(tool_calls=1), two)).code == "budget"
    assert asked(after(budget(tool_calls=2), two)) == ["t1-0", "t1-1"]
    over = CancelRequested(code="budget", reason="the time is over")
    step = after(budget(seconds=1), over)
    assert isinstance(step, Finish) and step.done.status == "budget"


# --- conversations --------------------------------------------------------------------------------


def test_a_run_of_a_conversation_waits_for_its_history() -> None:
    start = begin(options={"session": SessionUse(id="s")})
    assert after(start) == OpenConversation()
    past = raw({"role": "user", "content": "before"})
    state = fold(start, ConversationOpened(history=[past]))
    assert next_step(state) == AskModel(1)
    assert [it["content"] for it in items(state)] == ["before", "hi"]
    assert state.own_input == [raw({"role": "user", "content": "hi"})]


def test_a_users_session_is_read_once_and_written_turn_by_turn() -> None:
    start = begin("f", options={"session": SessionUse(id="s", kind="host", merges=True)})
    assert asked(after(start)) == ["t0-history"]
    past = History(history=[raw({"role": "user", "content": "before"})])
    read = (start, *host("t0-history", past, "history", 0))
    assert asked(after(*read)) == ["t0-save"]
    saved = (*read, *host("t0-save", None, "save", 0))
    assert after(*saved) == AskModel(1)
    turn = (*saved, answer(1, calls("f", "c0")), asks("t1-0"), ends("t1-0"))
    assert asked(after(*turn)) == ["t1-save"]
    second = (*turn, *host("t1-save", None, "save"), answer(2, says("bye")))
    assert asked(after(*second)) == ["t2-save"]
    assert isinstance(after(*second, *host("t2-save", None, "save", 2)), Finish)


def test_input_that_comes_meanwhile_is_for_the_next_turn() -> None:
    more = InputStaged(input="and more")
    state = fold(begin(), more)
    assert items(state)[-1] == {"role": "user", "content": "and more"}
    # the model was asked before it came: it is still to be said
    state = fold(begin(), more, answer(1, says("bye"), upto=1))
    assert next_step(state) == AskModel(2)
    assert [it.get("content") for it in items(state)][-1] == "and more"
    state = fold(begin(), more, answer(1, says("bye"), upto=2))
    assert isinstance(next_step(state), Finish)
    assert state.staged == []
