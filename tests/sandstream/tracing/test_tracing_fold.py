"""A run's log as spans: the same log gives the same spans, from whichever event they are wanted."""

from __future__ import annotations

from typing import Any

import pytest
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CallFinished
from sandstream_bus.wire.subjects import RunId
from support.hosted_programs import MODEL, play

from sandstream import Agent, Client, Runner, function_tool
from sandstream.testing import ScriptedModel, text, tool_calls
from sandstream.tracing._runs.spans import RunSpans, Settings, SpanBegan, SpanEnded, Step
from sandstream.tracing.span_data import FunctionSpanData

pytestmark = pytest.mark.usefixtures("home")


@function_tool
def double(number: int) -> int:
    """Doubles."""
    return 2 * number


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[LogEvent]:
    """The log of a run with two calls at once."""
    steps = [tool_calls(("double", {"number": 1}), ("double", {"number": 2})), text("2 and 4.")]

    async def program(model: ScriptedModel) -> Any:
        result = await Runner.run(Agent(name="Main", model=MODEL, tools=[double]), "hi")
        async with await Client.connect() as client:
            return await client.bus.log.read(RunId(result.run_id))

    found: list[LogEvent] = play(monkeypatch, steps, program)
    return found


def run_of(events: list[LogEvent]) -> str:
    return events[0].subject.split(".")[2]


def folded(events: list[LogEvent], *, quiet: int = 0, **settings: Any) -> list[Step]:
    spans = RunSpans(run_of(events), Settings(**settings))
    steps: list[Step] = []
    for number, event in enumerate(events):
        steps += spans.feed(event, f"2026-01-01T00:00:{number:02}+00:00", quiet=number < quiet)
    return [*steps, *spans.close("2026-01-01T00:01:00+00:00")]


def told(steps: list[Step]) -> list[tuple[Any, ...]]:
    return [
        (it.key, it.parent, it.span_id, it.data.export(), it.at)
        if isinstance(it, SpanBegan)
        else (it.key, it.at, it.error)
        for it in steps
    ]


def began(steps: list[Step]) -> list[str]:
    return [it.data.type for it in steps if isinstance(it, SpanBegan)]


def test_the_same_log_gives_the_same_spans(events: list[LogEvent]) -> None:
    steps = folded(events)
    assert told(steps) == told(folded(events))
    assert began(steps) == [
        *("task", "agent", "turn", "response", "function", "function"),
        *("turn", "response"),
    ]
    ids = [it.span_id for it in steps if isinstance(it, SpanBegan)]
    assert len(set(ids)) == len(ids)
    assert {it.key for it in steps if isinstance(it, SpanEnded)} == {
        it.key for it in steps if isinstance(it, SpanBegan)
    }
    calls = [it.data for it in steps if isinstance(it, SpanBegan)]
    assert [it.output for it in calls if isinstance(it, FunctionSpanData)] == ["2", "4"]


def test_a_log_that_breaks_off_leaves_nothing_open(events: list[LogEvent]) -> None:
    for length in range(1, len(events)):
        steps = folded(events[:length])
        opened = [it.key for it in steps if isinstance(it, SpanBegan)]
        assert sorted(opened) == sorted(it.key for it in steps if isinstance(it, SpanEnded))


def test_events_that_are_known_make_no_spans(events: list[LogEvent]) -> None:
    first_result = next(
        number for number, it in enumerate(events) if isinstance(it.event, CallFinished)
    )
    steps = folded(events, quiet=first_result)
    assert began(steps) == ["task", "agent", "turn", "response"]
    assert folded(events, quiet=len(events)) == []


def test_an_event_that_comes_twice_counts_once(events: list[LogEvent]) -> None:
    doubled = [
        it for event in events for it in [event] * (1 + isinstance(event.event, CallFinished))
    ]
    assert began(folded(doubled)) == began(folded(events))


def test_what_was_said_is_left_out(events: list[LogEvent]) -> None:
    steps = folded(events, contents=False)
    said = [it.data for it in steps if isinstance(it, SpanBegan)]
    for data in said:
        assert getattr(data, "input", None) is None
        assert getattr(data, "output", None) is None
        assert getattr(data, "response", None) is None
    assert any(getattr(data, "response_id", None) for data in said)


def test_a_run_without_task_and_turns(events: list[LogEvent]) -> None:
    steps = folded(events, tasks_and_turns=False)
    assert began(steps) == ["agent", "response", "function", "function", "response"]
    first, *below = [it for it in steps if isinstance(it, SpanBegan)]
    assert {it.parent for it in below} == {first.key}
