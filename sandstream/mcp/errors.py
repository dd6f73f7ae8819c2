"""The error of cancelled MCP calls."""

from __future__ import annotations

from sandstream.exceptions import AgentsException


class MCPToolCancellationError(AgentsException):
    """The server or the transport cancelled a call that the caller did not cancel.

    Args:
        message: Which call was cancelled, and on which server.
    """

    code = "mcp_tool_cancelled"
    message: str

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
