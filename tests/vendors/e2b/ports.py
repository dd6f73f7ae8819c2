"""Requests to a port of a box, passed on to the server that listens there.

Boxes share the network of the host, so the port of a box is a port of 127.0.0.1.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp
from aiohttp import web
from vendors.e2b.routing import Target, port_closed
from vendors.exchange import Exchange

_HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
}
_CHUNK_BYTES = 64 << 10


async def forward(request: web.Request, wanted: Target) -> web.StreamResponse:
    """Pass a request and its answer on; 502 if nothing listens on the port."""
    url = f"http://127.0.0.1:{wanted.port}{request.raw_path}"
    headers = {
        name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP
    }
    async with AsyncExitStack() as open_things:
        session = await open_things.enter_async_context(
            aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None))
        )
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await _websocket(request, session, url, headers)
            return await _http(request, session, url, headers)
        except aiohttp.ClientConnectorError:
            return port_closed(wanted)


async def _http(
    request: web.Request, session: aiohttp.ClientSession, url: str, headers: dict[str, str]
) -> web.StreamResponse:
    data = request.content.iter_any() if request.body_exists else None
    async with session.request(
        request.method, url, headers=headers, data=data, allow_redirects=False
    ) as found:
        kept = {
            name: value for name, value in found.headers.items() if name.lower() not in _HOP_BY_HOP
        }
        response = web.StreamResponse(status=found.status, headers=kept)
        await response.prepare(request)
        outgoing = Exchange.of(request).outgoing(response.write)
        async for chunk in found.content.iter_chunked(_CHUNK_BYTES):
            await outgoing.send(chunk)
        await outgoing.finish()
        await response.write_eof()
        return response


async def _websocket(
    request: web.Request, session: aiohttp.ClientSession, url: str, headers: dict[str, str]
) -> web.StreamResponse:
    protocols = [
        name.strip()
        for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        if name.strip()
    ]
    exchange = Exchange.of(request)
    async with session.ws_connect(url, headers=headers, protocols=protocols, max_msg_size=0) as far:
        near = web.WebSocketResponse(protocols=protocols, max_msg_size=0)
        await near.prepare(request)

        async def outward() -> None:
            async for message in exchange.incoming(near):
                await _pass(message, far)
            await far.close()

        async def inward() -> None:
            async def send(message: aiohttp.WSMessage) -> None:
                await _pass(message, near)

            outgoing = exchange.outgoing(send)
            async for message in far:
                await outgoing.send(message)
            await outgoing.finish()
            await near.close()

        tasks = [asyncio.create_task(outward()), asyncio.create_task(inward())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return near


async def _pass(
    message: aiohttp.WSMessage, to: aiohttp.ClientWebSocketResponse | web.WebSocketResponse
) -> None:
    if message.type is aiohttp.WSMsgType.TEXT:
        await to.send_str(message.data)
    elif message.type is aiohttp.WSMsgType.BINARY:
        await to.send_bytes(message.data)
