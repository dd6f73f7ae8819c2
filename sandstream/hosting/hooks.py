"""Calls the user's hooks: those of the run and those of the agent, at the same time.

Knows the points of a run and the arguments at each; who is at which point when is the caller's
business. :func:`points_of` says which of them are worth a message at all.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from sandstream.agent import Agent, Tool
from sandstream.exceptions import AgentsException, UserError
from sandstream.hosting.stopping import not_cancelled_by_itself, stop
from sandstream.items import ModelResponse, TResponseInputItem
from sandstream.lifecycle import AgentHooksBase, RunHooksBase
from sandstream.run_context import AgentHookContext, RunContextWrapper
from sandstream.tool import FunctionTool

POINTS = ("agent_start", "agent_end", "llm_start", "llm_end", "handoff", "tool_start", "tool_end")

_OF_AGENT = {"agent_start": "on_start", "agent_end": "on_end"}
"""Where the method of agent hooks is not named as that of run hooks."""

Hook = Callable[..., Any]


def check_run_hooks(hooks: object) -> None:
    """Refuse what cannot be the hooks of a run.

    Raises:
        TypeError: if it is no ``RunHooks``; most often it is an ``AgentHooks``.
    """
    if hooks is None or isinstance(hooks, RunHooksBase):
        return
    name = type(hooks).__name__
    if isinstance(hooks, AgentHooksBase):
        raise TypeError(
            f"Run hooks must be instances of RunHooks; {name} is an AgentHooks, which belongs to "
            "one agent: Agent(hooks=...)."
        )
    raise TypeError(f"Run hooks must be instances of RunHooks, not {name}.")


def points_of(run_hooks: object, agent_hooks: object) -> list[str]:
    """The points at which the user's code wants to be called, sorted."""
    return sorted(
        point
        for point in POINTS
        if _of_run(run_hooks, point) is not None or _of_agent(agent_hooks, point) is not None
    )


async def agent_start(
    run_hooks: object, agent_hooks: object, context: RunContextWrapper[Any], agent: Agent[Any]
) -> None:
    narrowed = _agent_hook_context(context)
    await _together(
        _call(_of_run(run_hooks, "agent_start"), narrowed, agent),
        _call(_of_agent(agent_hooks, "agent_start"), narrowed, agent),
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
        _call(_of_run(run_hooks, "agent_end"), narrowed, agent, output),
        _call(_of_agent(agent_hooks, "agent_end"), narrowed, agent, output),
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
        _call(_of_run(run_hooks, "llm_start"), context, agent, system_prompt, input_items),
        _call(_of_agent(agent_hooks, "llm_start"), context, agent, system_prompt, input_items),
    )


async def llm_end(
    run_hooks: object,
    agent_hooks: object,
    context: RunContextWrapper[Any],
    agent: Agent[Any],
    response: ModelResponse,
) -> None:
    await _together(
        _call(_of_agent(agent_hooks, "llm_end"), context, agent, response),
        _call(_of_run(run_hooks, "llm_end"), context, agent, response),
    )


async def handoff(
    run_hooks: object,
    source_hooks: object,
    context: RunContextWrapper[Any],
    source: Agent[Any],
    target: Agent[Any],
) -> None:
    """``source_hooks`` are those of the agent that hands over; the other one's are not called."""
    await _together(
        _call(_of_run(run_hooks, "handoff"), context=context, from_agent=source, to_agent=target),
        _call(_of_agent(source_hooks, "handoff"), context, agent=target, source=source),
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
        _call(_of_run(run_hooks, "tool_start"), context, agent, tool),
        _call(_of_agent(agent_hooks, "tool_start"), context, agent, tool),
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
        _call(_of_run(run_hooks, "tool_end"), context, agent, tool, result),
        _call(_of_agent(agent_hooks, "tool_end"), context, agent, tool, result),
    )


def _of_run(hooks: object, point: str) -> Hook | None:
    return _overridden(hooks, RunHooksBase, f"on_{point}")


def _of_agent(hooks: object, point: str) -> Hook | None:
    return _overridden(hooks, AgentHooksBase, _OF_AGENT.get(point, f"on_{point}"))


def _overridden(hooks: object, base: type, name: str) -> Hook | None:
    """The method, unless it is the one that does nothing."""
    method: Hook | None = getattr(hooks, name, None)
    if not callable(method) or getattr(method, "__func__", None) is getattr(base, name):
        return None
    return method


def _agent_hook_context(context: RunContextWrapper[Any]) -> AgentHookContext[Any]:
    """The same state under the type that these hooks expect, so that what they change stays."""
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
    """The first that raises cancels the rest."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        await stop(tasks)


async def _around_tool(tool: Tool, *calls: Coroutine[Any, Any, None]) -> None:
    """What a hook of a function tool raises is told as the tool's, but not to the model."""
    try:
        await _together(*calls)
    except AgentsException:
        raise
    except Exception as error:
        if not isinstance(tool, FunctionTool):
            raise
        raise UserError(f"Error running tool {tool.name}: {error}") from error
