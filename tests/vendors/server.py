"""The application under every vendor server: journal, faults, latency and the control routes.

A vendor derives from ``Vendor``, adds its routes and says how its errors look. Everything else is
the same for all vendors, so a test controls each of them in the same way.
"""

from __future__ import annotations

import abc
import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web
from vendors.exchange import ConnectionEnds, Exchange
from vendors.faults import Fault, FaultBook
from vendors.journal import Call, Journal, summary

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONTROL = "/__control__"
SECRET_HEADER = "X-Vendor-Control"
SECRET_VARIABLE = "VENDOR_CONTROL_SECRET"
LARGEST_BODY = 1 << 30
LARGEST_SUMMARY = 1 << 20
SUMMARISED_TYPES = ("application/json", "application/connect+json")


@dataclass(frozen=True)
class Box:
    """A box as the vendor's bill shows it."""

    id: str
    name: str | None
    metadata: dict[str, str]
    """The vendor's labels or metadata."""
    state: str
    created_at: float
    calls: int = 0


class Vendor(abc.ABC):
    """One vendor's service on a local port."""

    name: ClassVar[str]

    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = ""
        """The server's own address, known before the first request."""
        self.api_key = f"{self.name}-key-{secrets.token_hex(8)}"
        self.journal = Journal()
        self.faults = FaultBook()
        self.latency_s = 0.0

    # What a vendor decides.

    @abc.abstractmethod
    def add_routes(self, app: web.Application) -> None:
        """Register the vendor's routes."""

    @abc.abstractmethod
    def addresses(self) -> dict[str, Any]:
        """``api_url``, ``sandbox_url`` and ``env``, the variables that lead the SDK here."""

    @abc.abstractmethod
    def error(self, status: int, message: str, headers: dict[str, str]) -> web.Response:
        """An error in the vendor's own form."""

    @abc.abstractmethod
    def boxes(self) -> list[Box]:
        """All boxes that the vendor would bill."""

    @abc.abstractmethod
    async def expire(self, box_id: str) -> None:
        """Let the box's time run out now."""

    @abc.abstractmethod
    async def delete(self, box_id: str) -> None:
        """Delete the box underneath its owner."""

    @abc.abstractmethod
    async def lose_files(self, box_id: str, share: float) -> None:
        """Lose this share of the box's files at its next resume."""

    async def configure(self, settings: dict[str, Any]) -> None:
        """Change settings of this vendor.

        Raises:
            ValueError: the vendor has no such setting.
        """
        if settings:
            raise ValueError(f"{self.name} has no settings {sorted(settings)}")

    @abc.abstractmethod
    async def close(self) -> None:
        """End all boxes. Their files stay."""

    def normal_path(self, route: str) -> str:
        """The route as journal and faults name it."""
        return route

    def box_of(self, request: web.Request) -> str | None:
        """The id of the box that a request is about."""
        return request.match_info.get("box")

    # What all vendors share.

    def protocol_error(self, request: web.Request, text: str) -> None:
        """Note a request that a client of this vendor must not send."""
        self.journal.protocol_error(Exchange.of(request).call.name, text)

    def application(self, secret: str) -> web.Application:
        app = self.journalled_application()
        Control(self, secret).add_routes(app)
        self.add_routes(app)
        return app

    def journalled_application(self) -> web.Application:
        """An empty application whose requests are journalled and hit by faults."""
        app = web.Application(middlewares=[self._journalled], client_max_size=LARGEST_BODY)
        app.on_response_prepare.append(_lose_stream)
        return app

    @web.middleware
    async def _journalled(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(CONTROL):
            return await handler(request)
        call = await self._arrived(request)
        fault = self.faults.hit(call)
        call.fault = fault.kind if fault else None
        exchange = Exchange(request, call, fault, self.latency_s)
        request["exchange"] = exchange
        if request.match_info.route.resource is None:
            self.protocol_error(request, f"no such route: {request.method} {request.path}")
        try:
            await asyncio.sleep(self.latency_s)
            response = await self._answered(exchange, handler)
            call.status = response.status
        except ConnectionEnds:
            exchange.close()
            response = web.Response(status=500)
        finally:
            call.seconds = time.time() - call.time
        return response

    async def _arrived(self, request: web.Request) -> Call:
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else request.path
        upgrades = request.headers.get("Upgrade", "").lower() == "websocket"
        call = self.journal.add(
            "WS" if upgrades else request.method,
            self.normal_path(path),
            self.box_of(request),
            dict(request.query),
        )
        call.headers = {name.lower(): value for name, value in request.headers.items()}
        length = request.content_length or 0
        if 0 < length <= LARGEST_SUMMARY and request.content_type in SUMMARISED_TYPES:
            call.body = summary(await request.read(), request.content_type)
        elif request.body_exists:
            call.body = f"{request.content_type}, {length or 'chunked'}"
        return call

    async def _answered(self, exchange: Exchange, handler: Handler) -> web.StreamResponse:
        fault, request = exchange.fault, exchange.request
        if fault is None or fault.kind == "cut":
            return await self._handled(request, handler)
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
            return await self._handled(request, handler)
        if fault.kind == "lost" or fault.after:
            await self._handled(request, handler)
        elif request.content_length:
            await (
                request.read()
            )  # closing earlier could reset the connection while the client sends
        if fault.kind == "status":
            if fault.body is not None:
                return web.json_response(fault.body, status=fault.status, headers=fault.headers)
            return self.error(fault.status, fault.message, fault.headers)
        if fault.kind == "hang":
            while not exchange.closed:
                await asyncio.sleep(0.02)
        raise ConnectionEnds

    async def _handled(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if request.match_info.http_exception is not None:  # no such route or method
                return self.error(error.status, f"Cannot {request.method} {request.path}", {})
            return web.Response(status=error.status, text=error.text)
        except ConnectionEnds:
            raise
        except Exception as error:
            if Exchange.of(request).closed:  # a client that went away in the middle of a stream
                raise ConnectionEnds from error
            traceback.print_exc()
            self.protocol_error(request, f"this server failed: {error!r}")
            return self.error(500, f"this server failed: {error!r}", {})


async def _lose_stream(request: web.Request, response: web.StreamResponse) -> None:
    """A lost answer of a stream: the handler has begun its work; its first byte is never sent."""
    exchange = request.get("exchange")
    if exchange is None or exchange.fault is None or type(response) is web.Response:
        return
    if exchange.fault.kind == "lost" or exchange.fault.after:
        raise ConnectionEnds


class Control:
    """The routes with which a test controls the server. They are no part of a vendor's protocol."""

    def __init__(self, vendor: Vendor, secret: str) -> None:
        self._vendor = vendor
        self._secret = secret

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post(CONTROL + "/{action}", self._control)

    async def _control(self, request: web.Request) -> web.Response:
        if not secrets.compare_digest(request.headers.get(SECRET_HEADER, ""), self._secret):
            return web.json_response({"error": "wrong control secret"}, status=403)
        arguments = await request.json() if request.can_read_body else {}
        try:
            return web.json_response(await self._do(request.match_info["action"], arguments))
        except (KeyError, ValueError, TypeError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)

    async def _do(self, action: str, arguments: dict[str, Any]) -> Any:
        vendor = self._vendor
        match action:
            case "journal":
                return [
                    call.to_json() for call in vendor.journal.calls[arguments.get("since", 0) :]
                ]
            case "protocol_errors":
                return vendor.journal.protocol_errors
            case "boxes":
                return [
                    {**vars(box), "calls": vendor.journal.calls_of(box.id)}
                    for box in vendor.boxes()
                ]
            case "add_fault":
                vendor.faults.add(Fault.from_json(arguments))
            case "clear_faults":
                vendor.faults.clear()
            case "set_latency":
                vendor.latency_s = float(arguments["seconds"])
            case "expire":
                await vendor.expire(arguments["box"])
            case "delete":
                await vendor.delete(arguments["box"])
            case "lose_files":
                await vendor.lose_files(arguments["box"], float(arguments["share"]))
            case "configure":
                await vendor.configure(arguments)
            case _:
                raise ValueError(f"unknown action {action}")
        return None


def main(make: Callable[[Path], Vendor]) -> None:
    """Serve one vendor until the end of the input, if asked to watch it, or until SIGTERM."""
    parser = argparse.ArgumentParser(description="a vendor of sandboxes on a local port")
    parser.add_argument("--home", type=Path, required=True, help="the folder of the boxes' files")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--until-eof", action="store_true", help="end when the input is closed")
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    asyncio.run(_serve(make(options.home.absolute()), options.port, options.until_eof))


async def _serve(vendor: Vendor, port: int, until_eof: bool) -> None:
    secret = os.environ.pop(SECRET_VARIABLE, "") or secrets.token_hex(16)
    runner = web.AppRunner(vendor.application(secret), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, backlog=1024)
    await site.start()
    vendor.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if until_eof:
        loop.add_reader(sys.stdin.fileno(), _at_end, stop)
    ready = {"url": vendor.url, "secret": secret, "api_key": vendor.api_key, **vendor.addresses()}
    print(json.dumps(ready), flush=True)
    await stop.wait()
    try:
        await vendor.close()
    finally:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(runner.cleanup(), 2.0)


def _at_end(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        stop.set()
