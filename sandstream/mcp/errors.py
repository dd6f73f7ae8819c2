"""The error that only MCP tools have."""

from __future__ import annotations

from sandstream.exceptions import AgentsException


class MCPToolCancellationError(AgentsException):
    """A call was cancelled on the way to or in the server, although nobody here cancelled it."""

    code = "mcp_tool_cancelled"
    message: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
