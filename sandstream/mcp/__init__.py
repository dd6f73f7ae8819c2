"""Tools from servers that speak the Model Context Protocol.

Needs the extra ``mcp`` (``pip install sandstream[mcp]``); that package is imported when the first
server connects.
"""

from __future__ import annotations

from sandstream.mcp.approval import LocalMCPApprovalCallable
from sandstream.mcp.contexts import (
    MCPToolCustomDataContext,
    MCPToolCustomDataExtractor,
    MCPToolMetaContext,
    MCPToolMetaResolver,
)
from sandstream.mcp.errors import MCPToolCancellationError
from sandstream.mcp.filters import (
    ToolFilter,
    ToolFilterCallable,
    ToolFilterContext,
    ToolFilterStatic,
    create_static_tool_filter,
)
from sandstream.mcp.hosted_servers import ConnectedServers
from sandstream.mcp.manager import MCPServerManager
from sandstream.mcp.server import MCPServer
from sandstream.mcp.transports import (
    MCPServerSse,
    MCPServerSseParams,
    MCPServerStdio,
    MCPServerStdioParams,
    MCPServerStreamableHttp,
    MCPServerStreamableHttpParams,
)
from sandstream.mcp.util import MCPUtil

__all__ = [
    "ConnectedServers",
    "LocalMCPApprovalCallable",
    "MCPServer",
    "MCPServerManager",
    "MCPServerSse",
    "MCPServerSseParams",
    "MCPServerStdio",
    "MCPServerStdioParams",
    "MCPServerStreamableHttp",
    "MCPServerStreamableHttpParams",
    "MCPToolCancellationError",
    "MCPToolCustomDataContext",
    "MCPToolCustomDataExtractor",
    "MCPToolMetaContext",
    "MCPToolMetaResolver",
    "MCPUtil",
    "ToolFilter",
    "ToolFilterCallable",
    "ToolFilterContext",
    "ToolFilterStatic",
    "create_static_tool_filter",
]
