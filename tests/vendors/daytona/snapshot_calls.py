"""The control plane's calls about snapshots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from vendors.daytona import checks
from vendors.daytona.snapshots import Snapshot, Snapshots
from vendors.server import Vendor

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SnapshotCalls:
    def __init__(self, vendor: Vendor, snapshots: Snapshots) -> None:
        self._vendor = vendor
        self._snapshots = snapshots

    def routes(self) -> list[tuple[str, str, Handler]]:
        return [
            ("GET", "/snapshots", self._list),
            ("POST", "/snapshots", self._create),
            ("GET", "/snapshots/{snapshot}", self._get),
            ("DELETE", "/snapshots/{snapshot}", self._delete),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        names = ("page", "limit", "name", "sourceSandboxId", "sort", "order")
        asked = checks.query(request, self._vendor, *names)
        found = [
            snapshot
            for snapshot in self._snapshots.all
            if asked.get("name", "") in snapshot.name
            and asked.get("sourceSandboxId", snapshot.source) == snapshot.source
        ]
        number, limit = int(asked.get("page", "1")), int(asked.get("limit", "100"))
        shown = found[(number - 1) * limit : number * limit]
        answer = {
            "items": [snapshot.described("org-1") for snapshot in shown],
            "total": len(found),
            "page": number,
            "totalPages": -(-len(found) // limit),
        }
        return web.json_response(answer)

    async def _create(self, request: web.Request) -> web.Response:
        asked = await checks.body(
            request,
            self._vendor,
            {
                "name": "string",
                "imageName": "string",
                "entrypoint": "strings",
                "general": "boolean",
                "cpu": "integer",
                "gpu": "integer",
                "gpuType": "string",
                "memory": "integer",
                "disk": "integer",
                "buildInfo": "object",
                "regionId": "string",
                "sandboxClass": "string",
            },
            required=("name",),
        )
        self._snapshots.check_name(asked["name"])
        sizes: dict[str, Any] = {
            name: asked[name] for name in ("cpu", "memory", "disk") if name in asked
        }
        image = asked.get("imageName")
        snapshot = Snapshot(asked["name"], general=False, image=image, **sizes)
        self._snapshots.all.append(snapshot)
        return web.json_response(snapshot.described("org-1"))

    async def _get(self, request: web.Request) -> web.Response:
        found = self._snapshots.get(request.match_info["snapshot"])
        return web.json_response(found.described("org-1"))

    async def _delete(self, request: web.Request) -> web.Response:
        self._snapshots.remove(self._snapshots.get(request.match_info["snapshot"]))
        return web.Response(status=200)
