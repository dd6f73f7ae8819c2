"""One tool call as the user's code sees it: its context, and the model's item."""

from __future__ import annotations

from typing import Any

import msgspec
from sandstream_actors.run.output_items import ToolCall
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import CallRequested

from sandstream._hosting.hosted_run import HostedRun
from sandstream.tool_context import ToolContext
from sandstream.usage import usage_of


def tool_context(
    hosted: HostedRun, call: CallRequested, *, is_custom: bool = False
) -> ToolContext[Any]:
    """The context of a tool call."""
    hosted.context.usage = usage_of(call.usage)
    item = {
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
    }
    return ToolContext.from_agent_context(
        hosted.context,
        call.call_id,
        None if is_custom else item,
        hosted.agent(call.agent),
        tool_name=call.name,
        tool_arguments=call.arguments,
        run_config=hosted.config,
    )


def about(request: CallRequested, call: ToolCall) -> CallRequested:
    """The request for one tool call, derived from a request about the whole answer."""
    return msgspec.structs.replace(
        request,
        call=call.id,
        kind="tool",
        name=call.name,
        call_id=call.call_id,
        arguments=call.arguments,
    )


def answered_item(state: RunState, call: ToolCall) -> dict[str, Any]:
    """The model's own item for a call."""
    assert state.answer is not None
    items = (msgspec.json.decode(raw) for raw in state.answer.event.output)
    found: dict[str, Any] = next(it for it in items if it.get("call_id") == call.call_id)
    return found
