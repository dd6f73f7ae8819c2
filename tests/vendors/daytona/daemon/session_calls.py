"""The daemon's calls about sessions."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import WSMsgType, web
from vendors.daytona import checks
from vendors.daytona.daemon import pipes
from vendors.daytona.daemon.daemon import Daemon
from vendors.daytona.daemon.sessions import Session, split
from vendors.daytona.refusals import Refusal
from vendors.exchange import Exchange
from vendors.server import Vendor


async def list_sessions(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    return web.json_response([_session(it) for it in daemon.sessions.all.values()])


async def create_session(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    fields: dict[str, checks.Kind] = {"sessionId": "string"}
    code = "INVALID_REQUEST_BODY"
    asked = await checks.body(request, vendor, fields, required=("sessionId",), code=code)
    await daemon.sessions.create(asked["sessionId"])
    return web.Response(status=201)


async def get_session(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    return web.json_response(_session(daemon.sessions.get(request.match_info["session"])))


async def delete_session(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    await daemon.sessions.delete(request.match_info["session"])
    return web.Response(status=204)


async def run_in_session(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    asked = await checks.body(
        request,
        vendor,
        {
            "command": "string",
            "runAsync": "boolean",
            "async": "boolean",
            "suppressInputEcho": "boolean",
        },
        required=("command",),
    )
    if not asked["command"].strip():
        raise Refusal(400, "command cannot be empty")
    session = daemon.sessions.get(request.match_info["session"])
    in_background = asked.get("runAsync", False) or asked.get("async", False)
    command = await session.run(
        asked["command"],
        wait=not in_background,
        suppress_echo=asked.get("suppressInputEcho", False),
    )
    if in_background:
        return web.json_response({"cmdId": command.id}, status=202)
    answer = {"cmdId": command.id, "exitCode": command.exit_code}
    return web.json_response(answer | _logs(command.log.read_bytes()))


async def get_command(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    session = daemon.sessions.get(request.match_info["session"])
    return web.json_response(session.get(request.match_info["command"]).described())


async def send_input(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    code = "INVALID_REQUEST_BODY"
    asked = await checks.body(request, vendor, {"data": "string"}, required=("data",), code=code)
    session = daemon.sessions.get(request.match_info["session"])
    session.send(session.get(request.match_info["command"]), asked["data"])
    return web.Response(status=204)


async def get_logs(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """The whole log; over a websocket from its first byte to the end of the command."""
    follow = checks.query(request, vendor, "follow").get("follow") == "true"
    session = daemon.sessions.get(request.match_info["session"])
    command = session.get(request.match_info["command"])
    if "Upgrade" not in request.headers:
        if follow:
            vendor.protocol_error(request, "follow without a websocket")
        return web.json_response(_logs(command.log.read_bytes()))
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    exchange = Exchange.of(request)
    outgoing = exchange.outgoing(socket.send_bytes)

    async def show() -> None:
        offset = 0
        while chunk := await command.read_from(offset):
            offset += len(chunk)
            for start in range(0, len(chunk), pipes.CHUNK):
                await outgoing.send(chunk[start : start + pipes.CHUNK])
            if not follow:
                break
        await outgoing.finish()
        await socket.close(code=1000)

    showing = asyncio.create_task(show())
    try:
        async for message in exchange.incoming(socket):
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                vendor.protocol_error(request, "a message to the log")
        if showing.done():
            showing.result()
    finally:
        showing.cancel()
    return socket


def _session(session: Session) -> dict[str, Any]:
    commands = [command.described() for command in session.commands.values()]
    return {"sessionId": session.id, "commands": commands}


def _logs(log: bytes) -> dict[str, str]:
    """``output`` keeps the marks in between, as the daemon's does."""
    out, err = split(log)
    return {"output": pipes.text(log), "stdout": pipes.text(out), "stderr": pipes.text(err)}
