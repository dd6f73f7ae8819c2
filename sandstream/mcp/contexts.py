"""What the user's functions around an MCP call are shown."""

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
    """The argument of a ``tool_meta_resolver``."""

    run_context: RunContextWrapper[Any]
    server_name: str
    tool_name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True)
class MCPToolCustomDataContext:
    """The argument of a server's ``custom_data_extractor``."""

    run_context: RunContextWrapper[Any]
    server_name: str
    tool_name: str
    """The tool's name on the server."""
    tool_display_name: str
    """The name under which the model called it."""
    arguments: Mapping[str, Any]
    result_meta: Mapping[str, Any] | None
    structured_content: Mapping[str, Any] | None
    is_error: bool | None
    tool_output: ToolOutput
    """What the model gets."""


MCPToolMetaResolver: TypeAlias = Callable[
    [MCPToolMetaContext], "dict[str, Any] | Awaitable[dict[str, Any] | None] | None"
]
"""Makes the ``_meta`` that is sent along with a call."""
MCPToolCustomDataExtractor: TypeAlias = Callable[
    [MCPToolCustomDataContext], "Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None"
]
"""Makes data for the application out of a result; the model never sees it."""


class HttpClientFactory(Protocol):
    """Makes the HTTP client of a connection: an ``AsyncClient`` of ``httpx2`` with mcp 2, of
    ``httpx`` with mcp 1."""

    def __call__(
        self, headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None
    ) -> Any: ...
