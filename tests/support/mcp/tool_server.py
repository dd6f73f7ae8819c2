"""A server program written with the official package: ``stdio``, ``http`` or ``sse`` as argument.

Over HTTP it listens on a free port of the loopback interface and prints that port as its first
line.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
from typing import Any

from mcp import types

try:
    from mcp.server import MCPServer as Server  # type: ignore[attr-defined,unused-ignore]
except ImportError:  # the first major version
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[attr-defined,no-redef,unused-ignore]

PIXEL = base64.b64encode(b"\x89PNG not a real one").decode()
SOUND = base64.b64encode(b"RIFF").decode()
server: Any = Server(os.environ.get("SERVER_NAME", "tools"))


def _content(cls: Any, **fields: Any) -> Any:
    """A content block; field names differ between the major versions, their wire names do not."""
    return cls.model_validate(fields)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(title="Say it again", structured_output=False)
def echo(text: str) -> str:
    return text


@server.tool()
def fail(reason: str) -> str:
    """Raise."""
    raise ValueError(reason)


@server.tool(structured_output=False)
def picture() -> Any:
    """An image and a text."""
    image = _content(types.ImageContent, type="image", data=PIXEL, mimeType="image/png")
    return [image, _content(types.TextContent, type="text", text="a pixel")]


@server.tool(structured_output=False)
def sound() -> Any:
    """Binary content that is not an image."""
    return [_content(types.AudioContent, type="audio", data=SOUND, mimeType="audio/wav")]


@server.tool(structured_output=False)
def nothing() -> Any:
    """No content at all."""
    return []


@server.tool()
def whoami() -> str:
    """Tell which process answers."""
    return str(os.getpid())


@server.prompt()
def greeting(name: str) -> str:
    """Greet somebody."""
    return f"Greet {name}."


@server.resource("note://today")
def today() -> str:
    """A fixed resource."""
    return "nothing happened"


@server.resource("note://{day}/summary")
def summary(day: str) -> str:
    """A resource template."""
    return f"summary of {day}"


def _serve_over_http(app: Any) -> None:
    import uvicorn

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(os.environ.get("SERVER_PORT", "0"))))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    elif sys.argv[1] == "http":
        _serve_over_http(server.streamable_http_app())
    else:
        _serve_over_http(server.sse_app())
