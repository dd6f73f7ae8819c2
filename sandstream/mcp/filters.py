"""Filters the tools of a server for an agent."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias, TypedDict

from sandstream.exceptions import UserError
from sandstream.mcp.tool_names import safe_server_name
from sandstream.run_context import RunContextWrapper

logger = logging.getLogger(__name__)


@dataclass
class ToolFilterContext:
    """The run, the agent and the server for which tools are filtered.

    Example:
        def safe_ones(context: ToolFilterContext, tool: Any) -> bool:
            return context.agent.name == "Admin" or not tool.name.startswith("delete")


        server = MCPServerStdio(params={"command": "server"}, tool_filter=safe_ones)
    """

    run_context: RunContextWrapper[Any]
    """The context of the run."""
    agent: Any
    """The agent."""
    server_name: str
    """The name of the server."""


class ToolFilterStatic(TypedDict):
    """Tools by name: the allowed ones (all if absent), minus the blocked ones."""

    allowed_tool_names: NotRequired[list[str]]
    """The tools that agents see; missing: all."""
    blocked_tool_names: NotRequired[list[str]]
    """The tools that agents do not see, even if they are allowed."""


ToolFilterCallable: TypeAlias = Callable[[ToolFilterContext, Any], bool | Awaitable[bool]]
"""``(context, tool)`` -> whether the agent sees the tool. An exception hides the tool."""
ToolFilter: TypeAlias = ToolFilterCallable | ToolFilterStatic | None


def create_static_tool_filter(
    allowed_tool_names: list[str] | None = None, blocked_tool_names: list[str] | None = None
) -> ToolFilterStatic | None:
    """Make a filter of tools by their names.

    Args:
        allowed_tool_names: The tools that agents see; ``None`` is all.
        blocked_tool_names: The tools that agents do not see.

    Returns:
        The filter; ``None`` if there is nothing to filter.

    Example:
        server = MCPServerStdio(
            params={"command": "server"},
            tool_filter=create_static_tool_filter(blocked_tool_names=["delete"]),
        )
    """
    names = ToolFilterStatic()
    if allowed_tool_names is not None:
        names["allowed_tool_names"] = allowed_tool_names
    if blocked_tool_names is not None:
        names["blocked_tool_names"] = blocked_tool_names
    return names or None


async def filtered_tools(
    tool_filter: ToolFilter,
    tools: list[Any],
    run_context: RunContextWrapper[Any] | None,
    agent: Any | None,
    server_name: str,
) -> list[Any]:
    """The tools that pass the filter.

    Raises:
        UserError: if the filter is a function and there is no run or agent to pass to it.
    """
    if tool_filter is None:
        return tools
    if isinstance(tool_filter, dict):
        allowed = tool_filter.get("allowed_tool_names")
        blocked = tool_filter.get("blocked_tool_names", [])
        return [
            tool
            for tool in tools
            if (allowed is None or tool.name in allowed) and tool.name not in blocked
        ]
    if run_context is None or agent is None:
        raise UserError("run_context and agent are required for dynamic tool filtering")
    context = ToolFilterContext(run_context, agent, server_name)
    return [tool for tool in tools if await _passes(tool_filter, context, tool)]


async def _passes(tool_filter: ToolFilterCallable, context: ToolFilterContext, tool: Any) -> bool:
    try:
        verdict = tool_filter(context, tool.model_copy(deep=True))
        return bool(await verdict if inspect.isawaitable(verdict) else verdict)
    except Exception:
        logger.exception(
            "The tool filter failed; the tool is hidden",
            extra={"server": safe_server_name(context.server_name), "tool": tool.name},
        )
        return False
