"""The reader of one run: a row for each event, whole or as the run goes on."""

from __future__ import annotations

from msgspec import Raw
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ErrorInfo,
    ModelAnswered,
    PastEvent,
    RunEvent,
    RunRestored,
    RunStarted,
    TokenUsage,
    TurnRequested,
)
from sandstream_bus.wire.specs import AgentSpec, GraphSpec
from support.scripted_log import raw, says
from support.tracing.timed_log import TimedLog

from sandstream._inspect.reader import RunReader
from sandstream._inspect.rows import Approval, ChildCall, Handoff, item_of

AGENTS = {"planner": AgentSpec(name="planner", host="tools", model="gpt-5")}
CALL = {"type": "function_call", "call_id": "c1", "name": "publish", "arguments": '{"to":"web"}'}
STARTED = RunStarted(
    pool="main",
    graph=GraphSpec(start="planner", agents=AGENTS),
    input=[raw({"role": "user", "content": "Publish it"})],
)
ANSWERED = ModelAnswered(turn=1, agent="planner", output=[raw(CALL)], usage=TokenUsage())
ASKED = ApprovalRequested(call="t1-0", turn=1, agent="planner", name="publish", call_id="c1")
REQUESTED = CallRequested(
    call="t1-0",
    kind="tool",
    turn=1,
    agent="planner",
    name="publish",
    call_id="c1",
    reply_pool="main",
)


def test_a_call_goes_on_from_row_to_row() -> None:
    log = TimedLog("r")
    reader = RunReader()
    states: list[str] = []
    first: list[RunEvent] = [STARTED, ANSWERED, ASKED]
    for at, event in enumerate(first):
        log.add("any", event, at=at)
        row = reader.feed(log.events[-1])
    answered = row.call
    assert answered is not None and (answered.name, answered.arguments) == (
        "publish",
        '{"to":"web"}',
    )
    boom = ErrorInfo(code="tool_failed", message="no disk")
    later: list[RunEvent] = [
        ApprovalDecided(call="c1", approve=True, by="dana"),
        REQUESTED,
        CallFinished(call="t1-0", kind="tool", turn=1, error=boom, duration_ms=20),
    ]
    for event in later:
        log.add("any", event, at=10)
        row = reader.feed(log.events[-1])
        states.append(answered.state)
    assert states == ["asked", "running", "failed"]
    assert row.call is answered
    assert (row.run, row.name, answered.error, answered.duration_ms) == ("r", "publish", boom, 20)
    assert len(answered.questions) == 2


def test_the_steps_of_a_tree_grow_with_the_run() -> None:
    log = TimedLog("r")
    child = CallRequested(
        call="t1-1",
        kind="child",
        turn=1,
        agent="planner",
        name="research",
        child="r_t1-1",
        reply_pool="main",
    )
    for event in (STARTED, child, ASKED, TurnRequested(turn=2, agent="writer", reason="handoff")):
        log.add("any", event, at=1)
    reader = RunReader("r")
    rows = reader.read(log.events)
    assert [type(it) for it in reader.steps] == [ChildCall, Approval, Handoff]
    assert list(reader.children) == ["r_t1-1"]
    assert (rows[-1].agent_before, rows[-1].agent) == ("planner", "writer")
    log.add("any", ApprovalDecided(call="t1-0", approve=False, run="r"), at=5)
    row = reader.feed(log.events[-1])
    assert row.approval is reader.steps[1] and row.approval.decision == "rejected"


def test_a_takeover_names_both_processes() -> None:
    log = TimedLog("r")
    log.add("any", STARTED, at=0, worker="a:1:x")
    log.add("any", REQUESTED, at=1, cause=1, worker="a:1:x")
    log.add("any", ANSWERED, at=2, cause=1, deliveries=2, worker="b:2:y")
    first, second, third = RunReader().read(log.events)
    assert [it.is_takeover for it in (first, second, third)] == [False, False, True]
    assert (third.lost_worker, third.attempt.worker, third.attempt.number) == ("a:1:x", "b:2:y", 2)


def test_a_saved_state_is_read_and_is_no_step_of_the_run() -> None:
    past = [
        PastEvent(subject="sandstream.run.old.any", body=raw(it))
        for it in (STARTED, ANSWERED, ASKED)
    ]
    log = TimedLog("r")
    log.add("any", RunRestored(events=past, pool="main", host="h"), at=0)
    log.add("any", CallFinished(call="t1-0", kind="tool", turn=1, output=raw("done")), at=1)
    reader = RunReader()
    restored, finished = reader.read(log.events)
    assert [type(it.event) for it in restored.past] == [
        RunStarted,
        ModelAnswered,
        ApprovalRequested,
    ]
    assert reader.steps == []
    assert (restored.agent, finished.name) == ("planner", "publish")
    assert finished.call is not None and finished.call.output == "done"


def test_items_of_any_shape_can_be_read() -> None:
    kinds = [
        item_of(it).kind
        for it in (
            "text",
            7,
            {},
            CALL,
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
            {"type": "reasoning", "summary": []},
            {"type": "web_search_call"},
        )
    ]
    assert kinds == ["message", "message", "message", "call", "tool_output", "thought", "other"]
    (row,) = RunReader().read(_said([says("Hello.")]))
    assert [(it.role, it.text) for it in row.items] == [("assistant", "Hello.")]


def _said(output: list[Raw]) -> list[LogEvent]:
    log = TimedLog("r")
    log.add("any", ModelAnswered(turn=1, agent="a", output=output, usage=TokenUsage()), at=0)
    return log.events
