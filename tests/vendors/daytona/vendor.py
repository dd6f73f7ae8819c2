"""The vendor as a whole: its services on one port, and what a test controls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web
from vendors.daytona.clock import Clock
from vendors.daytona.control_plane import PREFIX as API
from vendors.daytona.control_plane import ControlPlane
from vendors.daytona.events import Events
from vendors.daytona.fleet import Fleet
from vendors.daytona.previews import BOX, ROUTE, Previews
from vendors.daytona.refusals import now
from vendors.daytona.sandbox import Sandbox
from vendors.daytona.settings import Settings
from vendors.daytona.snapshots import Snapshots
from vendors.daytona.toolbox import PREFIX as TOOLBOX
from vendors.daytona.toolbox import Toolbox
from vendors.server import Box, Vendor


class Daytona(Vendor):
    name = "daytona"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._settings = Settings()
        self._events = Events(self, self._settings)
        self._fleet = Fleet(home / "boxes", self._settings, self._events)
        self._previews = Previews(self)
        self._fleet.on_removed.append(self._previews.removed)
        self._clock = Clock(self._fleet)
        snapshots = Snapshots(home / "snapshots")
        self._control_plane = ControlPlane(self, self._fleet, snapshots, self._previews)
        self._toolbox = Toolbox(self, self._fleet)

    def add_routes(self, app: web.Application) -> None:
        self._control_plane.add_routes(app)
        self._toolbox.add_routes(app)
        app.router.add_get(f"{API}/socket.io/", self._events.connect)
        app.on_startup.append(self._start)

    async def _start(self, app: web.Application) -> None:
        self._fleet.spawn(self._clock.run())

    def addresses(self) -> dict[str, Any]:
        self._fleet.toolbox_url = f"{self.url}{TOOLBOX}"
        return {
            "api_url": f"{self.url}{API}",
            "sandbox_url": self._fleet.toolbox_url,
            "env": {
                "DAYTONA_API_KEY": self.api_key,
                "DAYTONA_API_URL": f"{self.url}{API}",
                "DAYTONA_TARGET": "us",
                "NO_PROXY": "127.0.0.1,localhost",
                "no_proxy": "127.0.0.1,localhost",
            },
        }

    def error(self, status: int, message: str, headers: dict[str, str]) -> web.Response:
        body = {"statusCode": status, "message": message, "timestamp": now()}
        return web.json_response(body, status=status, headers=headers)

    def normal_path(self, route: str) -> str:
        """Control plane: ``/sandbox/{box}/start``; daemon: ``/toolbox/process/execute``."""
        if route == ROUTE.replace(":.*", ""):
            return "/preview"
        return route.removeprefix(API).replace(TOOLBOX + "/{box}", TOOLBOX)

    def box_of(self, request: web.Request) -> str | None:
        if BOX in request.app:
            return request.app[BOX].id
        named = super().box_of(request)
        box = self._fleet.find(named) if named is not None else None
        return named if box is None else box.id

    def boxes(self) -> list[Box]:
        """All but those whose deletion is accepted."""
        return [
            Box(box.id, box.name, box.labels, box.state, box.created_at)
            for box in self._fleet.boxes.values()
            if box.state != "destroying"
        ]

    async def expire(self, box_id: str) -> None:
        await self._clock.expire(self._known(box_id))

    async def delete(self, box_id: str) -> None:
        await (await self._fleet.destroy(self._known(box_id)))

    async def lose_files(self, box_id: str, share: float) -> None:
        self._known(box_id).lost_share = share

    async def configure(self, settings: dict[str, Any]) -> None:
        self._settings.change(settings)

    async def close(self) -> None:
        await self._previews.close()
        await self._fleet.close()

    def _known(self, box_id: str) -> Sandbox:
        box = self._fleet.find(box_id)
        if box is None:
            raise ValueError(f"there is no box {box_id}")
        return box
