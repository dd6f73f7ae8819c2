"""Tools of MCP servers, as an agent sees them in a turn."""

from __future__ import annotations

import inspect
from typing import Any

from sandstream.agent import Agent, Tool
from sandstream.handoffs.handoff import Handoff
from sandstream.hosting.hosted_run import HostedRun
from sandstream.run_context import RunContextWrapper
from sandstream.tool import default_tool_error_function


async def list_mcp_tools(agent: Agent[Any], context: RunContextWrapper[Any]) -> list[Tool]:
    """What the agent's servers offer now, as its ``mcp_config`` wants it."""
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


async def list_for(hosted: HostedRun, key: str) -> list[Tool]:
    """List the tools of an agent's servers anew, and remember them for the calls that follow."""
    agent = hosted.agent(key)
    if hosted.connect is not None:
        await hosted.connect(agent.mcp_servers)
    hosted.listed[key] = await list_mcp_tools(agent, hosted.context)
    return hosted.listed[key]


async def listed_tool(hosted: HostedRun, key: str, name: str) -> Tool | None:
    """A tool of an agent. Another process may have listed its servers' tools for this turn."""
    tool = hosted.tool(key, name)
    if tool is None and key not in hosted.listed and hosted.agent(key).mcp_servers:
        await list_for(hosted, key)
        tool = hosted.tool(key, name)
    return tool


async def is_handoff_enabled(
    handoff: Handoff[Any, Any], context: RunContextWrapper[Any], agent: Agent[Any]
) -> bool:
    enabled = handoff.is_enabled
    if isinstance(enabled, bool):
        return enabled
    answer = enabled(context, agent)
    return bool(await answer if inspect.isawaitable(answer) else answer)


async def _reserved(agent: Agent[Any], context: RunContextWrapper[Any]) -> set[str]:
    """Names that tools of servers must not take."""
    names = {tool.name for tool in agent.tools}
    for item in agent.handoffs:
        if not isinstance(item, Handoff):
            names.add(Handoff.default_tool_name(item))
        elif await is_handoff_enabled(item, context, agent):
            names.add(item.tool_name)
    return names
