"""Tools of MCP servers, as an agent sees them in a turn."""

from __future__ import annotations

from sandstream._hosting.hosted_run import HostedRun
from sandstream.agent import Tool
from sandstream.mcp.agent_tools import list_mcp_tools


async def list_for(hosted: HostedRun, key: str) -> list[Tool]:
    """List the tools of an agent's servers again, and remember them for the following calls."""
    agent = hosted.agent(key)
    if hosted.connect is not None:
        await hosted.connect(agent.mcp_servers)
    hosted.listed[key] = await list_mcp_tools(agent, hosted.context)
    return hosted.listed[key]


async def listed_tool(hosted: HostedRun, key: str, name: str) -> Tool | None:
    """A tool of an agent. Lists the MCP tools if another process listed them for this turn."""
    tool = hosted.tool(key, name)
    if tool is None and key not in hosted.listed and hosted.agent(key).mcp_servers:
        await list_for(hosted, key)
        tool = hosted.tool(key, name)
    return tool
