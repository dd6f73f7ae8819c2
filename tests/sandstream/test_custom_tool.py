"""Custom tools: their definition, and the items of their calls and outputs."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseCustomToolCall

from sandstream import Agent, CustomTool, ItemHelpers, ToolCallItem, ToolCallOutputItem, UserError

CALL = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "c1",
    "name": "patch",
    "input": "+a",
    "status": "completed",
}


def answer(context: Any, text: str) -> str:
    return text


def test_the_definition_has_only_what_was_said() -> None:
    plain = CustomTool("patch", "Changes files.", answer)
    assert plain.type == "custom"
    assert plain.tool_config == {
        "type": "custom",
        "name": "patch",
        "description": "Changes files.",
    }
    grammar = {"type": "grammar", "syntax": "regex", "definition": ".+"}
    full = CustomTool(
        "patch", "d", answer, format=grammar, defer_loading=True, allowed_callers=["direct"]
    )
    assert full.tool_config == {
        "type": "custom",
        "name": "patch",
        "description": "d",
        "format": grammar,
        "defer_loading": True,
        "allowed_callers": ["direct"],
    }


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"on_invoke_tool": "no function"},
        {"allowed_callers": []},
        {"allowed_callers": ["anybody"]},
        {"allowed_callers": ["direct", "direct"]},
    ],
)
def test_what_cannot_be_a_custom_tool_is_said(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        CustomTool(**{"name": "n", "description": "d", "on_invoke_tool": answer, **options})


def test_items_of_calls_and_outputs() -> None:
    agent = Agent[Any](name="a")
    call = ToolCallItem(agent, CALL)
    assert isinstance(call.raw_item, ResponseCustomToolCall)
    assert (call.tool_name, call.call_id) == ("patch", "c1")
    assert call.to_input_item() == CALL
    for given in (CALL, call.raw_item):
        raw = ItemHelpers.tool_call_output_item(given, "ok")
        assert raw == {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}
    output = ToolCallOutputItem(agent, raw, "ok")
    assert output.to_input_item() == raw
    assert output.call_id == "c1"
