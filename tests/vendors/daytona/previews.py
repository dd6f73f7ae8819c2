"""Preview links: addresses that lead to a port in a box.

The vendor gives every port of every box a host name. Here it gets a port of its own on loopback, so
that paths reach the box unchanged, as they do there.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web
from vendors.daytona.refusals import Refusal, rendered
from vendors.daytona.sandbox import Sandbox
from vendors.daytona.toolbox import running
from vendors.exchange import Exchange
from vendors.server import Vendor

TOKEN_HEADER = "X-Daytona-Preview-Token"
TOKEN_QUERY = "DAYTONA_SANDBOX_AUTH_KEY"
ROUTE = "/{preview:.*}"
OF_ONE_CONNECTION = (
    *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
    *("proxy-authenticate", "proxy-authorization", "content-length", "host"),
)


@dataclass
class Gate:
    """One open address."""

    box: Sandbox
    port: int
    runner: web.AppRunner
    url: str = ""
    token: str | None = None
    """The token in a signed address."""
    expires_at: float = 0.0
    """A signed address is refused from then on; what is connected stays connected."""


BOX = web.AppKey("box", Sandbox)


class Previews:
    """All open addresses."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self._gates: list[Gate] = []
        self._session: aiohttp.ClientSession | None = None

    async def link(self, box: Sandbox, port: int) -> dict[str, Any]:
        """The address that asks for a token or a key."""
        for gate in self._gates:
            if gate.box is box and gate.port == port and gate.token is None:
                break
        else:
            gate = await self._open(box, port, None, 0.0)
        return {"sandboxId": box.id, "url": gate.url, "token": box.preview_token}

    async def signed_link(self, box: Sandbox, port: int, seconds: int) -> dict[str, Any]:
        """An address that needs nothing else, for some time."""
        token = secrets.token_hex(8)
        gate = await self._open(box, port, token, time.time() + seconds)
        return {"sandboxId": box.id, "port": port, "token": token, "url": gate.url}

    def expire(self, port: int, token: str) -> None:
        for gate in self._gates:
            if gate.token == token and gate.port == port:
                gate.expires_at = 0.0

    async def removed(self, box: Sandbox) -> None:
        """The box is gone; so are its addresses."""
        for gate in [gate for gate in self._gates if gate.box is box]:
            self._gates.remove(gate)
            await gate.runner.cleanup()

    async def close(self) -> None:
        for gate in self._gates:
            await gate.runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _open(self, box: Sandbox, port: int, token: str | None, expires_at: float) -> Gate:
        app = self._vendor.journalled_application()
        app[BOX] = box
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        gate = Gate(box, port, runner, token=token, expires_at=expires_at)

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                self._admit(request, gate)
            except Refusal as refusal:
                return rendered(refusal, "DAYTONA_PROXY", request)
            return await self._forward(request, gate)

        app.router.add_route("*", ROUTE, handle)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        gate.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._gates.append(gate)
        return gate

    def _admit(self, request: web.Request, gate: Gate) -> None:
        if gate.token is not None:
            if time.time() >= gate.expires_at:
                raise Refusal(401, "authentication failed: Invalid or expired token")
        elif not gate.box.public and not self._authenticated(request, gate.box):
            raise Refusal(
                401,
                "missing authentication: provide a preview access token (via header, query "
                "parameter, or cookie) or use an API key or JWT",
            )
        running(gate.box)
        gate.box.touch()

    def _authenticated(self, request: web.Request, box: Sandbox) -> bool:
        return (
            request.headers.get(TOKEN_HEADER) == box.preview_token
            or request.query.get(TOKEN_QUERY) == box.preview_token
            or request.headers.get("Authorization") == f"Bearer {self._vendor.api_key}"
        )

    async def _forward(self, request: web.Request, gate: Gate) -> web.StreamResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
            )
        own = (TOKEN_HEADER.lower(), *OF_ONE_CONNECTION)
        headers = [it for it in request.headers.items() if it[0].lower() not in own]
        headers.append(("X-Forwarded-Host", request.host))
        query = [(name, value) for name, value in request.query.items() if name != TOKEN_QUERY]
        url = request.url.with_port(gate.port).with_query(query)
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._forward_socket(request, str(url), headers)
            async with self._session.request(
                request.method,
                url,
                headers=headers,
                data=request.content if request.body_exists else None,
                allow_redirects=False,
            ) as answer:
                response = web.StreamResponse(status=answer.status, reason=answer.reason)
                for name, value in answer.headers.items():
                    if name.lower() not in OF_ONE_CONNECTION:
                        response.headers.add(name, value)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except aiohttp.ClientConnectorError:
            return web.Response(status=502)

    async def _forward_socket(
        self, request: web.Request, url: str, headers: list[tuple[str, str]]
    ) -> web.StreamResponse:
        assert self._session is not None
        asked = request.headers.get("Sec-WebSocket-Protocol", "")
        protocols = [it.strip() for it in asked.split(",") if it.strip()]
        headers = [it for it in headers if not it[0].lower().startswith("sec-websocket-")]
        async with self._session.ws_connect(url, headers=headers, protocols=protocols) as inner:
            outer = web.WebSocketResponse(protocols=[inner.protocol] if inner.protocol else [])
            await outer.prepare(request)
            exchange = Exchange.of(request)

            async def send(message: aiohttp.WSMessage) -> None:
                await _pass(message, outer)

            outgoing = exchange.outgoing(send)

            async def inwards() -> None:
                async for message in exchange.incoming(outer):
                    await _pass(message, inner)

            async def outwards() -> None:
                async for message in inner:
                    await outgoing.send(message)
                await outgoing.finish()

            ways = [asyncio.create_task(inwards()), asyncio.create_task(outwards())]
            try:
                done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in done:
                    way.result()
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            await outer.close(code=inner.close_code or 1000)
            return outer


async def _pass(
    message: aiohttp.WSMessage, socket: aiohttp.ClientWebSocketResponse | web.WebSocketResponse
) -> None:
    if message.type == WSMsgType.TEXT:
        await socket.send_str(message.data)
    elif message.type == WSMsgType.BINARY:
        await socket.send_bytes(message.data)
