"""The arguments of the user's functions around an MCP call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from sandstream.run_context import RunContextWrapper
from sandstream.tool_output import ToolOutputImageDict, ToolOutputTextDict

ToolOutputItem: TypeAlias = ToolOutputTextDict | ToolOutputImageDict
ToolOutput: TypeAlias = str | ToolOutputItem | list[ToolOutputItem]


@dataclass
class MCPToolMetaContext:
    """The argument of a ``tool_meta_resolver``.

    Example:
        def who(context: MCPToolMetaContext) -> dict[str, Any]:
            return {"tenant": context.run_context.context.tenant}


        server = MCPServerStdio(params={"command": "server"}, tool_meta_resolver=who)
    """

    run_context: RunContextWrapper[Any]
    """The context of the run."""
    server_name: str
    """The name of the server."""
    tool_name: str
    """The tool's name on the server."""
    arguments: dict[str, Any] | None
    """The arguments of the call."""


@dataclass(frozen=True)
class MCPToolCustomDataContext:
    """The argument of a server's ``custom_data_extractor``."""

    run_context: RunContextWrapper[Any]
    """The context of the run."""
    server_name: str
    """The name of the server."""
    tool_name: str
    """The tool's name on the server."""
    tool_display_name: str
    """The name that the model used."""
    arguments: Mapping[str, Any]
    """The arguments of the call."""
    result_meta: Mapping[str, Any] | None
    """The ``_meta`` of the result; ``None`` if it has none."""
    structured_content: Mapping[str, Any] | None
    """The structured part of the result; ``None`` if it has none."""
    is_error: bool | None
    """Whether the tool reported a failure; ``None`` if the server does not say."""
    tool_output: ToolOutput
    """The output for the model."""


MCPToolMetaResolver: TypeAlias = Callable[
    [MCPToolMetaContext], "dict[str, Any] | Awaitable[dict[str, Any] | None] | None"
]
"""Creates the ``_meta`` that is sent with a call."""
MCPToolCustomDataExtractor: TypeAlias = Callable[
    [MCPToolCustomDataContext], "Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None"
]
"""Extracts data for the application from a result; the model never sees it."""


class HttpClientFactory(Protocol):
    """Creates the HTTP client of a connection: an ``AsyncClient`` of ``httpx2`` with mcp 2, of
    ``httpx`` with mcp 1."""

    def __call__(
        self, headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None
    ) -> Any: ...
