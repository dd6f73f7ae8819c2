"""Agents as tools in the agent loop: what is asked when, what the model reads, what a tree may
use.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sandstream_actors.harness.step_kinds import Ask, AskModel, Step, Wait
from sandstream_actors.harness.steps import next_step
from sandstream_actors.harness.tree_budget import share_of
from sandstream_actors.run.budgets import smaller, with_deadline
from sandstream_actors.run.ends import Finish
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    ErrorInfo,
    RunEvent,
    RunMoved,
    TokenUsage,
)
from sandstream_bus.wire.specs import Budget, ChildSpec, ToolSpec
from sandstream_bus.wire.subjects import child_of
from support.scripted_log import RUN, answer, asks, begin, calls, ends, log, raw, says

FAILED = ErrorInfo(code="max_turns", message="Max turns (1) exceeded")
USED = TokenUsage(requests=2, input_tokens=7, output_tokens=3, total_tokens=10)


def helper(**options: Any) -> ToolSpec:
    definition = raw({"type": "function", "name": "helper"})
    return ToolSpec(name="helper", definition=definition, child=ChildSpec(graph="h", **options))


def after(*events: RunEvent) -> Step:
    return next_step(state_of(*events))


def state_of(*events: RunEvent) -> RunState:
    return RunState.of(RUN, log(*events))


def requested(step: Step) -> list[tuple[str, str]]:
    assert isinstance(step, Ask), step
    return [(call.call, call.kind) for call in step.calls]


def child_ends(call: str, output: object = "done", **more: Any) -> CallFinished:
    """The end of a child run, which used some tokens."""
    values: dict[str, Any] = {
        "usage": USED,
        "turns": 2,
        "tool_calls": 3,
        "child": child_of(RUN, call),
    } | more
    return CallFinished(call=call, kind="child", turn=1, output=raw(output), **values)


def child_fails(call: str, error: ErrorInfo = FAILED) -> CallFinished:
    return CallFinished(call=call, kind="child", turn=1, error=error, usage=USED, turns=2)


def asks_child(call: str = "t1-0") -> CallRequested:
    return msgspec.structs.replace(asks(call, "child"), child=child_of(RUN, call))


def test_a_plain_agent_tool_needs_nobody_but_its_run() -> None:
    events: list[RunEvent] = [begin(helper()), answer(1, calls("helper", "c1", '{"input":"x"}'))]
    step = after(*events)
    assert requested(step) == [("t1-0", "child")]
    assert isinstance(step, Ask) and step.calls[0].child == child_of(RUN, "t1-0")
    events.append(asks_child())
    assert after(*events) == Wait()
    assert [it.call for it in state_of(*events).open_children()] == ["t1-0"]
    events.append(child_ends("t1-0", "the answer"))
    assert after(*events) == AskModel(2)
    state = state_of(*events)
    assert msgspec.json.decode(state.items[-1])["output"] == "the answer"
    assert state.open_children() == []


def test_what_a_child_used_counts_for_its_parent() -> None:
    events: list[RunEvent] = [begin(helper()), answer(1, calls("helper", "c1"))]
    before = state_of(*events)
    state = state_of(*events, asks_child(), child_ends("t1-0"), child_ends("t1-0"))
    assert state.usage == before.usage.plus(USED)
    assert (state.tree_turns, state.tool_calls_made) == (1 + 2, 1 + 3)


def test_a_structured_output_of_a_child_is_a_text_for_the_model() -> None:
    events: list[RunEvent] = [begin(helper()), answer(1, calls("helper", "c1")), asks_child()]
    state = state_of(*events, child_ends("t1-0", {"score": 1}))
    assert msgspec.json.decode(state.items[-1])["output"] == '{"score":1}'


def test_the_tool_host_makes_input_and_output_where_code_takes_part() -> None:
    events: list[RunEvent] = [
        begin(helper(input="host", output="host")),
        answer(1, calls("helper", "c1")),
    ]
    assert requested(after(*events)) == [("t1-0-input", "child_input")]
    events.append(asks("t1-0-input", "child_input"))
    assert after(*events) == Wait()
    events.append(ends("t1-0-input", {"input": []}, kind="child_input"))
    assert requested(after(*events)) == [("t1-0", "child")]
    events += [asks_child(), child_ends("t1-0")]
    assert requested(after(*events)) == [("t1-0-output", "child_output")]
    events.append(asks("t1-0-output", "child_output"))
    assert after(*events) == Wait()
    events.append(ends("t1-0-output", "made", kind="child_output"))
    assert after(*events) == AskModel(2)
    assert msgspec.json.decode(state_of(*events).items[-1])["output"] == "made"


def test_input_that_cannot_be_made_does_not_end_the_run() -> None:
    events: list[RunEvent] = [begin(helper(input="host")), answer(1, calls("helper", "c1"))]
    events.append(asks("t1-0-input", "child_input"))
    events.append(ends("t1-0-input", {"input": []}, kind="child_input", error=FAILED))
    # the child's starter finds the error, and makes it the outcome of the call
    assert requested(after(*events)) == [("t1-0", "child")]


def test_a_watched_child_is_over_when_its_watcher_is() -> None:
    events: list[RunEvent] = [begin(helper(watch=True)), answer(1, calls("helper", "c1"))]
    assert requested(after(*events)) == [("t1-0-watch", "watch"), ("t1-0", "child")]
    events += [asks_child(), asks("t1-0-watch", "watch"), child_ends("t1-0")]
    assert after(*events) == Wait()
    assert after(*events, ends("t1-0-watch", None, kind="watch")) == AskModel(2)


def test_a_watched_child_starts_once_its_watcher_listens() -> None:
    tool = helper(watch=True, announced=True)
    events: list[RunEvent] = [begin(tool), answer(1, calls("helper", "c1"))]
    assert requested(after(*events)) == [("t1-0-watch", "watch")]
    listens = ends("t1-0-listening", None, kind="watch")
    assert after(*events, listens) == after(*events)  # nobody was asked
    events.append(asks("t1-0-watch", "watch"))
    assert after(*events) == Wait()
    gave_up = ends("t1-0-watch", None, kind="watch")  # there will be no run to listen to
    assert requested(after(*events, gave_up)) == [("t1-0", "child")]
    events.append(listens)
    assert state_of(*events).trigger == len(events)
    assert requested(after(*events)) == [("t1-0", "child")]
    assert after(*events, asks_child()) == Wait()
    events += [asks_child(), child_ends("t1-0"), gave_up]
    assert after(*events) == AskModel(2)


def test_a_child_that_was_requested_before_goes_on_without_a_listener() -> None:
    tool = helper(watch=True, announced=True)
    events: list[RunEvent] = [begin(tool), answer(1, calls("helper", "c1"))]
    events += [asks("t1-0-watch", "watch"), asks_child()]
    assert after(*events) == Wait()
    events += [child_ends("t1-0"), ends("t1-0-watch", None, kind="watch")]
    assert after(*events) == AskModel(2)


def test_after_a_move_somebody_else_has_to_listen() -> None:
    tool = helper(watch=True, announced=True)
    events: list[RunEvent] = [begin(tool), answer(1, calls("helper", "c1"))]
    events += [asks("t1-0-watch", "watch"), ends("t1-0-listening", None, kind="watch")]
    events += [RunMoved(pool="main", host="h")]
    assert requested(after(*events)) == [("t1-0-watch", "watch")]


def test_a_watched_child_takes_its_place_when_its_watch_does() -> None:
    tool = helper(watch=True, announced=True)
    twice = answer(1, calls("helper", "c1"), calls("helper", "c2"))
    events: list[RunEvent] = [begin(tool, options={"max_tool_concurrency": 1}), twice]
    assert requested(after(*events)) == [("t1-0-watch", "watch")]
    events.append(asks("t1-0-watch", "watch"))
    assert after(*events) == Wait()
    events.append(ends("t1-0-listening", None, kind="watch"))
    assert requested(after(*events)) == [("t1-0", "child")]
    events += [asks_child(), child_ends("t1-0"), ends("t1-0-watch", None, kind="watch")]
    assert requested(after(*events)) == [("t1-1-watch", "watch")]


@pytest.mark.parametrize(
    ("failure", "expected"), [("tell", "An error occurred"), ("raise", None), ("host", "made")]
)
def test_a_child_whose_watcher_gave_up_has_failed(failure: str, expected: str | None) -> None:
    tool = helper(watch=True, failure=failure)
    events: list[RunEvent] = [begin(tool), answer(1, calls("helper", "c1")), asks_child()]
    events += [asks("t1-0-watch", "watch"), child_ends("t1-0")]
    events.append(ends("t1-0-watch", None, kind="watch", error=FAILED))
    if failure == "host":
        assert requested(after(*events)) == [("t1-0-output", "child_output")]
        events.append(asks("t1-0-output", "child_output"))
        events.append(ends("t1-0-output", "made", kind="child_output"))
    if expected is None:
        step = after(*events)
        assert isinstance(step, Finish) and step.done.error == FAILED
    else:
        assert msgspec.json.decode(state_of(*events).items[-1])["output"].startswith(expected)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [("tell", AskModel(2)), ("raise", "max_turns"), ("host", [("t1-0-output", "child_output")])],
)
def test_a_child_that_fails(failure: str, expected: object) -> None:
    events: list[RunEvent] = [begin(helper(failure=failure)), answer(1, calls("helper", "c1"))]
    step = after(*events, asks_child(), child_fails("t1-0"))
    if isinstance(expected, str):
        assert isinstance(step, Finish)
        assert step.done.status == expected and step.done.error == FAILED
    elif isinstance(expected, list):
        assert requested(step) == expected
    else:
        assert step == expected


def test_the_failure_of_a_child_is_no_secret_and_no_detail() -> None:
    events: list[RunEvent] = [begin(helper()), answer(1, calls("helper", "c1")), asks_child()]
    state = state_of(*events, child_fails("t1-0"))
    output = msgspec.json.decode(state.items[-1])["output"]
    assert "error occurred" in output and "Max turns" not in output


def test_the_cap_on_tools_counts_children() -> None:
    many = [calls("helper", f"c{n}") for n in range(5)]
    events: list[RunEvent] = [begin(helper(), options={"max_tool_concurrency": 2})]
    events.append(answer(1, *many))
    assert requested(after(*events)) == [("t1-0", "child"), ("t1-1", "child")]
    events += [asks_child("t1-0"), asks_child("t1-1")]
    assert after(*events) == Wait()
    events.append(child_ends("t1-1"))
    assert requested(after(*events)) == [("t1-2", "child")]


def test_a_child_whose_output_is_made_still_counts_for_the_cap() -> None:
    many = [calls("helper", f"c{n}") for n in range(2)]
    events: list[RunEvent] = [begin(helper(output="host"), options={"max_tool_concurrency": 1})]
    events += [answer(1, *many), asks_child("t1-0"), child_ends("t1-0")]
    assert requested(after(*events)) == [("t1-0-output", "child_output")]
    events.append(asks("t1-0-output", "child_output"))
    assert after(*events) == Wait()
    events.append(ends("t1-0-output", kind="child_output"))
    assert requested(after(*events)) == [("t1-1", "child")]


# --- budgets --------------------------------------------------------------------------------------


def budget_end(step: Step) -> str:
    assert isinstance(step, Finish), step
    assert step.done.status == "budget" and step.done.error is not None
    return str(step.done.error.data["budget"])


@pytest.mark.parametrize(
    ("budget", "name"),
    [(Budget(turns=3), "turns"), (Budget(tokens=25), "tokens")],
)
def test_no_model_is_asked_beyond_the_budget_of_the_tree(budget: Budget, name: str) -> None:
    events: list[RunEvent] = [begin(helper(), options={"budget": budget})]
    events.append(answer(1, calls("helper", "c1")))
    assert requested(after(*events)) == [("t1-0", "child")]
    assert budget_end(after(*events, asks_child(), child_ends("t1-0"))) == name


def test_no_tool_is_called_beyond_the_budget_of_the_tree() -> None:
    tree = {"budget": Budget(tool_calls=2)}
    two = answer(1, calls("helper", "c1"), calls("helper", "c2"))
    assert len(requested(after(begin(helper(), options=tree), two))) == 2
    three = answer(1, *(calls("helper", f"c{n}") for n in range(3)))
    assert budget_end(after(begin(helper(), options=tree), three)) == "tool_calls"
    one: list[RunEvent] = [
        begin(helper(), options=tree),
        answer(1, calls("helper", "c1")),
        asks_child(),
    ]
    again = answer(2, calls("helper", "c2"))
    assert budget_end(after(*one, child_ends("t1-0"), again)) == "tool_calls"  # 1 + 3 are made


def test_a_run_that_is_at_its_end_needs_no_budget() -> None:
    events: list[RunEvent] = [begin(options={"budget": Budget(turns=1)}), answer(1, says("done"))]
    step = after(*events)
    assert isinstance(step, Finish) and step.done.status == "completed"


def shares(total: int, count: int, cap: int, used: list[int]) -> list[int]:
    """The turns that each of ``count`` children may use, if ``cap`` of them run at once and each
    uses of its share what ``used`` says, at most all.
    """
    options = {"budget": Budget(turns=total), "max_tool_concurrency": cap}
    events: list[RunEvent] = [begin(helper(), options=options)]
    events.append(answer(1, *(calls("helper", f"c{n}") for n in range(count))))
    given: dict[str, int] = {}
    running: list[str] = []
    while True:
        step = next_step(state_of(*events))
        if isinstance(step, Ask):
            for call in step.calls:
                share = share_of(state_of(*events))
                assert share is not None and share.turns is not None
                given[call.call] = share.turns
                running.append(call.call)
            events += [asks_child(call.call) for call in step.calls]
        if not running:
            return [min(used[n], it) for n, it in enumerate(given.values())]
        first = running.pop(0)
        turns = min(used[int(first[3:])], given[first])
        events.append(child_ends(first, turns=turns))


@pytest.mark.parametrize("cap", [1, 2, 3, 7])
@pytest.mark.parametrize("used", [[9] * 7, [0] * 6 + [99], [1, 50, 1, 50, 1, 50, 1]])
def test_children_together_stay_within_the_budget(cap: int, used: list[int]) -> None:
    turns = shares(22, 7, cap, used)
    assert len(turns) == 7 and sum(turns) <= 21  # one turn was the parent's
    assert max(turns) >= min(max(used), 3)  # nobody gets less than an equal part


def test_the_share_of_a_child_has_the_deadline_and_no_time_of_its_own() -> None:
    budget = Budget(seconds=5, deadline=1000.0, tool_calls=10)
    events: list[RunEvent] = [begin(helper(), options={"budget": budget})]
    events.append(answer(1, calls("helper", "c1"), calls("helper", "c2")))
    assert share_of(state_of(*events)) == Budget(deadline=1000.0, tool_calls=4)
    assert share_of(state_of(begin(helper()), *events[1:])) is None


def test_of_two_budgets_the_stricter_one_counts_limit_by_limit() -> None:
    one = Budget(turns=5, tokens=100)
    other = Budget(turns=9, tokens=50, seconds=2)
    assert smaller(one, other) == Budget(turns=5, tokens=50, seconds=2)
    assert smaller(one, None) == one and smaller(None, other) == other
    assert smaller(None, None) is None
    assert smaller(Budget(turns=0), Budget(turns=4)) == Budget(turns=0)


def test_time_begins_once() -> None:
    started = with_deadline(Budget(seconds=60))
    assert started.deadline is not None and with_deadline(started) == started
    assert with_deadline(Budget(turns=1)) == Budget(turns=1)
