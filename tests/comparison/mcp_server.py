"""A small MCP server on stdin and stdout: `python mcp_server.py [journal]`.

Written without the `mcp` package, whose import alone takes longer than a program of the comparison.
The journal gets a line per listing and per call.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_NUMBERS = {"a": {"type": "integer", "description": "One."}, "b": {"type": "integer"}}
_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_REFUSED = -32601


def tool(name: str, description: str, properties: dict[str, Any] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {}, "required": list(properties or {})}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("add", "Adds two numbers.", _NUMBERS),
    tool("describe", "Says it in several ways."),
    tool("die", "Ends the server."),
    tool("draw", "Draws."),
    tool("fail", "Always fails."),
    tool("quiet", "Says nothing."),
]


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "add":
        total = int(arguments["a"]) + int(arguments["b"])
        return text(str(total)) | {"structuredContent": {"sum": total}}
    if name == "describe":
        return {"content": [part("one"), part("two")]}
    if name == "draw":
        return {"content": [{"type": "image", "data": _PIXEL, "mimeType": "image/png"}]}
    if name == "die":
        sys.exit(1)
    if name == "quiet":
        return {"content": []}
    return text("it went wrong") | {"isError": True}


def part(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def text(content: str) -> dict[str, Any]:
    return {"content": [part(content)]}


def answer(method: str, params: dict[str, Any], note: Any) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    if method == "tools/list":
        note("list")
        return {"tools": TOOLS}
    if method == "tools/call":
        note(f"call {params['name']} {json.dumps(params.get('arguments'))}")
        return call(params["name"], params.get("arguments") or {})
    return {} if method == "ping" else None


def main() -> None:
    journal = Path(sys.argv[1]) if len(sys.argv) > 1 else None

    def note(line: str) -> None:
        if journal:
            with journal.open("a") as file:
                file.write(f"{line}\n")

    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        result = answer(message["method"], message.get("params") or {}, note)
        if result is None:
            reply["error"] = {"code": _REFUSED, "message": f"no method {message['method']}"}
        else:
            reply["result"] = result
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
