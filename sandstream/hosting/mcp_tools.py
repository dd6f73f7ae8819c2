"""Tools of MCP servers, as an agent sees them in a turn."""

from __future__ import annotations

from typing import Any

from sandstream.agent import Agent, Tool
from sandstream.run_context import RunContextWrapper


async def list_mcp_tools(agent: Agent[Any], context: RunContextWrapper[Any]) -> list[Tool]:
    raise NotImplementedError
