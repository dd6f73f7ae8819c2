"""E2B on a local port: the control plane and the boxes' daemons, at one address."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web
from vendors.e2b import answers, connect_rpc, ports, routing
from vendors.e2b.control_plane import ControlPlane
from vendors.e2b.envd import Envd
from vendors.e2b.files_route import FilesRoute
from vendors.e2b.filesystem_service import FilesystemService
from vendors.e2b.fleet import Fleet
from vendors.e2b.process_service import ProcessService
from vendors.e2b.sandbox import Sandbox
from vendors.e2b.settings import Settings
from vendors.e2b.snapshots import SnapshotRoutes
from vendors.journal import Call, summary
from vendors.server import Box, Handler, Vendor

_ONE_MESSAGE = ("/process.Process/Start", "/process.Process/Connect")
"""Calls that answer with a stream: their only message arrives in a body without a length."""


class E2BVendor(Vendor):
    name: ClassVar[str] = "e2b"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.api_key = f"e2b_{secrets.token_hex(20)}"  # older SDKs refuse any other form
        self.settings = Settings()
        self.fleet = Fleet(home, self.settings)
        self._plane = ControlPlane(self, self.fleet, self.settings)
        self._envd = Envd(self, self.fleet, self.settings)

    def add_routes(self, app: web.Application) -> None:
        def add(method: str, path: str, handler: Handler) -> None:
            app.router.add_route(method, path, self._unless_for_port(handler))

        for part in (
            self._plane,
            SnapshotRoutes(self._plane),
            self._envd,
            ProcessService(self._envd),
            FilesystemService(self._envd),
            FilesRoute(self._envd),
        ):
            part.add_routes(add)
        add("*", "/{path:.*}", self._no_such_route)

    def addresses(self) -> dict[str, Any]:
        port = self.url.rpartition(":")[2]
        self._plane.domain = f"localhost:{port}"
        environment = {
            "E2B_API_URL": self.url,
            "E2B_SANDBOX_URL": self.url,
            "E2B_API_KEY": self.api_key,
            "E2B_DOMAIN": self._plane.domain,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        return {"api_url": self.url, "sandbox_url": self.url, "env": environment}

    def error(self, status: int, message: str, headers: dict[str, str]) -> web.Response:
        return answers.error(status, message, headers=headers)

    def box_of(self, request: web.Request) -> str | None:
        if "box" in request.match_info:
            return request.match_info["box"]
        wanted = routing.named_target(request)
        return None if wanted is None else wanted.box_id

    async def _arrived(self, request: web.Request) -> Call:
        call = await super()._arrived(request)
        if connect_rpc.is_stream(request) and call.path in _ONE_MESSAGE:
            call.body = summary(await connect_rpc.only_content(request), "application/json")
        return call

    def boxes(self) -> list[Box]:
        return [
            Box(
                id=box.id,
                name=None,
                metadata=box.plan.metadata or {},
                state=box.state,
                created_at=box.created_at,
            )
            for box in self.fleet.boxes
        ]

    async def configure(self, settings: dict[str, Any]) -> None:
        self.settings.change(settings)

    async def expire(self, box_id: str) -> None:
        await self.fleet.expire(self._box(box_id))

    async def delete(self, box_id: str) -> None:
        await self.fleet.kill(self._box(box_id))

    async def lose_files(self, box_id: str, share: float) -> None:
        self._box(box_id).lost_share = share

    async def close(self) -> None:
        await self.fleet.close()

    def _box(self, box_id: str) -> Sandbox:
        box = self.fleet.find(box_id)
        if box is None:
            raise KeyError(box_id)
        return box

    def _unless_for_port(self, handler: Handler) -> Handler:
        """A request for a port of a box goes there, whichever path it has."""

        async def chosen(request: web.Request) -> web.StreamResponse:
            wanted = routing.named_target(request)
            if wanted is None or wanted.port == routing.ENVD_PORT:
                return await handler(request)
            return await self._envd.in_box(lambda request, _: ports.forward(request, wanted))(
                request
            )

        return chosen

    async def _no_such_route(self, request: web.Request) -> web.StreamResponse:
        self.protocol_error(request, f"no such route: {request.method} {request.path}")
        return answers.error(404, "no matching operation was found")
