"""The daemon's calls about terminals."""

from __future__ import annotations

import base64
import json

from aiohttp import web
from vendors.daytona import checks
from vendors.daytona.daemon.daemon import Daemon
from vendors.daytona.daemon.terminals import check_size
from vendors.daytona.refusals import Refusal
from vendors.server import Vendor

ENVS = "X-Daytona-Pty-Envs~"


async def list_terminals(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    sessions = [terminal.described() for terminal in daemon.terminals.all.values()]
    return web.json_response({"sessions": sessions})


async def create_terminal(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    asked = await checks.body(
        request,
        vendor,
        {
            "id": "string",
            "cwd": "string",
            "envs": "texts",
            "cols": "integer",
            "rows": "integer",
            "lazyStart": "boolean",
        },
    )
    terminal = await daemon.terminals.create(
        asked.get("id", ""),
        asked.get("cwd"),
        asked.get("envs", {}),
        asked.get("cols", 80),
        asked.get("rows", 24),
        lazy=asked.get("lazyStart", False),
    )
    terminal.read()
    return web.json_response({"sessionId": terminal.id}, status=201)


async def open_terminal(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """Create a terminal and connect to it in one round trip."""
    asked = checks.query(request, vendor, "id", "cols", "rows", "cwd")
    env: dict[str, str] = {}
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(ENVS):
            encoded = protocol.strip().removeprefix(ENVS)
            env = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    try:
        cols, rows = int(asked.get("cols", "80")), int(asked.get("rows", "24"))
    except ValueError:
        raise Refusal(400, "cols and rows must be numbers") from None
    terminal = await daemon.terminals.create(
        asked.get("id", ""), asked.get("cwd"), env, cols, rows, lazy=False
    )
    return await daemon.terminals.attach(request, terminal)


async def get_terminal(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    return web.json_response(daemon.terminals.get(request.match_info["terminal"]).described())


async def delete_terminal(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    await daemon.terminals.delete(request.match_info["terminal"])
    return web.json_response({"message": "PTY session deleted"})


async def connect_terminal(
    request: web.Request, vendor: Vendor, daemon: Daemon
) -> web.StreamResponse:
    id_ = request.match_info["terminal"]
    terminal = daemon.terminals.all.get(id_)
    if terminal is None:
        return await daemon.terminals.refuse(request, f"PTY session {id_} not found")
    if terminal.process is None:
        await daemon.terminals.start(terminal)
    return await daemon.terminals.attach(request, terminal)


async def resize_terminal(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    fields: dict[str, checks.Kind] = {"cols": "integer", "rows": "integer"}
    asked = await checks.body(request, vendor, fields, required=("cols", "rows"))
    check_size(asked["cols"], asked["rows"])
    id_ = request.match_info["terminal"]
    terminal = daemon.terminals.all.get(id_)
    if terminal is None:
        raise Refusal(410, f"PTY session {id_} not found")
    if not terminal.active:
        raise Refusal(500, "cannot resize inactive PTY session")
    terminal.resize(asked["cols"], asked["rows"])
    return web.json_response(terminal.described())
