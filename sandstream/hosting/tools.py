"""Calls of function tools and custom tools."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import (
    CallFinished,
    CallRequested,
    ErrorInfo,
)
from sandstream_bus.specs import NO_JSON
from sandstream_bus.subjects import RunId

from sandstream.agent import Tool
from sandstream.custom_tool import CustomTool, CustomToolCustomDataContext
from sandstream.graph import tools_of
from sandstream.hosting.hosted_run import HostedRun
from sandstream.hosting.outcomes import encode, finished
from sandstream.hosting.values import as_json, final_value, resolved
from sandstream.outcomes import error_info
from sandstream.run_config import ToolErrorFormatterArgs
from sandstream.run_view import usage_of
from sandstream.tool import (
    FunctionTool,
    FunctionToolCustomDataContext,
    invoke_function_tool,
    tool_output_to_wire,
)
from sandstream.tool_context import ToolContext


async def call_tool(
    hosted: HostedRun, call: CallRequested, run: RunId, states: StateCache
) -> CallFinished:
    agent = hosted.agent(call.agent)
    tools = tools_of(hosted.working_agent(call.agent), hosted.config)
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None or not await _was_offered(tool, run, states):
        text = await _not_found(hosted, call)
        return finished(
            call,
            output=encode(text),
            error=ErrorInfo(code="tool_not_found", message=text),
        )
    if isinstance(tool, CustomTool):
        return await _call_custom_tool(hosted, call, tool)
    function_call = {
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
    }
    context = _tool_context(hosted, call, function_call)

    async def format_error(ctx: Any, error: Exception, default: str) -> str | None:
        return await _format_error(hosted, call, "tool_exception", default, error)

    formatter = format_error if hosted.config.tool_error_formatter else None
    value = await invoke_function_tool(tool, context, call.arguments, error_formatter=formatter)
    hosted.values[call.call] = value
    return finished(
        call,
        output=encode(tool_output_to_wire(value)),
        value=as_json(final_value(agent, value))
        if agent.tool_use_behavior != "run_llm_again"
        else NO_JSON,
        custom_data=await _custom_data(tool, context, value),
    )


async def _call_custom_tool(
    hosted: HostedRun, call: CallRequested, tool: CustomTool
) -> CallFinished:
    """The model gets a text, whatever happens: what the tool raises is told to it, too."""
    context = _tool_context(hosted, call, None)
    failed: ErrorInfo | None = None
    try:
        value = await resolved(tool.on_invoke_tool(context, call.arguments))
        text = value if isinstance(value, str) else str(value)
    except Exception as error:  # noqa: BLE001  what user code raises is the call's outcome
        failed = error_info(error)
        text = failed.message
    custom_data = NO_JSON
    if tool.custom_data_extractor is not None:
        raw = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": text}
        data = CustomToolCustomDataContext(context, tool, call.arguments, text, raw)
        custom_data = as_json(await resolved(tool.custom_data_extractor(data)))
    return finished(call, output=encode(text), error=failed, custom_data=custom_data)


def _tool_context(
    hosted: HostedRun, call: CallRequested, tool_call: dict[str, str] | None
) -> ToolContext[Any]:
    return ToolContext(
        hosted.context.context,
        usage_of(call.usage),
        call.name,
        call.call_id,
        call.arguments,
        tool_call,
        agent=hosted.agent(call.agent),
        run_config=hosted.config,
    )


async def _was_offered(tool: Tool, run: RunId, states: StateCache) -> bool:
    """A tool that was disabled when the model was asked does not exist for it."""
    if isinstance(tool, CustomTool) or tool.is_enabled is True:
        return True
    return tool.name not in (await states.load(run)).disabled_tools


async def _not_found(hosted: HostedRun, call: CallRequested) -> str:
    default = f"Tool '{call.name}' not found."
    formatted = await _format_error(hosted, call, "tool_not_found", default, None)
    return formatted or default


async def _format_error(
    hosted: HostedRun, call: CallRequested, kind: Any, default: str, error: Exception | None
) -> str | None:
    if hosted.config.tool_error_formatter is None:
        return None
    text = await resolved(
        hosted.config.tool_error_formatter(
            ToolErrorFormatterArgs(
                kind=kind,
                tool_type="function",
                tool_name=call.name,
                call_id=call.call_id,
                default_message=default,
                run_context=hosted.context,
                error=error,
            )
        )
    )
    return text if isinstance(text, str) else None


async def _custom_data(tool: FunctionTool, context: ToolContext[Any], value: Any) -> Raw:
    if tool.custom_data_extractor is None:
        return NO_JSON
    raw = {
        "call_id": context.tool_call_id,
        "output": tool_output_to_wire(value),
        "type": "function_call_output",
    }
    data = FunctionToolCustomDataContext(context, tool, value, raw)
    return as_json(await resolved(tool.custom_data_extractor(data)))
