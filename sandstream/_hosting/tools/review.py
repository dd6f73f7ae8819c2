"""Reviews a model's answer: calls its hook, and finds the calls that need an approval."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run.call_results import REJECTED, child_result
from sandstream_actors.run.output_items import ToolCall
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import States
from sandstream_bus.wire.error_text import error_text
from sandstream_bus.wire.messages import CallRequested, Reviewed

from sandstream._hosting import hooks
from sandstream._hosting.guardrails.checks import guard_tool_input
from sandstream._hosting.guardrails.records import records_of
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.outcomes import CallFailed, Outcome, encode
from sandstream._hosting.tools.approval_arguments import judgeable_arguments
from sandstream._hosting.tools.context import about, answered_item, tool_context
from sandstream._hosting.tools.mcp import listed_tool
from sandstream._hosting.tools.texts import formatted
from sandstream._hosting.values import resolved
from sandstream.custom_tool import CustomTool
from sandstream.exceptions import AgentsException, UserError
from sandstream.items import ModelResponse, ToolApprovalItem
from sandstream.tool import FunctionTool
from sandstream.tool_guardrails import ToolInputGuardrailData, ToolInputGuardrailResult
from sandstream.usage import usage_of

logger = logging.getLogger(__name__)


async def review(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> Outcome:
    """Call the hook for the answer, then review all of its calls.

    Raises:
        CallFailed: if a hook, a ``needs_approval`` function or a guardrail raises.
    """
    assert state.answer is not None
    agent = hosted.agent(call.agent)
    hosted.context.usage = usage_of(call.usage)
    if "llm_end" in state.agent.hooks:
        response = _response(state)
        await hooks.llm_end(hosted.hooks, agent.hooks, hosted.context, agent, response)
    reviewing = _Reviewing(hosted, state, call)
    try:
        for tool_call in state.tool_calls:
            await reviewing.look_at(tool_call)
    except Exception as error:
        raise CallFailed(error, guardrails=reviewing.records()) from error
    found = Reviewed(needs_approval=reviewing.needs_approval, outputs=reviewing.outputs)
    return Outcome(found, {"guardrails": reviewing.records()})


def _response(state: RunState) -> ModelResponse:
    assert state.answer is not None
    event = state.answer.event
    return ModelResponse(
        [msgspec.json.decode(item) for item in event.output],
        usage_of(event.usage),
        event.response_id,
        event.request_id,
        msgspec.json.decode(event.raw_usage) if event.raw_usage else None,
    )


@dataclass
class _Reviewing:
    """The findings about the calls of one answer."""

    hosted: HostedRun
    state: RunState
    request: CallRequested
    needs_approval: list[str] = field(default_factory=list)
    outputs: dict[str, Raw] = field(default_factory=dict)
    verdicts: list[ToolInputGuardrailResult] = field(default_factory=list)

    def records(self) -> Any:
        self.hosted.guardrails[self.request.call] = self.verdicts
        return records_of(self.verdicts, self.request.agent)

    async def look_at(self, call: ToolCall) -> None:
        spec = self.state.tool(call.name)
        if spec is None or spec.approval == "never":
            return
        tool = await listed_tool(self.hosted, self.request.agent, call.name)
        if tool is None or (self.state.agent_name, call.name) in self.state.sticky:
            # the tool is unknown here, or an earlier decision covers all of its calls
            self.needs_approval.append(call.id)
        elif isinstance(tool, CustomTool):
            await self._look_at_custom(call, tool)
        elif await self._function_needs_approval(call, tool):
            await self._before_approval(call, tool)

    async def _function_needs_approval(self, call: ToolCall, tool: FunctionTool) -> bool:
        needs = tool.needs_approval
        if isinstance(needs, bool):
            return needs
        arguments = judgeable_arguments(tool, call.arguments)
        if arguments is None:
            return True
        try:
            return bool(await resolved(needs(self.hosted.context, arguments, call.call_id)))
        except AgentsException:
            raise
        except Exception as error:
            raise UserError(f"Error running tool {tool.name}: {error_text(error)}") from error

    async def _before_approval(self, call: ToolCall, tool: FunctionTool) -> None:
        refusal: str | None = None
        if self.state.options.pre_approval_guardrails:
            context = tool_context(self.hosted, about(self.request, call))
            data = ToolInputGuardrailData(context, self.hosted.agent(self.request.agent))
            limit_s = self.hosted.config.guardrail_timeout
            _, refusal = await guard_tool_input(tool, data, limit_s, results=self.verdicts)
        if refusal is None:
            self.needs_approval.append(call.id)
        else:
            self.outputs[call.id] = encode(refusal)

    async def _look_at_custom(self, call: ToolCall, tool: CustomTool) -> None:
        context = self.hosted.context
        needs = tool.runtime_needs_approval()
        if not isinstance(needs, bool):
            needs = bool(await resolved(needs(context, call.arguments, call.call_id)))
        if not needs:
            return
        on_approval = tool.runtime_on_approval()
        decision: Any = None
        if on_approval is not None:
            agent = self.hosted.agent(self.request.agent)
            item = ToolApprovalItem(agent, answered_item(self.state, call), tool.name)
            decision = await resolved(on_approval(context, item))
        approve = decision.get("approve") if isinstance(decision, Mapping) else None
        if approve is False:
            reason = decision.get("reason")
            text = reason if isinstance(reason, str) and reason else None
            self.outputs[call.id] = encode(text or await self._refusal(call))
        elif approve is not True:
            self.needs_approval.append(call.id)

    async def _refusal(self, call: ToolCall) -> str:
        return await _rejection(self.hosted, about(self.request, call), "custom")


async def reject(hosted: HostedRun, state: RunState, call: CallRequested, states: States) -> str:
    """The text for a call that a person refused."""
    is_custom = any(it.is_custom for it in state.tool_calls if it.call_id == call.call_id)
    return await _rejection(hosted, call, "custom" if is_custom else "function")


async def _rejection(hosted: HostedRun, call: CallRequested, tool_type: str) -> str:
    """The refusal text. If the formatter fails, the model gets the default text."""
    try:
        text = await formatted(
            hosted, call, "approval_rejected", REJECTED, None, tool_type=tool_type
        )
    except Exception:
        logger.exception("tool_error_formatter failed; the default text is used")
        return REJECTED
    return REJECTED if text is None else text


async def outside_hook(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> None:
    """Call a tool hook around a call that another actor makes."""
    made = next(it for it in state.tool_calls if it.id == call.call.rpartition("-")[0])
    agent = hosted.agent(call.agent)
    tool = hosted.tool(call.agent, made.name)
    if tool is None:
        raise UserError(f"agent {agent.name!r} has no tool {made.name!r} in this process")
    context = tool_context(hosted, about(call, made), is_custom=made.is_custom)
    if call.name == "tool_start":
        await hooks.tool_start(hosted.hooks, agent.hooks, context, agent, tool)
        return
    result = _result(hosted, state, made)
    await hooks.tool_end(hosted.hooks, agent.hooks, context, agent, tool, result)


def _result(hosted: HostedRun, state: RunState, call: ToolCall) -> Any:
    """The result of a finished call as the model reads it."""
    if call.id in hosted.values:
        return hosted.values[call.id]
    result = state.results[call.id]
    spec = state.tool(call.name)
    if spec is not None and spec.child is not None:
        told = child_result(state, call, spec.child, result)
        assert told is not None  # the hook is requested only once the result is known
        result = told
    return msgspec.json.decode(result.output) if result.output else None
