"""Calls the user's hooks: those of the run and those of the agent, concurrently.

Knows the arguments at each point of a run; the caller decides when a point is reached.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

from sandstream_bus.wire.error_text import error_text

from sandstream._surface.hook_points import Hook, hook_of_agent, hook_of_run
from sandstream._surface.task_ends import not_cancelled_by_itself, stop
from sandstream.agent import Agent, Tool
from sandstream.exceptions import AgentsException, UserError
from sandstream.items import ModelResponse, TResponseInputItem
from sandstream.run_context import AgentHookContext, RunContextWrapper
from sandstream.tool import FunctionTool


async def agent_start(
    run_hooks: object, agent_hooks: object, context: RunContextWrapper[Any], agent: Agent[Any]
) -> None:
    narrowed = _agent_hook_context(context)
    await _together(
        _call(hook_of_run(run_hooks, "agent_start"), narrowed, agent),
        _call(hook_of_agent(agent_hooks, "agent_start"), narrowed, agent),
    )


async def agent_end(
    run_hooks: object,
    agent_hooks: object,
    context: RunContextWrapper[Any],
    agent: Agent[Any],
    output: Any,
) -> None:
    narrowed = _agent_hook_context(context)
    await _together(
        _call(hook_of_run(run_hooks, "agent_end"), narrowed, agent, output),
        _call(hook_of_agent(agent_hooks, "agent_end"), narrowed, agent, output),
    )


async def llm_start(
    run_hooks: object,
    agent_hooks: object,
    context: RunContextWrapper[Any],
    agent: Agent[Any],
    system_prompt: str | None,
    input_items: list[TResponseInputItem],
) -> None:
    await _together(
        _call(hook_of_run(run_hooks, "llm_start"), context, agent, system_prompt, input_items),
        _call(hook_of_agent(agent_hooks, "llm_start"), context, agent, system_prompt, input_items),
    )


async def llm_end(
    run_hooks: object,
    agent_hooks: object,
    context: RunContextWrapper[Any],
    agent: Agent[Any],
    response: ModelResponse,
) -> None:
    await _together(
        _call(hook_of_agent(agent_hooks, "llm_end"), context, agent, response),
        _call(hook_of_run(run_hooks, "llm_end"), context, agent, response),
    )


async def handoff(
    run_hooks: object,
    source_hooks: object,
    context: RunContextWrapper[Any],
    source: Agent[Any],
    target: Agent[Any],
) -> None:
    """``source_hooks`` are the hooks of the agent that hands off; the target's are not called."""
    await _together(
        _call(
            hook_of_run(run_hooks, "handoff"), context=context, from_agent=source, to_agent=target
        ),
        _call(hook_of_agent(source_hooks, "handoff"), context, agent=target, source=source),
    )


async def tool_start(
    run_hooks: object,
    agent_hooks: object,
    context: RunContextWrapper[Any],
    agent: Agent[Any],
    tool: Tool,
) -> None:
    await _around_tool(
        tool,
        _call(hook_of_run(run_hooks, "tool_start"), context, agent, tool),
        _call(hook_of_agent(agent_hooks, "tool_start"), context, agent, tool),
    )


async def tool_end(
    run_hooks: object,
    agent_hooks: object,
    context: RunContextWrapper[Any],
    agent: Agent[Any],
    tool: Tool,
    result: object,
) -> None:
    await _around_tool(
        tool,
        _call(hook_of_run(run_hooks, "tool_end"), context, agent, tool, result),
        _call(hook_of_agent(agent_hooks, "tool_end"), context, agent, tool, result),
    )


def _agent_hook_context(context: RunContextWrapper[Any]) -> AgentHookContext[Any]:
    """The same state under the type that these hooks expect, so that their changes persist."""
    narrowed: AgentHookContext[Any] = AgentHookContext(context.context)
    vars(narrowed).update(vars(context))
    return narrowed


async def _call(hook: Hook | None, *arguments: Any, **named: Any) -> None:
    if hook is None:
        return
    answer = hook(*arguments, **named)
    if inspect.isawaitable(answer):
        await not_cancelled_by_itself(f"The hook {getattr(hook, '__qualname__', hook)}", answer)


async def _together(*calls: Coroutine[Any, Any, None]) -> None:
    """Run the calls concurrently; the first exception cancels the rest."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        await stop(tasks)


async def _around_tool(tool: Tool, *calls: Coroutine[Any, Any, None]) -> None:
    """An exception of a function tool's hook names the tool, but is not shown to the model."""
    try:
        await _together(*calls)
    except AgentsException:
        raise
    except Exception as error:
        if not isinstance(tool, FunctionTool):
            raise
        raise UserError(f"Error running tool {tool.name}: {error_text(error)}") from error
