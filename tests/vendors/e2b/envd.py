"""The daemon inside every box, as clients reach it through the proxy: access and users."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from vendors.e2b import connect_rpc, routing
from vendors.e2b.connect_rpc import RpcError
from vendors.e2b.fleet import Fleet
from vendors.e2b.sandbox import Sandbox
from vendors.e2b.settings import Settings
from vendors.e2b.users import DEFAULT, USERS, User
from vendors.exchange import Exchange
from vendors.server import Handler, Vendor

BoxHandler = Callable[[web.Request, Sandbox], Awaitable[web.StreamResponse]]
RpcHandler = Callable[[web.Request, Sandbox, User], Awaitable[web.StreamResponse]]


class Envd:
    """Wraps the handlers of the daemon's services."""

    def __init__(self, vendor: Vendor, fleet: Fleet, settings: Settings) -> None:
        self.vendor = vendor
        self.settings = settings
        self._fleet = fleet

    def add_routes(self, add: Any) -> None:
        add("GET", "/health", self._health)

    def rpc(self, handler: RpcHandler) -> Handler:
        """A call of a service: needs the token of the box, and names a user of it."""

        async def called(request: web.Request, box: Sandbox) -> web.StreamResponse:
            if box.token is not None and request.headers.get("X-Access-Token") != box.token:
                return json_error(
                    401,
                    "unauthorized access, please provide a valid access token or method signing "
                    "if supported",
                )
            try:
                return await handler(request, box, self._user(request))
            except RpcError as error:
                return connect_rpc.error_response(request, error)
            except connect_rpc.WrongType:
                return web.Response(status=415)

        return self.in_box(called)

    def in_box(self, handler: BoxHandler) -> Handler:
        """Find the running box that a request is for."""

        async def routed(request: web.Request) -> web.StreamResponse:
            try:
                wanted = routing.target(request)
                box = await routing.running_box(self._fleet, wanted, request)
            except routing.Unroutable as error:
                if error.response.status == 400:
                    self.vendor.protocol_error(request, (error.response.text or "").strip())
                return error.response
            exchange = Exchange.of(request)
            box.open.add(exchange)
            try:
                return await handler(request, box)
            finally:
                box.open.discard(exchange)

        return routed

    async def _health(self, request: web.Request) -> web.StreamResponse:
        if routing.named_target(request) is None:
            return web.Response(text="Health check successful")  # that of the control plane

        async def healthy(request: web.Request, box: Sandbox) -> web.StreamResponse:
            return web.Response(status=204, headers={"Cache-Control": "no-store"})

        return await self.in_box(healthy)(request)

    def _user(self, request: web.Request) -> User:
        header = request.headers.get("Authorization")
        if header is None:
            return DEFAULT
        scheme, _, value = header.partition(" ")
        try:
            name = base64.b64decode(value, validate=True).decode().partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            name = ""
        if scheme.lower() != "basic" or not name:
            self.vendor.protocol_error(request, "the header Authorization is malformed")
            return DEFAULT
        if name not in USERS:
            raise RpcError("unauthenticated", f"invalid username: '{name}'")
        return USERS[name]


def json_error(status: int, message: str) -> web.Response:
    """An error outside of the Connect protocol."""
    return web.json_response({"code": status, "message": message}, status=status)
