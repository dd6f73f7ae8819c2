"""The tools of servers as function tools of an agent."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from sandstream.exceptions import UserError
from sandstream.items import ToolOrigin, ToolOriginType
from sandstream.mcp import package
from sandstream.mcp.contexts import ToolOutput
from sandstream.mcp.invocation import invoke
from sandstream.mcp.schemas import tool_schema
from sandstream.mcp.server import MCPServer
from sandstream.mcp.tool_names import ServerTool, prefixed_tool_names
from sandstream.run_context import RunContextWrapper
from sandstream.tool import (
    FunctionTool,
    FunctionToolCustomDataContext,
    ToolErrorFunction,
    default_tool_error_function,
)
from sandstream.tool_context import ToolContext
from sandstream.tracing._runs.part_of_run import part_of_run
from sandstream.tracing.scope import Scope
from sandstream.tracing.span_data import FunctionSpanData, MCPListToolsSpanData

logger = logging.getLogger(__name__)


class MCPUtil:
    """Makes function tools from the tools of servers.

    Example:
        async with MCPServerStdio(params={"command": "server"}) as server:
            tools = await MCPUtil.get_function_tools(server, False, RunContextWrapper(None), agent)
    """

    @classmethod
    async def get_all_function_tools(
        cls,
        servers: list[MCPServer],
        convert_schemas_to_strict: bool,
        run_context: RunContextWrapper[Any],
        agent: Any,
        failure_error_function: ToolErrorFunction | None = default_tool_error_function,
        include_server_in_tool_names: bool = False,
        reserved_tool_names: set[str] | None = None,
    ) -> list[FunctionTool]:
        """The tools of all servers, in their order.

        Args:
            servers: The connected servers.
            convert_schemas_to_strict: Whether the tools' schemas are made strict where possible.
            run_context: The context of the run, which tool filters receive.
            agent: The agent that gets the tools.
            failure_error_function: Makes a text for the model of a failed call; ``None`` ends the
                run with the error. A server's own function wins.
            include_server_in_tool_names: Whether each name starts with its server's name.
            reserved_tool_names: Names that prefixed tools must not get, such as those of the
                agent's own tools.

        Raises:
            UserError: if two servers have tools with the same name, and names are not prefixed.
        """
        listed = [(server, await _listed(server, run_context, agent)) for server in servers]
        names: list[str] | None = None
        if include_server_in_tool_names:
            names = _prefixed(listed, reserved_tool_names)
        else:
            _check_unique(listed)
        offered = [(server, tool) for server, tools in listed for tool in tools]
        return [
            cls.to_function_tool(
                tool,
                server,
                convert_schemas_to_strict,
                agent,
                failure_error_function=failure_error_function,
                tool_name_override=None if names is None else names[index],
            )
            for index, (server, tool) in enumerate(offered)
        ]

    @classmethod
    async def get_function_tools(
        cls,
        server: MCPServer,
        convert_schemas_to_strict: bool,
        run_context: RunContextWrapper[Any],
        agent: Any,
        failure_error_function: ToolErrorFunction | None = default_tool_error_function,
        include_server_in_tool_names: bool = False,
        tool_name_override: Callable[[Any], str] | None = None,
        reserved_tool_names: set[str] | None = None,
        server_index: int = 0,
    ) -> list[FunctionTool]:
        """The tools of one server.

        Args:
            server: The connected server.
            convert_schemas_to_strict: Whether the tools' schemas are made strict where possible.
            run_context: The context of the run, which tool filters receive.
            agent: The agent that gets the tools.
            failure_error_function: Makes a text for the model of a failed call; ``None`` ends the
                run with the error. The server's own function wins.
            include_server_in_tool_names: Whether each name starts with the server's name.
            tool_name_override: Makes the name for the model of a tool; it wins over the prefix.
            reserved_tool_names: Names that prefixed tools must not get, such as those of the
                agent's own tools.
            server_index: Accepted for compatibility, and ignored.
        """
        tools = await _listed(server, run_context, agent)
        names: list[str] | None = None
        if tool_name_override is not None:
            names = [tool_name_override(tool) for tool in tools]
        elif include_server_in_tool_names:
            names = _prefixed([(server, tools)], reserved_tool_names)
        return [
            cls.to_function_tool(
                tool,
                server,
                convert_schemas_to_strict,
                agent,
                failure_error_function=failure_error_function,
                tool_name_override=None if names is None else names[index],
            )
            for index, tool in enumerate(tools)
        ]

    @classmethod
    def to_function_tool(
        cls,
        tool: Any,
        server: MCPServer,
        convert_schemas_to_strict: bool,
        agent: Any | None = None,
        failure_error_function: ToolErrorFunction | None = default_tool_error_function,
        tool_name_override: str | None = None,
    ) -> FunctionTool:
        """One tool of a server.

        Args:
            tool: The tool, as ``mcp.types.Tool``.
            server: The server that calls go to.
            convert_schemas_to_strict: Whether the tool's schema is made strict if possible.
            agent: The agent that gets the tool; without one, a policy function counts as "needs
                approval".
            failure_error_function: Makes a text for the model of a failed call; ``None`` ends the
                run with the error. The server's own function wins.
            tool_name_override: The name for the model; ``None`` is the tool's own.
        """
        name = tool_name_override or tool.name
        on_failure = server.failure_function(failure_error_function)
        schema, strict = tool_schema(package.input_schema(tool), strict=convert_schemas_to_strict)
        calls = _Calls(server, tool, name, on_failure)
        return FunctionTool(
            name=name,
            description=tool.description or _title(tool) or "",
            params_json_schema=schema,
            on_invoke_tool=calls,
            strict_json_schema=strict,
            needs_approval=server.needs_approval_for(tool, agent),
            tool_input_guardrails=_copy(server.tool_input_guardrails),
            tool_output_guardrails=_copy(server.tool_output_guardrails),
            custom_data_extractor=calls.custom_data if server.custom_data_extractor else None,
            tool_origin=ToolOrigin(ToolOriginType.MCP, mcp_server_name=server.safe_name),
            title=_title(tool),
            _on_failure=on_failure,
        )

    @classmethod
    async def invoke_mcp_tool(
        cls,
        server: MCPServer,
        tool: Any,
        context: RunContextWrapper[Any],
        input_json: str,
        *,
        meta: dict[str, Any] | None = None,
        tool_display_name: str | None = None,
    ) -> ToolOutput:
        """Call a tool with arguments as JSON text; return the output for the model.

        Args:
            server: The connected server.
            tool: The tool, as ``mcp.types.Tool``.
            context: The context of the run.
            input_json: The model's arguments as JSON text.
            meta: The ``_meta`` of the request, which the server's ``tool_meta_resolver`` can add
                to.
            tool_display_name: The tool's name in errors; ``None`` is its own name.
        """
        shown_name = tool_display_name or tool.name
        output, _ = await invoke(
            server, tool, context, input_json, meta=meta, shown_name=shown_name
        )
        return output


class _Calls:
    """``on_invoke_tool`` of a server's tool, and the custom data of its calls."""

    def __init__(
        self, server: MCPServer, tool: Any, name: str, on_failure: ToolErrorFunction | None
    ) -> None:
        self._server = server
        self._tool = tool
        self._name = name
        self._on_failure = on_failure
        self._data: WeakKeyDictionary[RunContextWrapper[Any], dict[str, Any]] = WeakKeyDictionary()

    async def __call__(self, context: ToolContext[Any], input_json: str) -> Any:
        span = Scope.get_current_span()
        if span is not None and isinstance(span.span_data, FunctionSpanData):
            span.span_data.mcp_data = {"server": self._server.safe_name}
        try:
            output, data = await invoke(
                self._server,
                self._tool,
                context,
                input_json,
                meta=getattr(self._tool, "meta", None),
                shown_name=self._name,
            )
        except Exception as error:
            if self._on_failure is None:
                raise
            logger.warning(
                "A tool of an MCP server failed; the model is told so",
                extra={
                    "tool": self._name,
                    "server": self._server.safe_name,
                    "error": type(error).__name__,
                },
            )
            text = self._on_failure(context, error)
            return await text if inspect.isawaitable(text) else text
        if data is not None:
            self._data[context] = data
        return output

    def custom_data(self, call: FunctionToolCustomDataContext) -> dict[str, Any] | None:
        return self._data.pop(call.tool_context, None)


async def _listed(server: MCPServer, run_context: RunContextWrapper[Any], agent: Any) -> list[Any]:
    with part_of_run(MCPListToolsSpanData(server=server.safe_name)) as shown:
        tools = await server.list_tools(run_context, agent)
        shown.result = [tool.name for tool in tools]
    return tools


def _prefixed(listed: list[tuple[MCPServer, list[Any]]], reserved: set[str] | None) -> list[str]:
    tools = [ServerTool(server.safe_name, tool.name) for server, tools in listed for tool in tools]
    return prefixed_tool_names(tools, set(reserved or ()))


def _check_unique(listed: list[tuple[MCPServer, list[Any]]]) -> None:
    taken: set[str] = set()
    for _, tools in listed:
        names = {tool.name for tool in tools}
        twice = sorted(names & taken)
        if twice:
            raise UserError(
                "Duplicate tool names found across MCP servers: "
                f"{', '.join(map(repr, twice))}. Pass `include_server_in_tool_names=True` to "
                "`MCPUtil.get_all_function_tools()` or set "
                "`mcp_config={'include_server_in_tool_names': True}` on the agent to prefix tool "
                "names with their server name and avoid collisions."
            )
        taken |= names


def _title(tool: Any) -> str | None:
    title: str | None = getattr(tool, "title", None) or getattr(tool.annotations, "title", None)
    return title


def _copy(guardrails: list[Any] | None) -> list[Any] | None:
    return None if guardrails is None else copy.copy(guardrails)
