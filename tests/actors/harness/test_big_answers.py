"""Answers with many calls: what is remembered of them is what a fresh look would find; a child's
log has no more than the child can reach. No server.
"""

from __future__ import annotations

from sandstream_actors.harness.children import reached
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import ApprovalDecided, ApprovalRequested, RunEvent
from sandstream_bus.wire.specs import (
    AgentSpec,
    ChildGraph,
    ChildSpec,
    HandoffSpec,
    RunOptions,
    ToolSpec,
)
from support.scripted_log import RUN, answer, asks, begin, calls, ends, log, raw


def gated(name: str) -> ToolSpec:
    return ToolSpec(name=name, definition=raw({"type": "function"}), approval="always")


def wants(call: str, name: str) -> ApprovalRequested:
    return ApprovalRequested(call=call, turn=1, agent="a", name=name, call_id=f"c{call[-1]}")


def graph(*tools: str, handoff: HandoffSpec | None = None) -> ChildGraph:
    """One agent that has others as tools."""
    agent = AgentSpec(
        name="x",
        host="h",
        model="m",
        tools=[
            ToolSpec(
                name=f"ask_{key}",
                definition=raw({}),
                child=ChildSpec(graph=key, options=RunOptions()),
            )
            for key in tools
        ],
        handoffs=[handoff] if handoff else [],
    )
    return ChildGraph(start="x", agents={"x": agent})


def open_ids(state: RunState) -> list[str]:
    return [call.id for call in state.open_tool_calls()]


def test_a_look_after_each_event_finds_what_a_fresh_one_would() -> None:
    decided = [
        ApprovalDecided(call="t1-1", approve=False, always=True),  # refuses t1-0 as well
        ApprovalDecided(call="t1-0", approve=True),  # but that one has an answer of its own
        ApprovalDecided(call="t1-2", approve=True),
    ]
    events: list[RunEvent] = [
        begin(gated("f"), gated("g"), "h"),
        answer(1, *(calls(name, f"c{n}") for n, name in enumerate("ffgh"))),
        *(wants(f"t1-{n}", name) for n, name in enumerate("ffg")),
        asks("t1-3"),
        ends("t1-3"),
        *decided,
        asks("t1-0"),
        ends("t1-0"),
        asks("t1-2"),
        ends("t1-2"),
        answer(2, calls("h", "c9")),
        asks("t2-0", turn=2),
        ends("t2-0", turn=2),
    ]
    looked = RunState(RUN)
    seen = []
    for event in log(*events):
        looked.fold([event])
        seen.append(open_ids(looked))
        assert seen[-1] == open_ids(RunState.of(RUN, log(*events[: event.sequence])))
    after_decisions = events.index(decided[0])
    assert seen[after_decisions] == ["t1-2"]
    assert seen[after_decisions + 1] == ["t1-0", "t1-2"]
    assert seen[-3:] == [["t2-0"], ["t2-0"], []]


def test_a_child_takes_along_what_it_can_reach_at_any_depth() -> None:
    known = {"b": graph("c"), "c": graph("b"), "d": graph()}
    assert reached(graph("b"), known) == {"b": known["b"], "c": known["c"]}
    assert reached(graph(), known) == {}


def test_a_child_whose_next_agent_the_tool_host_chooses_takes_all_along() -> None:
    chosen = HandoffSpec(name="to_x", definition=raw({}), agent="x", ask_host=True)
    known = {"b": graph(handoff=chosen), "d": graph()}
    assert reached(graph("b"), known) == known
