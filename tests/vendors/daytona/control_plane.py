"""The control plane: boxes and snapshots of the account, below ``/api``."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from vendors.daytona import checks
from vendors.daytona.creation import FIELDS, INTERVALS, Creation
from vendors.daytona.fleet import Fleet
from vendors.daytona.listing import page
from vendors.daytona.previews import Previews
from vendors.daytona.refusals import Refusal, rendered
from vendors.daytona.sandbox import Sandbox
from vendors.daytona.snapshot_calls import SnapshotCalls
from vendors.daytona.snapshots import Snapshots
from vendors.exchange import Exchange
from vendors.server import Vendor

PREFIX = "/api"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NETWORK_FIELDS: dict[str, checks.Kind] = {
    "networkBlockAll": "boolean",
    "networkAllowList": "string",
    "domainAllowList": "string",
}


class ControlPlane:
    """Every route of the API that is served here."""

    def __init__(
        self, vendor: Vendor, fleet: Fleet, snapshots: Snapshots, previews: Previews
    ) -> None:
        self._vendor = vendor
        self._fleet = fleet
        self._snapshots = snapshots
        self._previews = previews
        self._creation = Creation(fleet, snapshots, "org-1")

    def add_routes(self, app: web.Application) -> None:
        box, port = "/sandbox/{box}", "/sandbox/{box}/ports/{port}"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/config", self._config),
            ("POST", "/sandbox", self._create),
            ("GET", "/sandbox", self._list),
            ("GET", box, self._get),
            ("DELETE", box, self._delete),
            ("POST", box + "/start", self._changed_by(self._fleet.start)),
            ("POST", box + "/stop", self._stop),
            ("POST", box + "/pause", self._changed_by(self._fleet.pause)),
            ("POST", box + "/archive", self._changed_by(self._fleet.archive)),
            ("POST", box + "/recover", self._recover),
            ("POST", box + "/resize", self._resize),
            ("POST", box + "/fork", self._fork),
            ("POST", box + "/snapshot", self._snapshot),
            ("PUT", box + "/labels", self._labels),
            ("POST", box + "/ttl/{interval}", self._ttl),
            ("POST", box + "/public/{value}", self._public),
            ("POST", box + "/last-activity", self._last_activity),
            ("POST", box + "/network-settings", self._network),
            ("GET", box + "/toolbox-proxy-url", self._toolbox_url),
            ("GET", box + "/signing-key", self._signing_key),
            ("POST", box + "/signing-key/rotate", self._rotate_signing_key),
            ("GET", box + "/build-logs-url", self._build_logs_url),
            ("GET", box + "/build-logs", self._build_logs),
            ("GET", port + "/preview-url", self._preview),
            ("GET", port + "/signed-preview-url", self._signed_preview),
            ("POST", port + "/signed-preview-url/{token}/expire", self._expire_preview),
        ]
        for name in INTERVALS:
            path = f"{box}/{name.removesuffix('Interval').lower()}/{{interval}}"
            routes.append(("POST", path, self._interval(name)))
        routes += SnapshotCalls(self._vendor, self._snapshots).routes()
        for method, path, handler in routes:
            app.router.add_route(method, PREFIX + path, self._checked(handler))

    def _checked(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                checks.authenticated(request, self._vendor)
                return await handler(request)
            except Refusal as refusal:
                return rendered(refusal, "DAYTONA_API", request)

        return handle

    def _box(self, request: web.Request) -> Sandbox:
        return self._fleet.get(request.match_info["box"])

    def _answer(self, box: Sandbox) -> web.Response:
        return web.json_response(box.described(self._fleet.toolbox_url))

    async def _config(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "version": "0.226.0",
                "oidc": {"issuer": self._vendor.url, "clientId": "-", "audience": "-"},
                "linkedAccountsEnabled": False,
                "announcements": {},
                "proxyTemplateUrl": "http://{{PORT}}-{{sandboxId}}.localhost",
                "proxyToolboxUrl": self._fleet.toolbox_url,
                "defaultSnapshot": "daytona-small",
                "dashboardUrl": self._vendor.url,
                "maintananceMode": False,
                "environment": "test",
            }
        )

    async def _create(self, request: web.Request) -> web.Response:
        asked = await checks.body(request, self._vendor, FIELDS)
        box = await self._creation.create(asked)
        Exchange.of(request).call.box = box.id
        return self._answer(box)

    async def _list(self, request: web.Request) -> web.Response:
        items = list(self._fleet.index.values())
        heeds_labels = self._fleet.settings.label_filter
        return web.json_response(page(request, self._vendor, items, heeds_labels=heeds_labels))

    async def _get(self, request: web.Request) -> web.Response:
        checks.query(request, self._vendor, "verbose")
        return self._answer(self._box(request))

    async def _delete(self, request: web.Request) -> web.Response:
        box = self._box(request)
        await self._fleet.delete(box)
        return self._answer(box)

    def _changed_by(self, change: Callable[[Sandbox], Awaitable[None]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            checks.nothing(request, self._vendor)
            box = self._box(request)
            await change(box)
            return self._answer(box)

        return handle

    async def _stop(self, request: web.Request) -> web.Response:
        checks.query(request, self._vendor, "force")
        box = self._box(request)
        await self._fleet.stop(box)
        return self._answer(box)

    async def _recover(self, request: web.Request) -> web.Response:
        checks.query(request, self._vendor, "skipStart")
        self._box(request)
        raise Refusal(400, "Sandbox is not in a recoverable state")

    async def _resize(self, request: web.Request) -> web.Response:
        fields: dict[str, checks.Kind] = {"cpu": "integer", "memory": "integer", "disk": "integer"}
        asked = await checks.body(request, self._vendor, fields)
        box = self._box(request)
        if box.state not in ("started", "stopped"):
            raise Refusal(400, "Sandbox must be in started or stopped state to resize")
        if all(getattr(box, name) == value for name, value in asked.items()):
            reason = "sandbox is already at the desired configuration"
            raise Refusal(400, f"No resource changes specified - {reason}")
        if asked.get("disk", box.disk) < box.disk:
            raise Refusal(400, "Sandbox disk size cannot be decreased")
        if box.state == "started":
            if asked.get("disk", box.disk) != box.disk:
                raise Refusal(400, "Disk resize can only be performed on a stopped sandbox")
            if asked.get("cpu", box.cpu) < box.cpu or asked.get("memory", box.memory) < box.memory:
                raise Refusal(400, "Sandbox must be in stopped state to decrease resources")
        for name, value in asked.items():
            setattr(box, name, value)
        self._fleet.changed(box)
        return self._answer(box)

    async def _fork(self, request: web.Request) -> web.Response:
        asked = await checks.body(request, self._vendor, {"name": "string"})
        return self._answer(await self._creation.fork(self._box(request), asked.get("name")))

    async def _snapshot(self, request: web.Request) -> web.Response:
        fields: dict[str, checks.Kind] = {"name": "string", "includeMemory": "boolean"}
        asked = await checks.body(request, self._vendor, fields, required=("name",))
        box, name = self._box(request), asked["name"]
        if box.changing:
            raise Refusal(409, "Sandbox state change in progress")
        before = box.state
        if before not in ("started", "stopped"):
            message = "Sandbox must be in started or stopped state to create a snapshot"
            raise Refusal(400, message)
        if asked.get("includeMemory"):
            raise Refusal(400, "includeMemory is only supported for Windows sandboxes")
        if box.pausable and before != "stopped":
            raise Refusal(400, "Filesystem-only snapshots require the sandbox to be stopped")
        self._snapshots.check_name(name)

        async def take() -> None:
            await self._snapshots.take(box, name)

        delay_s = self._fleet.settings.snapshot_delay_s
        await self._fleet.change(box, "snapshotting", before, delay_s, take)
        return self._answer(box)

    async def _labels(self, request: web.Request) -> web.Response:
        asked = await checks.body(request, self._vendor, {"labels": "texts"}, required=("labels",))
        box = self._box(request)
        box.labels = asked["labels"]
        self._fleet.changed(box)
        return web.json_response({"labels": box.labels})

    def _interval(self, name: str) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            box, value = self._box(request), _number(request, "interval")
            if value < 0 and name != "autoDeleteInterval":
                kind = name.removeprefix("auto").removesuffix("Interval").lower()
                raise Refusal(400, f"Auto-{kind} interval must be non-negative")
            if name == "autoPauseInterval" and value and not box.pausable:
                raise Refusal(422, "Pausing is not supported for this sandbox")
            setattr(box, INTERVALS[name], value)
            box.touch()
            self._fleet.changed(box)
            return self._answer(box)

        return handle

    async def _ttl(self, request: web.Request) -> web.Response:
        box, minutes = self._box(request), _number(request, "interval")
        if minutes < 0:
            raise Refusal(400, "TTL must be non-negative")
        end = time.time() + minutes * self._fleet.settings.minute_s
        box.destroy_at = end if minutes else None
        self._fleet.changed(box)
        return self._answer(box)

    async def _public(self, request: web.Request) -> web.Response:
        box = self._box(request)
        box.public = request.match_info["value"] == "true"
        self._fleet.changed(box)
        return self._answer(box)

    async def _last_activity(self, request: web.Request) -> web.Response:
        self._box(request).touch()
        return web.Response(status=201)

    async def _network(self, request: web.Request) -> web.Response:
        asked = await checks.body(request, self._vendor, NETWORK_FIELDS)
        box = self._box(request)
        box.network.update(asked)
        self._fleet.changed(box)
        return self._answer(box)

    async def _toolbox_url(self, request: web.Request) -> web.Response:
        self._box(request)
        return web.json_response({"url": self._fleet.toolbox_url})

    async def _signing_key(self, request: web.Request) -> web.Response:
        return web.json_response(self._box(request).signing_key)

    async def _rotate_signing_key(self, request: web.Request) -> web.Response:
        box = self._box(request)
        box.signing_key = secrets.token_urlsafe(32)
        return web.json_response(box.signing_key)

    async def _build_logs_url(self, request: web.Request) -> web.Response:
        box = self._box(request)
        if box.build_info is None:
            raise Refusal(404, f"Sandbox {box.id} has no build info")
        return web.json_response({"url": f"{self._vendor.url}/api/sandbox/{box.id}/build-logs"})

    async def _build_logs(self, request: web.Request) -> web.Response:
        checks.query(request, self._vendor, "follow")
        box = self._box(request)
        while box.state in ("pending_build", "building_snapshot"):
            await asyncio.sleep(0.05)
        return web.Response(text="Building image...\n")

    async def _preview(self, request: web.Request) -> web.Response:
        return web.json_response(await self._previews.link(self._box(request), _port(request)))

    async def _signed_preview(self, request: web.Request) -> web.Response:
        asked = checks.query(request, self._vendor, "expiresInSeconds")
        seconds = asked.get("expiresInSeconds", "60")
        if not seconds.isdigit() or not 1 <= int(seconds) <= 24 * 60 * 60:
            raise Refusal(400, "expiresInSeconds must be between 1 second and 24 hours")
        box, port = self._box(request), _port(request)
        return web.json_response(await self._previews.signed_link(box, port, int(seconds)))

    async def _expire_preview(self, request: web.Request) -> web.Response:
        self._box(request)
        self._previews.expire(_port(request), request.match_info["token"])
        return web.Response(status=200)


def _port(request: web.Request) -> int:
    port = _number(request, "port")
    if not 1 <= port <= 65535:
        raise Refusal(400, "Invalid port")
    return port


def _number(request: web.Request, name: str) -> int:
    try:
        return int(request.match_info[name])
    except ValueError:
        raise Refusal(400, "Validation failed (numeric string is expected)") from None
