"""What a retry forgets and what it keeps, as functions: no server, no clock."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sandstream_actors.harness.retry_plan import CannotRetry, plan_retry
from sandstream_actors.harness.step_kinds import Ask, AskModel, OpenConversation, Step, Wait
from sandstream_actors.harness.steps import next_step
from sandstream_actors.run.conversation import said_in
from sandstream_actors.run.ends import Finish
from sandstream_actors.run.retry import with_attempts
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallRequested,
    ConversationOpened,
    ErrorInfo,
    InputStaged,
    ModelDeferred,
    RetryRequested,
    RunDone,
    RunEvent,
    RunMoved,
    RunReopened,
    TokenUsage,
)
from sandstream_bus.wire.specs import ChildSpec, OutputSpec, SessionUse, ToolSpec, ToolUseSpec
from support.scripted_log import RUN, answer, asks, begin, calls, ends, log, raw, refuses, says

BOOM = ErrorInfo(code="tool_error", message="boom")


def failed_with(error: ErrorInfo = BOOM, status: str = "failed") -> RunDone:
    return RunDone(status=status, agent="a", turns=1, usage=TokenUsage(), error=error)  # type: ignore[arg-type]


def retried(*events: RunEvent, **wanted: Any) -> tuple[RunState, RunReopened]:
    """The state after a retry of the run that these events make, and the event that says so."""
    events = (*events, _end_of(*events))
    reopened = plan_retry(RUN, log(*events), RetryRequested(**wanted))
    # what crosses the wire is what counts
    reopened = msgspec.json.decode(msgspec.json.encode(reopened), type=RunReopened)
    return RunState.of(RUN, log(*events, reopened)), reopened


def _end_of(*events: RunEvent) -> RunDone:
    step = next_step(RunState.of(RUN, log(*events)))
    return step.done if isinstance(step, Finish) else failed_with()


def asked(step: Step) -> list[str]:
    assert isinstance(step, Ask), step
    return [call.call for call in step.calls]


def test_a_model_that_failed_is_asked_again_at_once() -> None:
    waits = ModelDeferred(turn=1, attempt=3, delay_s=9, waited_s=80, error=BOOM)
    state, reopened = retried(begin(), waits)
    assert (reopened.forgets, reopened.drops_answer) == ([], False)
    assert next_step(state) == AskModel(1)
    assert (state.waited_s, state.wait_attempts) == (0.0, 0)


def test_only_the_failed_call_is_forgotten() -> None:
    turn = answer(1, calls("f", "c1"), calls("f", "c2"), calls("f", "c3"))
    events: list[RunEvent] = [begin("f"), turn, asks("t1-0"), asks("t1-1"), asks("t1-2")]
    events += [ends("t1-0", "one"), ends("t1-1", None, error=BOOM)]
    state, reopened = retried(*events)
    assert reopened.forgets == ["t1-1"]
    assert asked(next_step(state)) == ["t1-1", "t1-2"]  # and the one without an outcome
    again: list[RunEvent] = [asks("t1-1"), asks("t1-2"), ends("t1-1", "two"), ends("t1-2", "three")]
    for number, event in enumerate(again):
        state.apply(100 + number, event)
    assert next_step(state) == AskModel(2)
    outputs = [msgspec.json.decode(it).get("output") for it in state.items]
    assert [it for it in outputs if it] == ["one", "two", "three"]


def test_an_outcome_that_comes_after_the_end_counts() -> None:
    events: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1"), calls("f", "c2"))]
    events += [asks("t1-0"), asks("t1-1"), ends("t1-0", None, error=BOOM), failed_with()]
    late: list[RunEvent] = [*events, ends("t1-1", "late")]
    reopened = plan_retry(RUN, log(*late), RetryRequested())
    state = RunState.of(RUN, log(*late, reopened))
    assert asked(next_step(state)) == ["t1-0"]


def test_the_end_of_a_child_run_before_the_retry_does_not_count_after_it() -> None:
    child = ChildSpec(graph="g", failure="raise")
    tool = ToolSpec(name="f", definition=raw({"type": "function"}), child=child)
    request = asks("t1-0", "child")
    failed = ends("t1-0", None, kind="child", error=BOOM)
    state, reopened = retried(begin(tool), answer(1, calls("f", "c1")), request, failed)
    assert reopened.forgets == ["t1-0"]
    step = next_step(state)
    assert asked(step) == ["t1-0"] and isinstance(step, Ask)
    [again] = with_attempts(state, step.calls)
    assert again.attempt == 1
    state.apply(100, again)
    state.apply(101, failed)  # told once more, by whoever wrote it
    assert next_step(state) == Wait()
    state.apply(102, msgspec.structs.replace(ends("t1-0", kind="child"), attempt=1))
    assert next_step(state) == AskModel(2)


@pytest.mark.parametrize("bad", [calls("nothing", "c9"), refuses("no")])
def test_a_wrong_answer_is_dropped(bad: Any) -> None:
    before = RunState.of(RUN, log(begin("f")))
    state, reopened = retried(begin("f"), answer(1, bad, response_id="resp"))
    assert reopened.drops_answer
    assert next_step(state) == AskModel(1)
    assert (state.turn, state.items, state.response_id) == (0, before.items, before.response_id)
    assert state.usage.requests == 1  # it has cost something all the same


def test_an_answer_of_the_wrong_form_is_dropped() -> None:
    output = OutputSpec(name="o", schema=raw({}), validated=True)
    wrong = ErrorInfo(code="model_behavior", message="no JSON")
    events: list[RunEvent] = [
        begin(output=output),
        answer(1, says("{")),
        asks("t1-output", "output"),
    ]
    state, reopened = retried(*events, ends("t1-output", None, kind="output", error=wrong))
    assert reopened.drops_answer and next_step(state) == AskModel(1)
    state.apply(100, answer(1, says("{}")))
    assert asked(next_step(state)) == ["t1-output"]


def test_an_answer_whose_calls_were_made_is_kept() -> None:
    wrong = ErrorInfo(code="model_behavior", message="odd")
    events: list[RunEvent] = [
        begin("f"),
        answer(1, calls("f", "c1")),
        asks("t1-0"),
        ends("t1-0", None, error=wrong),
    ]
    state, reopened = retried(*events)
    assert not reopened.drops_answer and asked(next_step(state)) == ["t1-0"]


def test_an_answer_is_kept_if_the_one_after_it_could_not_be_written() -> None:
    too_large = ErrorInfo(code="model_behavior", message="The answer: too large")
    searched = raw({"type": "web_search_call", "id": "w", "status": "completed"})
    events: list[RunEvent] = [begin(), answer(1, searched), failed_with(too_large)]
    reopened = plan_retry(RUN, log(*events), RetryRequested())
    assert not reopened.drops_answer
    assert next_step(RunState.of(RUN, log(*events, reopened))) == AskModel(2)


def test_a_question_that_nobody_answered_in_time_is_asked_again() -> None:
    tool = ToolSpec(name="f", definition=raw({"type": "function"}), approval="always")
    options = {"approval_expiry": "fail", "approval_expires_s": 5.0}
    question = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c1")
    expired = ApprovalDecided(call="t1-0", approve=False, by="timer", expired=True)
    events: list[RunEvent] = [
        begin(tool, options=options),
        answer(1, calls("f", "c1")),
        question,
        expired,
    ]
    state, reopened = retried(*events)
    assert reopened.forgets == ["t1-0"]
    step = next_step(state)
    assert isinstance(step, Ask) and [it.call for it in step.approvals] == ["t1-0"]


def test_a_guardrail_that_refused_the_input_looks_again_however_far_the_run_is() -> None:
    guards = CallRequested(
        call="t1-guards", kind="guard", turn=1, agent="a", name="parallel", reply_pool="main"
    )
    tripped = ErrorInfo(code="input_guardrail", message="no")
    events: list[RunEvent] = [begin(guards=["parallel"]), guards, answer(1, says("done"))]
    state, reopened = retried(*events, ends("t1-guards", None, kind="guard", error=tripped))
    assert reopened.forgets == ["t1-guards"] and not reopened.drops_answer
    assert asked(next_step(state)) == ["t1-guards"]


def test_a_guardrail_that_had_not_answered_is_asked_again_after_a_move() -> None:
    guards = CallRequested(
        call="t1-guards", kind="guard", turn=1, agent="a", name="parallel", reply_pool="main"
    )
    events: list[RunEvent] = [begin(guards=["parallel"]), guards, answer(1, says("done"))]
    state = RunState.of(RUN, log(*events, RunMoved(pool="p", host="h9")))
    assert asked(next_step(state)) == ["t1-guards"]


def test_the_conversation_is_joined_again() -> None:
    options = {"session": SessionUse(id="s")}
    state, _ = retried(begin(options=options))
    assert next_step(state) == OpenConversation()


@pytest.mark.parametrize(
    ("events", "wanted", "why"),
    [
        ([begin(options={"max_turns": 0})], {}, "would fail again at once: Max turns (0) exceeded"),
        ([begin()], {"max_turns": 10}, "has a limit of 10 of turns, and 10 is not more"),
        ([begin(options={"max_turns": None})], {"max_turns": 9}, "has no limit of turns"),
    ],
)
def test_what_cannot_help_is_refused(events: list[RunEvent], wanted: Any, why: str) -> None:
    with pytest.raises(CannotRetry) as refused:
        retried(*events, **wanted)
    assert why in str(refused.value)


def test_an_old_reader_of_a_retry_only_reopens() -> None:
    """What an older version reads of the event: its reason."""
    data = msgspec.json.encode(RunReopened(reason="r", retry=True, forgets=["t1-0"]))
    assert msgspec.json.decode(data)["reason"] == "r"
    assert msgspec.json.encode(RunReopened(reason="r")) == b'{"type":"run.reopened","reason":"r"}'


def outputs(state: RunState) -> list[str]:
    """The outcomes of calls that the model reads."""
    found = [msgspec.json.decode(it).get("output") for it in state.items]
    return [it for it in found if it is not None]


def test_the_model_reads_what_came_of_a_child_run_that_was_asked_again() -> None:
    child = ChildSpec(graph="g", failure="raise")
    tool = ToolSpec(name="f", definition=raw({"type": "function"}), child=child)
    failed = ends("t1-0", None, kind="child", error=BOOM)
    events: list[RunEvent] = [
        begin(tool),
        answer(1, calls("f", "c1")),
        asks("t1-0", "child"),
        failed,
    ]
    state, _ = retried(*events)
    state.apply(100, msgspec.structs.replace(asks("t1-0", "child"), attempt=1))
    state.apply(101, msgspec.structs.replace(ends("t1-0", "fine", kind="child"), attempt=1))
    assert next_step(state) == AskModel(2)
    assert outputs(state) == ["fine"]


def test_the_model_reads_what_came_of_a_question_that_was_asked_again() -> None:
    tool = ToolSpec(name="f", definition=raw({"type": "function"}), approval="always")
    options = {"approval_expiry": "fail", "approval_expires_s": 5.0}
    question = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c1")
    expired = ApprovalDecided(call="t1-0", approve=False, by="timer", expired=True)
    events: list[RunEvent] = [
        begin(tool, options=options),
        answer(1, calls("f", "c1")),
        question,
        expired,
    ]
    state, _ = retried(*events)
    yes = ApprovalDecided(call="t1-0", approve=True)
    again: list[RunEvent] = [question, yes, asks("t1-0"), ends("t1-0", "fine")]
    for number, event in enumerate(again):
        state.apply(100 + number, event)
    assert next_step(state) == AskModel(2)
    assert outputs(state) == ["fine"]


def test_a_wrong_answer_is_dropped_whatever_was_said_while_it_was_made() -> None:
    more = InputStaged(input=[raw({"role": "user", "content": "more"})])
    events: list[RunEvent] = [begin("f"), more, answer(1, calls("nothing", "c9"), upto=1)]
    state, reopened = retried(*events)
    assert reopened.drops_answer and next_step(state) == AskModel(1)
    assert state.items == []
    assert [msgspec.json.decode(it)["content"] for it in state.conversation()] == ["hi", "more"]


@pytest.mark.parametrize("parts", [0, 1])
def test_a_conversation_has_one_outcome_of_a_call_that_was_refused_at_first(parts: int) -> None:
    options = {"session": SessionUse(id="s")}
    start = begin(
        "f", options=options, tool_use=ToolUseSpec(kind="stop_on_first"), checks_output=True
    )
    turn = answer(1, *[says("Let me see.")][:parts], calls("f", "c1"))
    check = CallRequested(
        call="t1-finish", kind="finish", turn=1, agent="a", name="tool", reply_pool="main"
    )
    no = ErrorInfo(code="output_guardrail", message="no")
    opened = ConversationOpened(history=[])
    refused = ends("t1-finish", None, kind="finish", error=no)
    events: list[RunEvent] = [
        start,
        opened,
        turn,
        asks("t1-0"),
        ends("t1-0", "secret"),
        check,
        refused,
    ]
    before = said_in(RunState.of(RUN, log(*events)))
    state, _ = retried(*events)
    again: list[RunEvent] = [opened, check, ends("t1-finish", kind="finish")]
    for number, event in enumerate(again):
        state.apply(100 + number, event)
    # what was said before stays as it was heard, and nothing comes twice
    assert list(map(bytes, said_in(state))) == list(map(bytes, before))
    assert outputs(state) == ["secret"]
