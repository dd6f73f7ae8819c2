"""What a caller sees of a run: the harness's state of the same log, with this process's objects."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ChildWaiting,
    ConversationOpened,
    GuardrailRecord,
    InputStaged,
    ItemRecord,
    PastEvent,
    Rewrite,
    RunDone,
    RunEvent,
    RunRestored,
    RunWaiting,
    TokenUsage,
    TurnRequested,
)
from sandstream_bus.wire.specs import ChildSpec, HandoffSpec, ToolSpec
from support.scripted_log import RUN, USAGE, answer, asks, begin, calls, ends, log, raw, says

from sandstream import Agent, RunConfig, RunContextWrapper, function_tool
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.run_view import RunView
from sandstream._surface.item_records import items_of_records, record_of
from sandstream.exceptions import AgentsException
from sandstream.guardrail import GuardrailFunctionOutput, InputGuardrail, InputGuardrailResult
from sandstream.items import (
    HandoffCallItem,
    HandoffOutputItem,
    InputItem,
    MessageOutputItem,
    ReasoningItem,
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
    ToolOriginType,
)
from sandstream.result import RunResult
from sandstream.stream_events import StreamEvent
from sandstream.tool_context import ToolContext


@function_tool
def f() -> str:
    """Do it."""
    return "done"


A: Agent[Any] = Agent(name="a", tools=[f])
B: Agent[Any] = Agent(name="b")
HANDOFF = HandoffSpec(name="go", definition=raw({"type": "function", "name": "go"}), agent="b")
ASKED = ToolSpec(name="f", definition=raw({"type": "function", "name": "f"}), approval="always")


def hosted(**options: Any) -> HostedRun:
    return HostedRun({"a": A, "b": B}, RunContextWrapper(None), RunConfig(), **options)


def see(*events: RunEvent, host: HostedRun | None = None) -> tuple[RunView, list[StreamEvent]]:
    """A view of the events, and what it says to whoever follows the run; it agrees with the
    harness.
    """
    view = RunView(host or hosted())
    told = [
        it
        for entry in log(*events)
        for it in view.feed(entry.event, f"s.run.{RUN}.x", entry.sequence)
    ]
    state = RunState.of(RUN, log(*events))
    assert (view.turn, view.key, view.done) == (state.turn, state.agent_name, state.done)
    assert view.state.usage == state.usage and view.usage.total_tokens == state.usage.total_tokens
    return view, told


def kinds(items: list[RunItem]) -> list[str]:
    return [item.type for item in items]


def names(told: list[StreamEvent]) -> list[str]:
    return [getattr(it, "name", "agent") for it in told]


def shown(view: RunView, context: RunContextWrapper[Any] | None = None) -> RunResult:
    result = RunResult(
        input="hi",
        context_wrapper=context or RunContextWrapper(None),
        starting_agent=A,
        max_turns=10,
        run_id=RUN,
    )
    result._take(view)
    return result


def asked_for(call: str, call_id: str, **more: Any) -> ApprovalRequested:
    return ApprovalRequested(call=call, turn=1, agent="a", name="f", call_id=call_id, **more)


# --- handoffs -------------------------------------------------------------------------------------


def test_a_handoff_has_items_of_its_own() -> None:
    view, told = see(
        begin("f", handoffs=[HANDOFF]),
        answer(1, calls("go", "c1"), calls("f", "c2"), calls("go", "c3")),
        asks("t1-1"),
        ends("t1-1"),
        TurnRequested(turn=2, agent="b", reason="handoff"),
        answer(2, says("hello"), agent="b"),
    )
    assert [type(item) for item in view.items] == [
        HandoffCallItem,
        ToolCallItem,
        HandoffCallItem,
        ToolCallOutputItem,
        ToolCallOutputItem,
        HandoffOutputItem,
        MessageOutputItem,
    ]
    assert view.agent is B and view.items[-1].agent is B
    assert view.model_items == view.items
    assert names(told)[-4:] == ["tool_output", "handoff_occured", "agent", "message_output_created"]


def test_a_rewrite_changes_input_and_items() -> None:
    kept = {"type": "message", "content": [{"type": "output_text", "text": "kept"}]}
    own = ItemRecord(kind="message_output_item", agent="b", raw=raw({"role": "x", "content": "y"}))
    rewrite = Rewrite(
        input=[raw({"content": "short", "role": "user"}), raw(kept)],
        items=[
            ItemRecord(kind="message_output_item", agent="a", raw=raw(kept), in_input=True),
            own,
        ],
        model_items=[],
    )
    view, told = see(
        begin(handoffs=[HANDOFF]),
        answer(1, raw(kept), calls("go", "c1")),
        TurnRequested(turn=2, agent="b", reason="handoff", rewrite=rewrite),
        answer(2, says("end"), agent="b"),
    )
    assert view.new_input == view.input == [{"content": "short", "role": "user"}, kept]
    assert kinds(view.items) == ["message_output_item"] * 3
    assert kinds(view.model_items) == ["message_output_item"]
    assert names(told)[3:] == ["message_output_created", "agent", "message_output_created"]
    result = shown(view)
    assert [it.get("content") for it in result.to_input_list()][:3] == [
        "short",
        kept["content"],
        "y",
    ]
    assert len(result.to_input_list(mode="normalized")) == 3


def test_an_agent_of_another_process_has_only_its_name() -> None:
    view, _ = see(
        begin("f", handoffs=[HANDOFF]),
        answer(1, calls("f", "c1")),
        asks("t1-0"),
        ends("t1-0"),
        host=HostedRun({}, RunContextWrapper(None), RunConfig()),
    )
    called, output = view.items
    assert called.agent.name == "a" and called.agent is output.agent
    assert isinstance(called, ToolCallItem) and called.tool_origin is None


# --- people ---------------------------------------------------------------------------------------


def test_a_pause_shows_what_is_done_and_what_waits() -> None:
    first: list[RunEvent] = [
        begin(ASKED, "g"),
        answer(1, calls("f", "c1"), calls("g", "c2"), calls("f", "c3")),
        asked_for("t1-0", "c1"),
        asked_for("t1-2", "c3"),
        asks("t1-1"),
        ends("t1-1"),
    ]
    view, _ = see(*first)
    assert kinds(view.items) == ["tool_call_item"] * 3 and view.interruptions == []
    waiting = RunWaiting(turn=1, approvals=[asked_for("t1-0", "c1"), asked_for("t1-2", "c3")])
    view, told = see(*first, waiting)
    call = "tool_call_item"
    pause = ["tool_approval_item", "tool_call_output_item", "tool_approval_item"]
    assert kinds(view.items) == [call, call, call, *pause]
    assert names(told)[-1] == "tool_output"
    item = view.interruptions[0]
    assert item is view.items[3]
    assert (item.run_id, item.call, item.call_id, item.name) == (RUN, "t1-0", "c1", "f")
    assert item.tool_origin is not None and item.tool_origin.type is ToolOriginType.FUNCTION
    assert [it.get("call_id") for it in shown(view).to_input_list()] == [
        None,
        "c1",
        "c2",
        "c3",
        "c2",
    ]
    view, _ = see(
        *first,
        waiting,
        ApprovalDecided(call="t1-0", approve=True, run=RUN),
        ApprovalDecided(call="c3", approve=False, message="no"),
        asks("t1-0"),
        ends("t1-0", "boom"),
    )
    assert view.interruptions == []
    outputs = [item.output for item in view.items if isinstance(item, ToolCallOutputItem)]
    assert outputs == ["ok", "boom", "no"]


def test_an_answer_for_all_calls_needs_no_pause() -> None:
    view, told = see(
        begin(ASKED),
        answer(1, calls("f", "c1")),
        asked_for("t1-0", "c1"),
        ApprovalDecided(call="c1", approve=False, always=True),
        answer(2, calls("f", "c2")),
    )
    assert kinds(view.items) == ["tool_call_item", "tool_call_output_item"] * 2
    assert names(told)[-2:] == ["tool_called", "tool_output"]


def test_what_child_runs_ask_is_shown() -> None:
    child = ToolSpec(
        name="sub",
        definition=raw({"type": "function", "name": "sub"}),
        child=ChildSpec(graph="sub"),
    )
    request = CallRequested(
        call="t1-0", kind="child", turn=1, agent="a", reply_pool="main", child="r_t1-0"
    )
    asked = asked_for("t1-3", "c9", run="r_t1-0", arguments='{"x": 1}')
    started: list[RunEvent] = [begin(child), answer(1, calls("sub", "c1")), request]
    waits = ChildWaiting(call="t1-0", turn=1, child="r_t1-0", approvals=[asked])
    view, _ = see(*started, waits, RunWaiting(turn=1, approvals=[asked]))
    assert kinds(view.items) == ["tool_call_item"]
    (item,) = view.interruptions
    assert (item.run_id, item.call, item.call_id) == ("r_t1-0", "t1-3", "c9")
    assert (item.name, item.arguments, item.agent.name) == ("f", '{"x": 1}', "a")
    view, _ = see(
        *started,
        waits,
        ApprovalDecided(call="t1-3", approve=True, run="r_t1-0"),
        CallFinished(
            call="t1-0", kind="child", turn=1, output=raw("found"), usage=USAGE, child="r_t1-0"
        ),
    )
    assert view.interruptions == []
    assert view.items[1].output == "found"  # type: ignore[union-attr]
    assert view.usage.requests == 2


# --- input, guardrails, usage ---------------------------------------------------------------------


def test_input_that_came_meanwhile_is_an_item() -> None:
    view, told = see(
        begin("f"),
        answer(1, calls("f", "c1")),
        InputStaged(input="more"),
        asks("t1-0"),
        ends("t1-0"),
        InputStaged(input="too late"),
        answer(2, says("end"), upto=5),
    )
    assert kinds(view.items)[2:] == ["input_item", "message_output_item"]
    assert isinstance(view.items[2], InputItem)
    assert view.items[2].raw_item == {"content": "more", "role": "user"}
    assert names(told)[-1] == "message_output_created" and len(told) == 4


def test_a_session_comes_before_the_input() -> None:
    said = {"role": "assistant", "content": "before"}
    view, _ = see(begin(options={"session": {"id": "s"}}), ConversationOpened(history=[raw(said)]))
    assert shown(view).input == [said, {"role": "user", "content": "hi"}]


def test_guardrails_are_those_of_this_process_if_they_are_here() -> None:
    record = GuardrailRecord(kind="input", name="polite", info=raw("fine"), agent="a")
    events: list[RunEvent] = [
        begin(guards=["blocking"]),
        CallRequested(call="t1-guard", kind="guard", turn=1, agent="a", reply_pool="main"),
        CallFinished(call="t1-guard", kind="guard", turn=1, output=raw(None), guardrails=[record]),
    ]
    view, _ = see(*events)
    (found,) = shown(view).input_guardrail_results
    assert (found.guardrail.get_name(), found.output.output_info) == ("polite", "fine")
    own = InputGuardrailResult(
        InputGuardrail(lambda *_: None, "polite"),  # type: ignore[arg-type]
        GuardrailFunctionOutput("fine", False),
    )
    view, _ = see(*events, host=hosted(guardrails={"t1-guard": [own]}))
    assert shown(view).input_guardrail_results == [own]
    assert shown(view).details().input_guardrail_results == [own]


def test_a_restored_run_is_seen_from_its_saved_events() -> None:
    def past(subject: str, event: RunEvent) -> PastEvent:
        return PastEvent(subject=subject, body=Raw(msgspec.json.encode(event)))

    view = RunView(hosted())
    restored = RunRestored(
        events=[
            past("s.run.r.start.main", begin(ASKED)),
            past("s.run.r.model", answer(1, calls("f", "c1"))),
            past("s.run.r.approval.requested", asked_for("t1-0", "c1")),
            past("s.run.r.waiting", RunWaiting(turn=1, approvals=[asked_for("t1-0", "c1")])),
        ],
        pool="p2",
        host="h2",
    )
    told = view.feed(restored, "s.run.r2.start.p2", 1)
    assert names(told) == ["agent"]
    assert [item.run_id for item in view.interruptions] == ["r2"]
    view.feed(ApprovalDecided(call="t1-0", approve=False, run="r2"), "s.run.r2.approval.decided", 2)
    assert kinds(view.items)[-1] == "tool_call_output_item"


def test_a_run_that_is_over_waits_for_nobody() -> None:
    view, _ = see(
        begin(ASKED),
        answer(1, calls("f", "c1")),
        asked_for("t1-0", "c1"),
        RunWaiting(turn=1, approvals=[asked_for("t1-0", "c1")]),
        RunDone(status="cancelled", agent="a", turns=1, usage=TokenUsage()),
    )
    assert view.interruptions == []


# --- items and results ----------------------------------------------------------------------------


def test_items_as_data_and_back() -> None:
    message = {"type": "message", "role": "assistant", "content": []}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    items: list[RunItem] = [
        InputItem(A, {"role": "user", "content": "hi"}),
        MessageOutputItem(A, message),
        ReasoningItem(A, {"type": "reasoning", "id": "r", "summary": []}),
        ToolCallItem(A, call),
        ToolApprovalItem(A, call),
        ToolCallOutputItem(A, output, {"a": (1, 2)}),
        HandoffCallItem(A, call),
        HandoffOutputItem(A, output, A, B),
    ]
    records = [record_of(item, lambda agent: agent.name) for item in items]
    agents = {"a": A, "b": B}
    made = items_of_records(records, [], agents.__getitem__)
    assert [type(item) for item in made] == [type(item) for item in items]
    assert [item.plain_item() for item in made] == [item.plain_item() for item in items]
    assert made[5].output == {"a": [1, 2]}  # type: ignore[union-attr]
    assert made[7].target_agent is B  # type: ignore[union-attr]
    assert items_of_records(records, items, agents.__getitem__) == items


def test_a_released_agent_is_found_while_somebody_has_it() -> None:
    lonely: Agent[Any] = Agent(name="lonely")
    host = HostedRun({"a": lonely}, RunContextWrapper(None), RunConfig())
    view, told = see(begin(), answer(1, says("x")), host=host)
    result = RunResult(
        input="hi",
        context_wrapper=RunContextWrapper(None),
        starting_agent=lonely,
        max_turns=1,
        run_id=RUN,
    )
    result._take(view)
    result.release_agents()
    assert result.last_agent is lonely and result.new_items[0].agent is lonely
    del host, view, told, lonely
    gc.collect()
    assert result.new_items[0].agent is None
    with pytest.raises(AgentsException, match="was released"):
        _ = result.last_agent


def test_the_result_of_an_agent_tool_knows_its_call() -> None:
    view, _ = see(begin(), answer(1, says("x")))
    assert shown(view).agent_tool_invocation is None
    context: ToolContext[None] = ToolContext(
        context=None, tool_name="sub", tool_call_id="c1", tool_arguments="{}"
    )
    call = shown(view, context).agent_tool_invocation
    assert call is not None
    assert (call.tool_name, call.tool_call_id, call.tool_arguments) == ("sub", "c1", "{}")


def test_an_unknown_mode_is_refused() -> None:
    view, _ = see(begin())
    with pytest.raises(ValueError, match="unknown mode 'short'"):
        shown(view).to_input_list(mode="short")  # type: ignore[arg-type]
