"""The agent loop as functions: fold a log, ask what is next. No server, no clock."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.harness.step_kinds import Ask, AskModel, RearmTimer, Step, Wait
from sandstream_actors.harness.steps import next_step
from sandstream_actors.run.ends import Finish
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import (
    CallStarted,
    CancelRequested,
    ErrorInfo,
    ModelDeferred,
    RunDone,
    RunEvent,
    RunReopened,
    TokenUsage,
    TurnRequested,
)
from sandstream_bus.wire.specs import OutputSpec, ToolSpec, ToolUseSpec
from support.scripted_log import (
    RUN,
    USAGE,
    answer,
    asks,
    begin,
    calls,
    ends,
    log,
    raw,
    refuses,
    says,
)

BOOM = ErrorInfo(code="tool_error", message="boom")


def fold(*events: RunEvent) -> RunState:
    return RunState.of(RUN, log(*events))


def after(*events: RunEvent) -> Step:
    return next_step(fold(*events))


def asked(step: Step) -> list[str]:
    assert isinstance(step, Ask), step
    return [call.call for call in step.calls]


def finished(step: Step) -> RunDone:
    assert isinstance(step, Finish), step
    return step.done


def output(step: Step) -> Any:
    end = finished(step)
    assert end.status == "completed", end.error
    return msgspec.json.decode(end.output)


def failure(step: Step) -> ErrorInfo:
    end = finished(step)
    assert end.status != "completed"
    assert end.error is not None
    return end.error


def contents(state: RunState) -> list[Any]:
    return [msgspec.json.decode(item) for item in state.conversation()]


# --- answers --------------------------------------------------------------------------------------


def test_an_empty_log_waits() -> None:
    assert after() == Wait()


def test_a_plain_answer() -> None:
    assert after(begin()) == AskModel(1)
    end = finished(after(begin(), answer(1, says("hello"))))
    assert end == RunDone(
        status="completed", agent="a", turns=1, usage=USAGE, output=Raw(b'"hello"')
    )


def test_after_the_end_nothing_is_next() -> None:
    end = RunDone(status="completed", agent="a", turns=1, usage=USAGE)
    assert after(begin(), answer(1, says("x")), end) == Wait()


def test_the_text_of_the_last_message_is_the_output() -> None:
    assert output(after(begin(), answer(1, says("first"), says("last")))) == "last"
    assert output(after(begin(), answer(1))) == ""
    assert output(after(begin(), answer(1, raw({"type": "reasoning", "id": "r"})))) == ""


def test_text_beside_a_tool_call_is_not_the_end() -> None:
    assert asked(after(begin("f"), answer(1, says("let me see"), calls("f", "c1")))) == ["t1-0"]


# --- tools ----------------------------------------------------------------------------------------


def test_a_tool_turn() -> None:
    events: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1", '{"x":1}'))]
    step = after(*events)
    assert isinstance(step, Ask)
    [request] = step.calls
    assert (request.call, request.kind, request.name) == ("t1-0", "tool", "f")
    assert (request.call_id, request.arguments, request.turn) == ("c1", '{"x":1}', 1)
    assert request.usage == USAGE
    events.append(request)
    assert after(*events) == Wait()
    events.append(ends("t1-0", "sunny"))
    assert after(*events) == AskModel(2)
    assert contents(fold(*events))[1:] == [
        {"type": "function_call", "name": "f", "call_id": "c1", "arguments": '{"x":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    ]
    events.append(answer(2, says("done")))
    assert output(after(*events)) == "done"
    assert finished(after(*events)).usage == USAGE.plus(USAGE)


def test_parallel_tools_are_asked_together_and_answered_in_the_order_of_the_calls() -> None:
    events: list[RunEvent] = [
        begin("f", "g"),
        answer(1, calls("f", "c1"), calls("g", "c2"), calls("f", "c3")),
    ]
    assert asked(after(*events)) == ["t1-0", "t1-1", "t1-2"]
    events += [asks("t1-1"), ends("t1-1", "two")]
    assert asked(after(*events)) == ["t1-0", "t1-2"]  # only what is missing
    events += [asks("t1-2"), asks("t1-0"), ends("t1-2", "three")]
    assert after(*events) == Wait()
    events.append(ends("t1-0", "one"))
    assert after(*events) == AskModel(2)
    outputs = [item["output"] for item in contents(fold(*events)) if "output" in item]
    assert outputs == ["one", "two", "three"]


def test_the_concurrency_limit_is_kept_by_asking_for_less() -> None:
    events: list[RunEvent] = [
        begin("f", options={"max_tool_concurrency": 2}),
        answer(1, *(calls("f", f"c{n}") for n in range(5))),
    ]
    assert asked(after(*events)) == ["t1-0", "t1-1"]
    events += [asks("t1-0")]
    assert asked(after(*events)) == ["t1-1"]
    events += [asks("t1-1")]
    assert after(*events) == Wait()
    events += [ends("t1-1")]
    assert asked(after(*events)) == ["t1-2"]
    events += [asks("t1-2"), ends("t1-0"), ends("t1-2")]
    assert asked(after(*events)) == ["t1-3", "t1-4"]


def test_at_most_once_is_told_to_the_host() -> None:
    tool = ToolSpec(name="pay", definition=raw({}), at_most_once=True)
    step = after(begin(tool, "f"), answer(1, calls("pay", "c1"), calls("f", "c2")))
    assert isinstance(step, Ask)
    assert [call.at_most_once for call in step.calls] == [True, False]


def test_an_error_that_is_told_to_the_model_goes_on() -> None:
    events: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1"))]
    events += [asks("t1-0"), ends("t1-0", "oh", error=BOOM)]
    assert after(*events) == AskModel(2)


def test_an_error_without_output_ends_the_run() -> None:
    events: list[RunEvent] = [
        begin("f"),
        answer(1, calls("f", "c1"), calls("f", "c2")),
        asks("t1-0"),
        asks("t1-1"),
        ends("t1-0", None, error=BOOM),
    ]
    assert failure(after(*events)) == BOOM
    assert finished(after(*events)).status == "failed"


def test_stop_on_first_tool() -> None:
    events: list[RunEvent] = [
        begin("f", tool_use=ToolUseSpec(kind="stop_on_first")),
        answer(1, calls("f", "c1"), calls("f", "c2")),
        asks("t1-0"),
        asks("t1-1"),
        ends("t1-1", "second"),
    ]
    assert after(*events) == Wait()
    end = finished(after(*events, ends("t1-0", "first", value={"n": 1})))
    assert msgspec.json.decode(end.output) == {"n": 1}
    assert end.output_from == "tool"
    assert output(after(*events, ends("t1-0", "first"))) == "first"


def test_stop_at_named_tools() -> None:
    start = begin("f", "g", tool_use=ToolUseSpec(kind="stop_at", names=["g"]))
    go_on: list[RunEvent] = [start, answer(1, calls("f", "c1")), asks("t1-0"), ends("t1-0")]
    assert after(*go_on) == AskModel(2)
    stop: list[RunEvent] = [*go_on, answer(2, calls("f", "c2"), calls("g", "c3"))]
    stop += [asks("t2-0", turn=2), asks("t2-1", turn=2)]
    stop += [ends("t2-0", "no", turn=2), ends("t2-1", "yes", turn=2)]
    assert output(after(*stop)) == "yes"


@pytest.mark.parametrize("final", [True, False])
def test_the_host_decides_whether_to_stop(final: bool) -> None:
    events: list[RunEvent] = [
        begin("f", tool_use=ToolUseSpec(kind="ask_host")),
        answer(1, calls("f", "c1")),
        asks("t1-0"),
        ends("t1-0"),
    ]
    step = after(*events)
    assert isinstance(step, Ask)
    assert [(call.call, call.kind) for call in step.calls] == [("t1-stop", "stop")]
    events += [asks("t1-stop", "stop")]
    assert after(*events) == Wait()
    events += [ends("t1-stop", {"final": final, "value": 42}, kind="stop")]
    if final:
        assert output(after(*events)) == 42
    else:
        assert after(*events) == AskModel(2)


# --- wrong answers --------------------------------------------------------------------------------


def test_an_unknown_tool_ends_the_run_or_is_told_to_the_model() -> None:
    strict = after(begin("f"), answer(1, calls("g", "c1")))
    assert failure(strict).code == "model_behavior"
    assert "g" in failure(strict).message
    assert failure(strict).data == {"tool": "g"}
    lenient = begin("f", options={"tool_not_found": "return_error_to_model"})
    assert asked(after(lenient, answer(1, calls("g", "c1")))) == ["t1-0"]  # the host answers


def test_a_disabled_tool_may_not_be_called() -> None:
    tool = ToolSpec(name="f", definition=raw({}), conditional=True)
    events: list[RunEvent] = [
        begin(tool),
        asks("t1-prepare", "prepare"),
        ends("t1-prepare", {"disabled_tools": ["f"]}, kind="prepare"),
        answer(1, calls("f", "c1")),
    ]
    assert failure(after(*events)).code == "model_behavior"


@pytest.mark.parametrize(
    "item",
    [
        raw({"type": "function_call", "name": "f", "arguments": "{}"}),
        raw({"type": "function_call", "name": "f", "call_id": 7, "arguments": "{}"}),
        raw({"type": "teleport_call"}),
        raw({"type": "message", "content": "not a list"}),
        raw("text"),
        raw(None),
        raw([]),
    ],
)
def test_answers_that_break_the_protocol(item: Raw) -> None:
    assert failure(after(begin("f"), answer(1, item))).code == "model_behavior"


def test_the_same_call_id_for_two_calls_is_misuse() -> None:
    step = after(begin("f"), answer(1, calls("f", "c1", '{"a":1}'), calls("f", "c1", '{"a":2}')))
    assert "c1" in failure(step).message
    assert failure(step).code == "model_behavior"


def test_a_replayed_call_is_not_made_twice_and_does_not_spoil_the_conversation() -> None:
    twice: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1"), calls("f", "c1"))]
    assert asked(after(*twice)) == ["t1-0"]
    events: list[RunEvent] = [
        begin("f"),
        answer(1, calls("f", "c1")),
        asks("t1-0"),
        ends("t1-0", "one"),
        answer(2, calls("f", "c1"), calls("f", "c2")),
        asks("t2-0", turn=2),
        ends("t2-0", "two", turn=2),
    ]
    assert asked(after(*events[:5])) == ["t2-0"]
    assert after(*events) == AskModel(3)
    ids = [item.get("call_id") for item in contents(fold(*events))]
    assert ids == [None, "c1", "c1", "c2", "c2"]  # each call once, each output once


def test_a_call_id_of_an_earlier_turn_for_another_call_is_misuse() -> None:
    events: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1")), asks("t1-0"), ends("t1-0")]
    assert failure(after(*events, answer(2, calls("f", "c1", '{"b":1}')))).code == "model_behavior"


def test_a_refusal() -> None:
    error = failure(after(begin(), answer(1, refuses("no way"))))
    assert error.code == "model_refusal"
    assert error.data == {"refusal": "no way"}


def test_a_refusal_with_a_handler() -> None:
    events: list[RunEvent] = [
        begin(options={"handled_errors": ["model_refusal"]}),
        answer(1, refuses("no")),
    ]
    step = after(*events)
    assert isinstance(step, Ask)
    assert step.calls[0].kind == "error"
    assert step.calls[0].error is not None
    events += [step.calls[0], ends("t1-error", {"final": True, "value": "sorry"}, kind="error")]
    end = finished(after(*events))
    assert (end.status, bytes(end.output), end.output_from) == ("completed", b'"sorry"', "handler")
    assert contents(fold(*events))[-1]["content"][0]["text"] == "sorry"


def test_a_handler_that_has_no_answer_leaves_the_error() -> None:
    events: list[RunEvent] = [
        begin(options={"handled_errors": ["model_refusal"]}),
        answer(1, refuses("no")),
        asks("t1-error", "error"),
        ends("t1-error", {"final": False}, kind="error"),
    ]
    assert failure(after(*events)).code == "model_refusal"


def test_a_hosted_tool_alone_asks_the_model_again() -> None:
    assert after(begin(), answer(1, raw({"type": "web_search_call"}))) == AskModel(2)
    both = answer(1, raw({"type": "web_search_call"}), says("found"))
    assert output(after(begin(), both)) == "found"


def test_an_unknown_start_agent_ends_the_run() -> None:
    start = begin()
    graph = msgspec.structs.replace(start.graph, start="ghost")
    step = after(msgspec.structs.replace(start, graph=graph))
    assert "ghost" in failure(step).message
    step = after(begin(), TurnRequested(turn=1, agent="ghost", reason="handoff"))
    assert "ghost" in failure(step).message


# --- structured output ----------------------------------------------------------------------------

OUTPUT = OutputSpec(name="Answer", schema=Raw(b"{}"))


def test_structured_output_is_validated_by_the_host() -> None:
    events: list[RunEvent] = [begin(output=OUTPUT), answer(1, says('{"n": 1}'))]
    step = after(*events)
    assert isinstance(step, Ask)
    assert (step.calls[0].call, step.calls[0].kind) == ("t1-output", "output")
    events += [step.calls[0]]
    assert after(*events) == Wait()
    valid = ends("t1-output", {"final": True}, kind="output")
    assert output(after(*events, valid)) == {"n": 1}
    invalid = ends("t1-output", None, kind="output", error=BOOM)
    assert failure(after(*events, invalid)) == BOOM
    handled = ends("t1-output", {"final": True, "value": {"n": 2}}, kind="output")
    assert finished(after(*events, handled)).output_from == "handler"


def test_structured_output_without_text_asks_the_model_again() -> None:
    assert after(begin(output=OUTPUT), answer(1)) == AskModel(2)


# --- limits ---------------------------------------------------------------------------------------


def two_turns(**options: Any) -> list[RunEvent]:
    return [
        begin("f", options={"max_turns": 1, **options}),
        answer(1, calls("f", "c1")),
        asks("t1-0"),
        ends("t1-0"),
    ]


def test_max_turns() -> None:
    end = finished(after(*two_turns()))
    assert end.status == "max_turns"
    assert end.error == ErrorInfo(code="max_turns", message="Max turns (1) exceeded")
    assert end.turns == 1
    assert after(*two_turns(max_turns=None)) == AskModel(2)
    assert finished(after(begin(options={"max_turns": 0}))).status == "max_turns"


def test_max_turns_with_a_handler() -> None:
    events = two_turns(handled_errors=["max_turns"])
    step = after(*events)
    assert isinstance(step, Ask)
    [request] = step.calls
    assert (request.call, request.kind) == ("t2-error", "error")
    assert request.error is not None
    assert request.error.code == "max_turns"
    events += [request, ends("t2-error", {"final": True, "value": {"so": "far"}}, kind="error")]
    assert output(after(*events)) == {"so": "far"}
    assert contents(fold(*events))[-1]["content"][0]["text"] == '{"so":"far"}'


def test_a_handler_may_stay_out_of_the_history() -> None:
    decision = {"final": True, "value": "x", "include_in_history": False}
    events = two_turns(handled_errors=["max_turns"])
    events += [asks("t2-error", "error", 2), ends("t2-error", decision, kind="error", turn=2)]
    assert output(after(*events)) == "x"
    assert contents(fold(*events))[-1]["type"] == "function_call_output"


# --- waiting --------------------------------------------------------------------------------------


def deferred(attempt: int = 1, turn: int = 1) -> ModelDeferred:
    error = ErrorInfo(code="model_http", message="429")
    return ModelDeferred(turn=turn, attempt=attempt, delay_s=9, waited_s=9.0 * attempt, error=error)


def test_a_rate_limit_waits_for_its_timer() -> None:
    assert after(begin(), deferred()) == RearmTimer()
    state = fold(begin(), deferred(), TurnRequested(turn=1, agent="a"))
    assert next_step(state) == AskModel(1)
    assert state.trigger == 3
    assert (state.waited_s, state.wait_attempts) == (9.0, 1)
    state.fold(log(deferred(2), first=4))
    assert next_step(state) == RearmTimer()
    assert state.wait_attempts == 2
    state.fold(log(TurnRequested(turn=1, agent="a"), answer(1, says("ok")), first=5))
    assert output(next_step(state)) == "ok"
    assert state.wait_attempts == 0
    assert state.usage.requests == 3


def test_a_timer_of_a_turn_that_is_over_is_ignored() -> None:
    late: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1"))]
    late += [asks("t1-0"), TurnRequested(turn=1, agent="b")]
    state = fold(*late)
    assert next_step(state) == Wait()
    assert state.agent_name == "a"
    assert after(begin(), answer(1, says("x")), deferred()) == after(begin(), answer(1, says("x")))


def test_preparation_comes_before_each_model_call() -> None:
    for start in (
        begin(dynamic=True),
        begin(options={"filters_input": True}),
        begin(ToolSpec(name="f", definition=raw({}), conditional=True)),
    ):
        assert asked(after(start)) == ["t1-prepare"]
        assert after(start, asks("t1-prepare", "prepare")) == Wait()
        prepared = ends("t1-prepare", {"instructions": "now"}, kind="prepare")
        state = fold(start, asks("t1-prepare", "prepare"), prepared)
        assert next_step(state) == AskModel(1)
        assert state.prepared is not None
        assert state.prepared.instructions == "now"
        assert state.trigger == 3
        state.fold(log(answer(1, raw({"type": "web_search_call"})), first=4))
        assert asked(next_step(state)) == ["t2-prepare"]


def test_a_preparation_that_fails_ends_the_run() -> None:
    bad = ends("t1-prepare", None, kind="prepare", error=BOOM)
    assert failure(after(begin(dynamic=True), asks("t1-prepare", "prepare"), bad)) == BOOM


def test_a_hosted_model_without_an_answer_ends_the_run() -> None:
    start, ask = begin(hosted_model=True), asks("t1-model", "model")
    told = ends("t1-model", "The result is too large", kind="model", error=BOOM)
    assert failure(after(start, ask, told)) == BOOM
    assert failure(after(start, ask, ends("t1-model", "?", kind="model"))).code == "bad_result"


def test_a_hosted_model_is_asked_through_the_host() -> None:
    start = begin(hosted_model=True)
    assert asked(after(start)) == ["t1-model"]
    assert after(start, asks("t1-model", "model")) == Wait()
    state = fold(start, asks("t1-model", "model"), answer(1, says("hi")))
    assert state.trigger == 3  # its answer wakes the harness
    assert output(next_step(state)) == "hi"
    failing = ends("t1-model", None, kind="model", error=BOOM)
    assert failure(after(start, asks("t1-model", "model"), failing)) == BOOM


# --- cancelling -----------------------------------------------------------------------------------


def test_cancel_at_once() -> None:
    cancel = CancelRequested(reason="enough")
    for events in (
        [begin()],
        [begin("f"), answer(1, calls("f", "c1")), asks("t1-0")],
        [begin(), answer(1, says("x"))],
        [begin(), deferred()],
    ):
        end = finished(after(*events, cancel))
        assert end.status == "cancelled"
        assert end.error is not None
        assert end.error.message == "enough"


def test_cancel_after_the_turn() -> None:
    cancel = CancelRequested(mode="after_turn")
    running: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1")), cancel]
    assert asked(after(*running)) == ["t1-0"]  # the turn is brought to its end
    assert finished(after(*running, asks("t1-0"), ends("t1-0"))).status == "cancelled"
    assert output(after(begin(), cancel, answer(1, says("done anyway")))) == "done anyway"
    assert finished(after(begin(), cancel)).status == "cancelled"
    both: list[RunEvent] = [*running, CancelRequested(mode="immediate")]
    assert finished(after(*both)).status == "cancelled"
    milder: list[RunEvent] = [begin("f"), answer(1, calls("f", "c")), CancelRequested(), cancel]
    assert finished(after(*milder)).status == "cancelled"


# --- what comes twice, late or from strangers -----------------------------------------------------


def test_a_second_answer_for_the_same_turn_is_ignored() -> None:
    events: list[RunEvent] = [begin(), answer(1, says("first")), answer(1, says("second"))]
    assert output(after(*events)) == "first"
    assert finished(after(*events)).usage == USAGE
    assert output(after(begin(), answer(1, says("x")), answer(7, says("y")))) == "x"


def test_second_late_and_foreign_results_are_ignored() -> None:
    events: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1"), calls("f", "c2"))]
    events += [asks("t1-0"), asks("t1-1"), ends("t1-0", "first"), ends("t1-0", "second")]
    state = fold(*events)
    assert bytes(state.results["t1-0"].output) == b'"first"'
    assert state.trigger == 5
    events += [ends("t9-9", "stranger"), ends("t1-1", "two")]
    assert after(*events) == AskModel(2)
    events += [answer(2, calls("f", "c3")), ends("t1-0", None, error=BOOM)]
    assert asked(after(*events)) == ["t2-0"]  # the old turn's error does no harm any more
    assert "second" not in str(contents(fold(*events)))


def test_a_second_start_is_ignored() -> None:
    assert fold(begin("f"), begin("g")).agent.tools[0].name == "f"


def test_a_reopened_run_goes_on_where_it_was() -> None:
    parked = RunDone(status="failed", agent="a", turns=0, usage=TokenUsage(), error=BOOM)
    state = fold(begin(), parked, RunReopened(reason="redriven"))
    assert next_step(state) == AskModel(1)
    assert state.trigger == 3
    assert state.dones == 1  # the next end gets another message id
    both = answer(1, calls("f", "c1"), calls("f", "c2"), calls("f", "c3"))
    asking: list[RunEvent] = [asks("t1-0"), asks("t1-1"), asks("t1-2"), ends("t1-1")]
    waiting: list[RunEvent] = [begin("f"), both, *asking, parked]
    assert after(*waiting) == Wait()
    # the parked call, and its sibling, whose host gave up when it saw the end, are asked again
    reopened: list[RunEvent] = [*waiting, RunReopened(reason="redriven")]
    assert asked(after(*reopened)) == ["t1-0", "t1-2"]
    reopened += [asks("t1-0"), asks("t1-2"), ends("t1-0"), ends("t1-2")]
    assert after(*reopened) == AskModel(2)


@pytest.mark.parametrize("kind", ["prepare", "stop", "output", "error"])
@pytest.mark.parametrize("junk", ["text", 7, [], {"final": "maybe", "disabled_tools": 3}])
def test_a_result_of_the_wrong_shape_ends_the_run_with_a_reason(kind: Any, junk: object) -> None:
    """Tool hosts may be written in any language: what they send can be wrong."""
    starts: dict[str, list[RunEvent]] = {
        "prepare": [begin(dynamic=True)],
        "stop": [
            begin("f", tool_use=ToolUseSpec(kind="ask_host")),
            answer(1, calls("f", "c1")),
            asks("t1-0"),
            ends("t1-0"),
        ],
        "output": [begin(output=OUTPUT), answer(1, says("{}"))],
        "error": [begin(options={"handled_errors": ["model_refusal"]}), answer(1, refuses("no"))],
    }
    call = f"t1-{kind}"
    step = after(*starts[kind], asks(call, kind), ends(call, junk, kind=kind))
    assert call in failure(step).message


def test_a_result_counts_as_what_was_asked_not_as_what_it_says_it_is() -> None:
    events: list[RunEvent] = [begin("f"), answer(1, calls("f", "c1"))]
    events += [asks("t1-0"), ends("t1-0", kind="prepare")]
    assert after(*events) == AskModel(2)


# --- server-managed conversations -----------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"previous_response_id": "resp_0"},
        {"conversation_id": "conv"},
        {"auto_previous_response_id": True},
    ],
)
def test_a_server_managed_conversation_sends_only_what_is_new(options: dict[str, Any]) -> None:
    state = fold(begin("f", options=options))
    assert len(state.conversation()) == 1
    state.fold(log(answer(1, calls("f", "c1"), response_id="resp_1"), first=2))
    assert state.response_id == "resp_1"
    state.fold(log(asks("t1-0"), ends("t1-0", "one"), first=3))
    assert contents(state) == [{"type": "function_call_output", "call_id": "c1", "output": "one"}]


def test_reasoning_ids_can_be_left_out() -> None:
    reasoning = raw({"type": "reasoning", "id": "rs_1", "summary": []})
    keep = fold(begin(), answer(1, reasoning, says("x")))
    omit = fold(begin(options={"reasoning_ids": "omit"}), answer(1, reasoning, says("x")))
    assert contents(keep)[1]["id"] == "rs_1"
    assert "id" not in contents(omit)[1]


# --- properties -----------------------------------------------------------------------------------


def long_log() -> list[RunEvent]:
    """A run that meets about everything: 12 turns, waits, errors, strangers, a reopening."""
    tool = ToolSpec(name="f", definition=raw({}), conditional=True)
    events: list[RunEvent] = [
        begin(
            tool,
            "g",
            options={"max_turns": None, "max_tool_concurrency": 2, "handled_errors": ["max_turns"]},
            tool_use=ToolUseSpec(kind="ask_host"),
        )
    ]
    for turn in range(1, 13):
        prepare = f"t{turn}-prepare"
        events += [asks(prepare, "prepare", turn)]
        events += [ends(prepare, {"instructions": str(turn)}, kind="prepare", turn=turn)]
        if turn % 4 == 0:
            events += [deferred(1, turn), deferred(2, turn), TurnRequested(turn=turn, agent="a")]
        items = [calls("f" if n % 2 else "g", f"c{turn}-{n}") for n in range(turn % 3 + 1)]
        items += [calls("f", "c1-1")] if turn == 5 else []
        events += [answer(turn, raw({"type": "reasoning", "id": "r"}), *items)]
        events += [answer(turn, says("a second answer"))]
        names = [f"t{turn}-{n}" for n in range(turn % 3 + 1)]
        for name in names:
            events += [asks(name, turn=turn), CallStarted(call=name, host="x")]
        for name in reversed(names):
            told = BOOM if turn == 3 else None
            events += [ends(name, f"out {name}", turn=turn, error=told), ends(name, "late")]
        if turn == 6:
            events += [RunDone(status="failed", agent="a", turns=6, usage=USAGE, error=BOOM)]
            events += [RunReopened(reason="again")]
        stop = f"t{turn}-stop"
        events += [asks(stop, "stop", turn), ends(stop, {"final": False}, kind="stop", turn=turn)]
    events += [CancelRequested(mode="after_turn"), CancelRequested(mode="immediate")]
    events += [RunDone(status="cancelled", agent="a", turns=12, usage=USAGE)]
    return events


def snapshot(state: RunState) -> dict[str, bytes]:
    """All of the state, but for what follows from the rest and is only remembered."""
    return {
        key: msgspec.json.encode(value, order="deterministic")
        for key, value in vars(state).items()
        if key != "_last_sorted"
    }


def test_folding_a_prefix_then_the_rest_is_folding_all() -> None:
    events = log(*long_log())
    whole = snapshot(RunState.of(RUN, events))
    for cut in range(len(events) + 1):
        state = RunState.of(RUN, events[:cut])
        next_step(state)  # looking changes nothing
        state.fold(events[cut:])
        assert snapshot(state) == whole, cut


def test_next_step_is_total_and_pure_for_every_prefix() -> None:
    events = log(*long_log())
    kinds: set[type] = set()
    for cut in range(len(events) + 1):
        state = RunState.of(RUN, events[:cut])
        before = snapshot(state)
        step = next_step(state)
        assert next_step(state) == step
        assert snapshot(state) == before
        kinds.add(type(step))
    assert kinds == {Wait, AskModel, Ask, RearmTimer, Finish}


@pytest.mark.parametrize("seed", range(20))
def test_any_order_and_any_loss_of_events_has_a_next_step(seed: int) -> None:
    """No real log looks like this; still nothing may raise."""
    rng = random.Random(seed)
    events = long_log()
    start, rest = events[0], events[1:]
    for _ in range(20):
        some = rng.sample(rest, rng.randint(0, len(rest)))
        state = RunState.of(RUN, log(*([start] if rng.random() < 0.9 else []), *some))
        next_step(state)
        if state.started is not None:
            state.conversation()
