"""Custom tools through the model seam: what is sent and what comes back is left as it is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import (
    ResponseCustomToolCall,
    ResponseCustomToolCallInputDeltaEvent,
    ResponseCustomToolCallInputDoneEvent,
)
from sandstream_actors.model import ModelClient, ModelRequest, Route
from sandstream_actors.model.vendor_types import plain, typed_event, typed_item

from sandstream.testing import ScriptedModel, custom_tool_call

PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}
HISTORY = [
    {"role": "user", "content": "hi"},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "patch", "input": "a"},
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
]


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


@pytest.mark.parametrize("stream", [False, True])
def test_definitions_calls_and_outputs_pass_as_they_are(stream: bool) -> None:
    events: list[Any] = []

    async def go() -> None:
        step = custom_tool_call("patch", "*** Begin\n+a\n", call_id="c2").chunks(2)
        async with ScriptedModel([step]) as model:
            client = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
            request = ModelRequest(
                model="gpt-5",
                input=[raw(item) for item in HISTORY],
                tools=[raw(PATCH)],
                stream=stream,
            )
            try:
                answer = await client.call(request, lambda data: events.append(json.loads(data)))
            finally:
                await client.aclose()
            sent = model.journal[0].body
        assert (sent["tools"], sent["input"]) == ([PATCH], HISTORY)
        (item,) = [json.loads(bytes(item)) for item in answer.output]
        assert item == {
            "id": item["id"],
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": "c2",
            "name": "patch",
            "input": "*** Begin\n+a\n",
        }
        call = typed_item(item)
        assert isinstance(call, ResponseCustomToolCall) and call.input == item["input"]
        assert plain(call) == item

    asyncio.run(go())
    typed = [typed_event(event) for event in events]
    deltas = [one for one in typed if isinstance(one, ResponseCustomToolCallInputDeltaEvent)]
    ends = [one for one in typed if isinstance(one, ResponseCustomToolCallInputDoneEvent)]
    expected = "*** Begin\n+a\n" if stream else ""
    assert "".join(one.delta for one in deltas) == expected
    assert [one.input for one in ends] == ([expected] if stream else [])
