"""Sessions and conversations as decisions: when they are read and written, and what. No server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.harness.step_kinds import Ask, AskModel, OpenConversation, Step, Wait
from sandstream_actors.harness.steps import next_step
from sandstream_actors.run.conversation import readable, said_in, why_closed
from sandstream_actors.run.ends import Finish
from sandstream_actors.run.model_request import seen_upto
from sandstream_actors.run.state import RunState
from sandstream_bus.errors import PayloadTooLarge
from sandstream_bus.logs.conversations import Conversation, ConversationBusy
from sandstream_bus.wire.conversations import (
    ConversationAdded,
    ConversationEvent,
    ConversationJoined,
    ConversationLeft,
)
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallKind,
    CancelRequested,
    ConversationOpened,
    ErrorInfo,
    History,
    InputStaged,
    PastEvent,
    Prepared,
    RunEvent,
    RunRestored,
    RunStarted,
    TurnRequested,
)
from sandstream_bus.wire.specs import SessionUse, ToolSpec
from support.scripted_log import RUN, answer, asks, begin, calls, ends, log, raw, says

TRIP = ErrorInfo(code="input_guardrail", message="tripped")
BOOM = ErrorInfo(code="tool_error", message="disk gone")


def said(text: str) -> Raw:
    return raw({"role": "user", "content": text})


def host_session(*tools: str | ToolSpec, **agent: Any) -> RunStarted:
    return begin(*tools, options={"session": SessionUse(id="s", kind="host")}, **agent)


def bus_session(**options: Any) -> RunStarted:
    return begin("f", options={"session": SessionUse(id="s", **options)})


def after(*events: RunEvent) -> Step:
    return next_step(fold(*events))


def fold(*events: RunEvent) -> RunState:
    return RunState.of(RUN, log(*events))


def asked(step: Step) -> list[str]:
    assert isinstance(step, Ask), step
    return [call.call for call in step.calls]


def done(call: str, kind: Any, turn: int = 0, output: Any = None) -> list[RunEvent]:
    plain = msgspec.json.decode(msgspec.json.encode(output))
    return [asks(call, kind, turn), ends(call, plain, kind=kind, turn=turn)]


def fails(call: str, kind: CallKind, turn: int, error: ErrorInfo) -> CallFinished:
    return CallFinished(call=call, kind=kind, turn=turn, error=error)


READ = done("t0-history", "history", 0, {"history": []})
BEGUN = [*READ, *done("t0-save", "save")]


# --- the user's session ---------------------------------------------------------------------------


def test_a_refused_input_is_kept() -> None:
    start = host_session(guards=["blocking"])
    assert asked(after(start, *READ)) == ["t1-guard"]
    tripped: list[RunEvent] = [
        start,
        *READ,
        asks("t1-guard", "guard"),
        fails("t1-guard", "guard", 1, TRIP),
    ]
    assert asked(after(*tripped)) == ["t0-save"]
    step = after(*tripped, *done("t0-save", "save"))
    assert isinstance(step, Finish) and step.done.status == "guardrail"


def test_a_session_that_cannot_be_written_ends_the_run() -> None:
    step = after(
        host_session(), *READ, asks("t0-save", "save", 0), fails("t0-save", "save", 0, BOOM)
    )
    assert isinstance(step, Finish) and step.done.error == BOOM


@pytest.mark.parametrize("why", ["max_turns", "cancel"])
def test_a_run_that_is_stopped_between_turns_stores_the_last_one(why: str) -> None:
    session = SessionUse(id="s", kind="host")
    limit = 1 if why == "max_turns" else 10
    start = begin("f", options={"session": session, "max_turns": limit})
    events = [start, *BEGUN, answer(1, calls("f", "c0")), asks("t1-0"), ends("t1-0")]
    if why == "cancel":
        events.append(CancelRequested(mode="after_turn"))
    assert asked(after(*events)) == ["t1-save"]
    assert isinstance(after(*events, *done("t1-save", "save", 1)), Finish)


def test_before_people_are_asked_the_session_gets_what_there_is() -> None:
    tool = ToolSpec(name="f", definition=raw({"type": "function", "name": "f"}), approval="always")
    request = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c0")
    waiting = [host_session(tool), *BEGUN, answer(1, calls("f", "c0")), request]
    assert asked(after(*waiting)) == ["t1-save"]
    # a person is quicker than the session: the outcome waits for another write
    quick = [
        *waiting,
        asks("t1-save", "save"),
        ApprovalDecided(call="t1-0", approve=True),
        asks("t1-0"),
        ends("t1-0"),
    ]
    assert after(*quick) == Wait()
    written = [*quick, ends("t1-save", None, kind="save")]
    assert asked(after(*written)) == ["t1-save1"]
    assert after(*written, *done("t1-save1", "save", 1)) == AskModel(2)


def test_what_a_callback_moved_is_kept_as_the_new_part() -> None:
    merged = History(history=[said("new"), said("old")], input=[], kept=[said("new")])
    state = fold(host_session(), *done("t0-history", "history", 0, merged))
    assert state.conversation() == [said("new"), said("old")]
    assert state.own_input == [said("new")]


# --- conversations on the bus ---------------------------------------------------------------------


def test_a_run_that_is_told_that_it_is_its_turn_looks_again() -> None:
    turn = TurnRequested(turn=1, agent="", reason="session")
    state = fold(bus_session(), turn)
    assert (next_step(state), state.trigger) == (OpenConversation(), 2)
    state = fold(bus_session(), ConversationOpened(history=[]), turn)
    assert (next_step(state), state.trigger) == (AskModel(1), 1)  # it is at work already


def test_a_restored_run_takes_its_turn_where_it_is_now() -> None:
    past: list[RunEvent] = [
        bus_session(),
        ConversationOpened(history=[said("old")]),
        answer(1, calls("f", "c0")),
        asks("t1-0"),
        CallFinished(call="t1-0", kind="tool", turn=1, output=raw("x")),
    ]
    events = [PastEvent(subject=f"x.{n}", body=raw(event)) for n, event in enumerate(past)]
    restored = RunRestored(events=events, pool="main", host="h")
    assert after(restored) == OpenConversation()
    state = fold(restored, ConversationOpened(history=[said("of others")]))
    assert state.history == [said("old")]
    assert next_step(state) == AskModel(2)


def test_only_what_a_model_has_answered_joins_the_history() -> None:
    opened = ConversationOpened(history=[said("old")])
    assert said_in(fold(bus_session(), opened)) == []
    state = fold(bus_session(), opened, answer(1, says("ok")), InputStaged(input="too late"))
    assert said_in(state) == [said("hi"), says("ok")]


def test_a_history_is_read_without_half_calls() -> None:
    output = raw({"type": "function_call_output", "call_id": "c0", "output": "x"})
    history = [said("1"), calls("f", "c0"), output, calls("f", "c1")]
    assert readable(history, None) == history[:3]
    assert readable(history, -1) == history[:3]
    assert readable(history, 2) == []
    assert readable(history, 0) == []
    assert readable(history, 9) == history[:3]


def test_why_a_run_cannot_take_part() -> None:
    busy = why_closed(ConversationBusy("s", "r1", "run r2 is refused"))
    assert busy.code == "conversation_busy" and "r1" in busy.message
    large = why_closed(PayloadTooLarge("a message", 3, 2))
    assert large.code == "conversation_too_large" and "limit" in large.message


def test_a_run_that_left_may_add_more() -> None:
    events: list[ConversationEvent] = [
        ConversationJoined(run="a", pool="p"),
        ConversationLeft(run="a", items=[said("1")]),
        ConversationJoined(run="b", pool="p"),
        ConversationAdded(items=[said("2"), said("3")], run="a"),
    ]
    conversation = Conversation("s")
    for sequence, event in enumerate(events, 1):
        conversation.apply(sequence, event)
    assert conversation.left == {"a": 3}
    assert conversation.is_held_by("b")
    assert conversation.history == [said("1"), said("2"), said("3")]
    assert Conversation("s", conversation.snapshot()).left == {"a": 3}


def test_a_filtered_input_is_as_old_as_the_filter() -> None:
    prepared = Prepared(input=[said("filtered")], upto=2)
    state = fold(begin(), *done("t1-prepare", "prepare", 1, prepared), InputStaged(input="more"))
    assert seen_upto(state) == 2
    assert seen_upto(fold(begin(), *done("t1-prepare", "prepare", 1, Prepared()))) == 3
