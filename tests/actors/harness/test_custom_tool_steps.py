"""The agent loop with custom tools: in order, told back to the model, never the end of a run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.harness.step_kinds import Ask, AskModel, Step, Wait
from sandstream_actors.harness.steps import next_step
from sandstream_actors.run.ends import Finish
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import RunEvent
from sandstream_bus.wire.specs import ToolSpec, ToolUseSpec
from support.scripted_log import RUN, answer, asks, begin, calls, ends, log, raw

PATCH = ToolSpec(name="patch", definition=raw({"type": "custom", "name": "patch"}))


def patches(call_id: str, text: str = "+a", name: str = "patch") -> Raw:
    return raw({"type": "custom_tool_call", "name": name, "call_id": call_id, "input": text})


def after(*events: RunEvent) -> Step:
    return next_step(RunState.of(RUN, log(*events)))


def asked(step: Step) -> list[str]:
    assert isinstance(step, Ask), step
    return [call.call for call in step.calls]


def test_custom_tools_wait_for_each_other_and_not_for_functions() -> None:
    events: list[RunEvent] = [
        begin(PATCH, "f"),
        answer(1, patches("c1"), calls("f", "c2"), patches("c3"), patches("c4")),
    ]
    assert asked(after(*events)) == ["t1-0", "t1-1"]
    events += [asks("t1-0"), asks("t1-1")]
    assert after(*events) == Wait()
    events.append(ends("t1-1"))
    assert after(*events) == Wait()
    events.append(ends("t1-0"))
    assert asked(after(*events)) == ["t1-2"]
    events += [asks("t1-2"), ends("t1-2")]
    assert asked(after(*events)) == ["t1-3"]
    events += [asks("t1-3"), ends("t1-3", "last")]
    assert after(*events) == AskModel(2)
    conversation = RunState.of(RUN, log(*events)).conversation()
    items = [msgspec.json.decode(item) for item in conversation]
    outputs = [item["type"] for item in items if "output" in item]
    custom = "custom_tool_call_output"
    assert outputs == [custom, "function_call_output", custom, custom]
    assert items[-1] == {"type": custom, "call_id": "c4", "output": "last"}


def test_the_text_of_the_call_is_its_arguments() -> None:
    step = after(begin(PATCH), answer(1, patches("c1", "*** Begin")))
    assert isinstance(step, Ask)
    assert (step.calls[0].arguments, step.calls[0].call_id) == ("*** Begin", "c1")


@pytest.mark.parametrize(
    "behavior",
    [
        ToolUseSpec(kind="stop_on_first"),
        ToolUseSpec(kind="stop_at", names=["patch"]),
        ToolUseSpec(kind="ask_host"),
    ],
)
def test_a_custom_tool_does_not_end_a_run(behavior: ToolUseSpec) -> None:
    events: list[RunEvent] = [
        begin(PATCH, tool_use=behavior),
        answer(1, patches("c1")),
        asks("t1-0"),
    ]
    assert after(*events, ends("t1-0")) == AskModel(2)


@pytest.mark.parametrize(
    ("item", "options"),
    [
        (patches("c1", name="ghost"), {}),
        (patches("c1", name="ghost"), {"tool_not_found": "return_error_to_model"}),
        (patches("c1", name="f"), {}),
        (calls("patch", "c1"), {}),
        (calls("patch", "c1"), {"tool_not_found": "return_error_to_model"}),
    ],
)
def test_a_custom_tool_is_called_as_what_it_is(item: Raw, options: dict[str, Any]) -> None:
    step = after(begin(PATCH, "f", options=options), answer(1, item))
    assert isinstance(step, Finish) and step.done.error is not None
    assert step.done.error.code == "model_behavior"
    assert "not found in agent a" in step.done.error.message


def test_a_definition_that_is_none_does_not_stop_the_harness() -> None:
    odd = ToolSpec(name="f", definition=raw([]))
    assert asked(after(begin(odd), answer(1, calls("f", "c1")))) == ["t1-0"]
