"""The tools of an agent's MCP servers, under names that do not collide with the agent's own."""

from __future__ import annotations

import inspect
from typing import Any

from sandstream.agent import Agent, Tool
from sandstream.handoffs.handoff import Handoff
from sandstream.run_context import RunContextWrapper
from sandstream.tool import default_tool_error_function


async def list_mcp_tools(agent: Agent[Any], context: RunContextWrapper[Any]) -> list[Tool]:
    """The tools that the agent's servers offer now, according to its ``mcp_config``."""
    from sandstream.mcp.util import MCPUtil

    config = agent.mcp_config
    with_server = bool(config.get("include_server_in_tool_names", False))
    return list(
        await MCPUtil.get_all_function_tools(
            agent.mcp_servers,
            bool(config.get("convert_schemas_to_strict", False)),
            context,
            agent,
            failure_error_function=config.get(
                "failure_error_function", default_tool_error_function
            ),
            include_server_in_tool_names=with_server,
            reserved_tool_names=await _reserved(agent, context) if with_server else None,
        )
    )


async def is_handoff_enabled(
    handoff: Handoff[Any, Any], context: RunContextWrapper[Any], agent: Agent[Any]
) -> bool:
    enabled = handoff.is_enabled
    if isinstance(enabled, bool):
        return enabled
    answer = enabled(context, agent)
    return bool(await answer if inspect.isawaitable(answer) else answer)


async def _reserved(agent: Agent[Any], context: RunContextWrapper[Any]) -> set[str]:
    """Names that are not available for tools of servers."""
    names = {tool.name for tool in agent.tools}
    for item in agent.handoffs:
        if not isinstance(item, Handoff):
            names.add(Handoff.default_tool_name(item))
        elif await is_handoff_enabled(item, context, agent):
            names.add(item.tool_name)
    return names
