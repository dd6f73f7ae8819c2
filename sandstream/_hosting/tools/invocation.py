"""Calls of function tools and custom tools, with the user's guardrails and hooks around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw
from sandstream_actors.run.state_cache import States
from sandstream_bus.wire.error_text import error_text
from sandstream_bus.wire.messages import CallFinished, CallRequested, ErrorInfo, GuardrailRecord
from sandstream_bus.wire.specs import NO_JSON
from sandstream_bus.wire.subjects import RunId

from sandstream._hosting import hooks
from sandstream._hosting.guardrails.checks import guard_tool_input, guard_tool_output
from sandstream._hosting.guardrails.records import AnyResult, records_of
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.outcomes import CallFailed, encode, finished
from sandstream._hosting.tools.context import tool_context
from sandstream._hosting.tools.mcp import listed_tool
from sandstream._hosting.tools.texts import formatted
from sandstream._hosting.values import as_json, final_value, resolved
from sandstream._surface.outcomes import error_info
from sandstream.agent import Tool
from sandstream.custom_tool import CustomTool, CustomToolCustomDataContext
from sandstream.exceptions import AgentsException, UserError
from sandstream.tool import (
    FunctionTool,
    FunctionToolCustomDataContext,
    invoke_function_tool,
    tool_output_to_wire,
)
from sandstream.tool_context import ToolContext
from sandstream.tool_guardrails import (
    ToolInputGuardrailData,
    ToolInputGuardrailResult,
    ToolOutputGuardrailData,
    ToolOutputGuardrailResult,
)


async def call_tool(
    hosted: HostedRun, call: CallRequested, run: RunId, states: States
) -> CallFinished:
    tool = await listed_tool(hosted, call.agent, call.name)
    if tool is None or not await _was_offered(tool, run, states):
        text = await _not_found(hosted, call)
        return finished(
            call, output=encode(text), error=ErrorInfo(code="tool_not_found", message=text)
        )
    if isinstance(tool, CustomTool):
        return await _call_custom_tool(hosted, call, tool)
    verdicts = _Verdicts()
    try:
        value, custom_data = await _guarded(hosted, call, tool, verdicts)
    except Exception as error:
        raise CallFailed(error, guardrails=verdicts.told(hosted, call)) from error
    hosted.values[call.call] = value
    agent = hosted.agent(call.agent)
    may_end = agent.tool_use_behavior != "run_llm_again"
    return finished(
        call,
        output=encode(tool_output_to_wire(value)),
        value=as_json(final_value(agent, value)) if may_end else NO_JSON,
        custom_data=custom_data,
        guardrails=verdicts.told(hosted, call),
        error=error_info(verdicts.failure) if verdicts.failure is not None else None,
    )


@dataclass
class _Verdicts:
    """The guardrail verdicts on one call, and the tool failure that the model is told about."""

    before: list[ToolInputGuardrailResult] = field(default_factory=list)
    after: list[ToolOutputGuardrailResult] = field(default_factory=list)
    failure: Exception | None = None

    def told(self, hosted: HostedRun, call: CallRequested) -> list[GuardrailRecord]:
        """The verdicts as data; the objects are kept in the hosted run."""
        results: list[AnyResult] = [*self.before, *self.after]
        hosted.guardrails[call.call] = results
        return records_of(results, call.agent)


async def _guarded(
    hosted: HostedRun, call: CallRequested, tool: FunctionTool, verdicts: _Verdicts
) -> tuple[Any, Raw]:
    """Call the tool with its guardrails and hooks; return the model's value and custom data."""
    agent = hosted.agent(call.agent)
    context = tool_context(hosted, call)
    limit_s = hosted.config.guardrail_timeout
    before = ToolInputGuardrailData(context, agent)
    _, refusal = await guard_tool_input(tool, before, limit_s, results=verdicts.before)
    if refusal is not None:
        return refusal, NO_JSON  # the tool is not called, so no hook is either
    await hooks.tool_start(hosted.hooks, agent.hooks, context, agent, tool)
    value = await _invoked(hosted, call, tool, context)
    verdicts.failure = context._failure
    after = ToolOutputGuardrailData(context, agent, value)
    _, value = await guard_tool_output(tool, after, limit_s, results=verdicts.after)
    custom_data = await _custom_data(tool, context, value)
    await hooks.tool_end(hosted.hooks, agent.hooks, context, agent, tool, value)
    return value, custom_data


async def _invoked(
    hosted: HostedRun, call: CallRequested, tool: FunctionTool, context: ToolContext[Any]
) -> Any:
    async def format_error(ctx: Any, error: Exception, default: str) -> str | None:
        return await formatted(hosted, call, "tool_exception", default, error)

    formatter = format_error if hosted.config.tool_error_formatter else None
    return await invoke_function_tool(tool, context, call.arguments, error_formatter=formatter)


async def _call_custom_tool(
    hosted: HostedRun, call: CallRequested, tool: CustomTool
) -> CallFinished:
    """Call a custom tool. The model always gets a text, also if the tool raises."""
    agent = hosted.agent(call.agent)
    context = tool_context(hosted, call, is_custom=True)
    failed: ErrorInfo | None = None
    await hooks.tool_start(hosted.hooks, agent.hooks, context, agent, tool)
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
    await hooks.tool_end(hosted.hooks, agent.hooks, context, agent, tool, text)
    return finished(call, output=encode(text), error=failed, custom_data=custom_data)


async def _was_offered(tool: Tool, run: RunId, states: States) -> bool:
    """A tool that was disabled in the model's request counts as not existing."""
    if isinstance(tool, CustomTool) or tool.is_enabled is True:
        return True
    return tool.name not in (await states.load(run)).disabled_tools


async def _not_found(hosted: HostedRun, call: CallRequested) -> str:
    default = f"Tool '{call.name}' not found."
    return await formatted(hosted, call, "tool_not_found", default, None) or default


async def _custom_data(tool: FunctionTool, context: ToolContext[Any], value: Any) -> Raw:
    if tool.custom_data_extractor is None:
        return NO_JSON
    raw = {
        "call_id": context.tool_call_id,
        "output": tool_output_to_wire(value),
        "type": "function_call_output",
    }
    data = FunctionToolCustomDataContext(context, tool, value, raw)
    try:
        return as_json(await resolved(tool.custom_data_extractor(data)))
    except AgentsException:
        raise
    except Exception as error:
        raise UserError(f"Error running tool {tool.name}: {error_text(error)}") from error
