"""A server program that speaks the protocol by hand, to do what a sound server does not.

Its arguments name its oddities: ``silent`` (reads, never answers), ``deaf`` (stops to read after
the handshake), ``pages`` (two pages of tools and of prompts), ``loop`` (its cursor never ends),
``schemas`` (tools with strange schemas), ``invalid`` (a tool that is not one), ``flaky`` (refuses
the first request of each kind), ``counting`` (says in the name of its one tool how often it was
asked).
Its tools are ``only``, and any other: ``whoami`` tells its process, ``die`` ends it, ``hang`` is
not answered, and the rest is answered with what came with the call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

ODDITIES = set(sys.argv[1:])
counts: dict[str, int] = {}


class Refusal(Exception):
    """The request is answered with an error."""


def tool(name: str, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **more}


def schemas() -> list[dict[str, Any]]:
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    needy = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    lost = {"type": "object", "properties": {"x": {"$ref": "#/$defs/lost", "description": "d"}}}
    return [
        tool("plain", _meta={"static": True}),
        tool("bare", annotations={"title": "Bare title"}),
        tool("free", {"type": "object", "properties": {"map": free}}),
        tool("needy", needy, description="Needs x."),
        tool("lost", lost),
        tool("n" * 100),
        tool("größe.und/mehr"),
    ]


def page(kind: str, cursor: str | None) -> dict[str, Any]:
    def entry(name: str) -> dict[str, Any]:
        return {"tools": tool(name), "prompts": {"name": name}}[kind]

    if "loop" in ODDITIES:
        return {kind: [entry("again")], "nextCursor": "same"}
    if cursor is None:
        return {kind: [entry("first")], "nextCursor": "two"}
    return {kind: [entry("second")]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    counts[method] = counts.get(method, 0) + 1
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
    if "flaky" in ODDITIES and counts[method] == 1:
        raise Refusal("not yet")
    if method in ("tools/list", "prompts/list") and ODDITIES & {"pages", "loop"}:
        return page(method.partition("/")[0], params.get("cursor"))
    if method == "tools/list" and "counting" in ODDITIES:
        return {"tools": [tool(f"asked_{counts[method]}")]}
    if method == "tools/list" and "invalid" in ODDITIES:
        return {"tools": [{"name": "only", "inputSchema": "none"}]}
    if method == "tools/list":
        return {"tools": schemas() if "schemas" in ODDITIES else [tool("only")]}
    if method == "tools/call" and params["name"] == "whoami":
        return {"content": [{"type": "text", "text": str(os.getpid())}]}
    if method == "tools/call":
        structured = {"arguments": params.get("arguments"), "meta": params.get("_meta")}
        text = {"type": "text", "text": "as text"}
        return {"content": [text], "structuredContent": structured, "_meta": {"cost": 7}}
    raise Refusal(f"no method {method}")


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        called = request["params"]["name"] if request["method"] == "tools/call" else None
        if called == "die":
            os._exit(3)
        if "silent" in ODDITIES or called == "hang" or "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request["method"], request.get("params") or {})
        except Refusal as refusal:
            reply["error"] = {"code": -32601, "message": str(refusal)}
        print(json.dumps(reply), flush=True)
        if "deaf" in ODDITIES and request["method"] == "initialize":
            time.sleep(3600)


if __name__ == "__main__":
    main()
