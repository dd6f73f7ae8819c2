"""The event socket: Engine.IO 4 and Socket.IO 5 over a websocket, as far as the SDK speaks them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import Any

from aiohttp import WSMsgType, web
from vendors.daytona.settings import Settings
from vendors.exchange import ConnectionEnds, Exchange, Outgoing
from vendors.server import Vendor

PING_INTERVAL_S = 25.0
PING_TIMEOUT_S = 20.0


class Events:
    """Tells every connected client of every change of a box."""

    def __init__(self, vendor: Vendor, settings: Settings) -> None:
        self._vendor = vendor
        self._settings = settings
        self._clients: set[Outgoing[str]] = set()

    def publish(self, name: str, data: dict[str, Any]) -> None:
        """Send an event to all clients, without waiting for slow ones."""
        packet = f"42{json.dumps([name, data])}"
        for client in list(self._clients):
            task = asyncio.ensure_future(client.send(packet))
            task.add_done_callback(_heard)

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """``GET {api}/socket.io/``"""
        expected = {"EIO": "4", "transport": "websocket"}
        for name, value in expected.items():
            if request.query.get(name) != value:
                self._vendor.protocol_error(request, f"{name} must be {value}")
        if not self._settings.events or "Upgrade" not in request.headers:
            return web.json_response({"code": 0, "message": "Transport unknown"}, status=400)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        exchange = Exchange.of(request)
        outgoing: Outgoing[str] = exchange.outgoing(socket.send_str)
        opened = {
            "sid": secrets.token_urlsafe(15),
            "upgrades": [],
            "pingInterval": int(PING_INTERVAL_S * 1000),
            "pingTimeout": int(PING_TIMEOUT_S * 1000),
            "maxPayload": 1_000_000,
        }
        pings = asyncio.create_task(_ping(outgoing))
        try:
            await outgoing.send(f"0{json.dumps(opened)}")
            async for message in exchange.incoming(socket):
                if message.type != WSMsgType.TEXT or not await self._received(
                    request, message.data, outgoing
                ):
                    break
        finally:
            self._clients.discard(outgoing)
            pings.cancel()
        await socket.close()
        return socket

    async def _received(self, request: web.Request, packet: str, outgoing: Outgoing[str]) -> bool:
        """Handle one packet. False ends the connection."""
        match packet[:2]:
            case "40":
                token = json.loads(packet[2:] or "{}").get("token")
                if token != self._vendor.api_key:
                    await outgoing.send(f"44{json.dumps({'message': 'Unauthorized'})}")
                    return True
                await outgoing.send(f"40{json.dumps({'sid': secrets.token_urlsafe(15)})}")
                self._clients.add(outgoing)
            case "41" | "1":
                return False
            case "3" | "6":
                pass
            case _:
                self._vendor.protocol_error(request, f"unexpected packet {packet[:40]!r}")
        return True


async def _ping(outgoing: Outgoing[str]) -> None:
    while True:
        await asyncio.sleep(PING_INTERVAL_S)
        with contextlib.suppress(ConnectionEnds, ConnectionError):
            await outgoing.send("2")


def _heard(task: asyncio.Future[None]) -> None:
    """A client that went away misses the event; its own request notices that it is gone."""
    if not task.cancelled():
        task.exception()
