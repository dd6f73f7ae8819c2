"""Starts the server programs of these tests, and calls tools as a run does."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandstream.agent import Agent
from sandstream.mcp import MCPServerStdio, MCPServerStdioParams, MCPServerStreamableHttp, MCPUtil
from sandstream.mcp.server import MCPServer
from sandstream.run_context import RunContextWrapper
from sandstream.tool import FunctionTool, invoke_function_tool
from sandstream.tool_context import ToolContext

HERE = Path(__file__).parent
AGENT: Agent[Any] = Agent(name="tester")
RUN: RunContextWrapper[Any] = RunContextWrapper(None)
PATIENT_S = 30.0
"""A session's limit where none is tested: machines can be slow."""


def program(name: str, *args: str) -> MCPServerStdioParams:
    return {"command": sys.executable, "args": [str(HERE / name), *args]}


def tool_server(**options: Any) -> MCPServerStdio:
    """The server with the official package, over stdio."""
    options = {"name": "tools", "client_session_timeout_seconds": PATIENT_S, **options}
    return MCPServerStdio(program("tool_server.py", "stdio"), **options)


def odd_server(*oddities: str, **options: Any) -> MCPServerStdio:
    """The server by hand, over stdio."""
    options = {"name": "odd", "client_session_timeout_seconds": PATIENT_S, **options}
    return MCPServerStdio(program("odd_server.py", *oddities), **options)


class HttpProgram:
    """The server with the official package, over HTTP."""

    def __init__(self, kind: str, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "tool_server.py"), kind],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"SERVER_PORT": str(port)},
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def http_program(kind: str, port: int = 0) -> Iterator[HttpProgram]:
    running = HttpProgram(kind, port)
    try:
        yield running
    finally:
        running.kill()


def http_server(running: HttpProgram, **options: Any) -> MCPServerStreamableHttp:
    options = {"client_session_timeout_seconds": PATIENT_S, **options}
    return MCPServerStreamableHttp({"url": f"{running.url}/mcp"}, **options)


async def tools_of(server: MCPServer, *, strict: bool = False) -> dict[str, FunctionTool]:
    tools = await MCPUtil.get_function_tools(server, strict, RUN, AGENT)
    return {tool.name: tool for tool in tools}


def context(tool: FunctionTool, arguments: str = "{}") -> ToolContext[Any]:
    return ToolContext(None, None, tool.name, "call-1", arguments)


async def invoke(tool: FunctionTool, arguments: str = "{}") -> Any:
    """One call, as the tool host makes it."""
    return await invoke_function_tool(tool, context(tool, arguments), arguments)
