"""The control plane: creating, finding, pausing, resuming and killing boxes."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web
from vendors.e2b import answers, requests
from vendors.e2b.fleet import Fleet, TooMany
from vendors.e2b.idempotency import OUTCOME_UNKNOWN, KeyBook, KeyConflict
from vendors.e2b.requests import BadRequest
from vendors.e2b.sandbox import Plan, Sandbox
from vendors.e2b.settings import Settings
from vendors.e2b.shapes import Object
from vendors.exchange import Exchange
from vendors.server import Handler, Vendor

DEFAULT_TIMEOUT_S = 300


class ControlPlane:
    """Handlers of ``/sandboxes`` and ``/v2/sandboxes``; :mod:`.snapshots` has the rest."""

    def __init__(self, vendor: Vendor, fleet: Fleet, settings: Settings) -> None:
        self.vendor = vendor
        self.fleet = fleet
        self._settings = settings
        self._keys = KeyBook()
        self.domain = ""

    def add_routes(self, add: Any) -> None:
        add("POST", "/sandboxes", self.guarded(self._create_v1))
        add("POST", "/v2/sandboxes", self.guarded(self._create_v2))
        add("GET", "/v2/sandboxes", self.guarded(self._list))
        add("GET", "/sandboxes/{box}", self.guarded(self._get))
        add("DELETE", "/sandboxes/{box}", self.guarded(self._kill))
        add("POST", "/sandboxes/{box}/connect", self.guarded(self._connect_v1))
        add("POST", "/v2/sandboxes/{box}/connect", self.guarded(self._connect_v2))
        add("POST", "/sandboxes/{box}/pause", self.guarded(self._pause))
        add("POST", "/sandboxes/{box}/timeout", self.guarded(self._set_timeout))
        add("PUT", "/sandboxes/{box}/network", self.guarded(self._set_network))
        add("GET", "/sandboxes/{box}/metrics", self.guarded(self._metrics))

    def guarded(self, handler: Handler) -> Handler:
        """Check the key, and answer the errors that all handlers have in common."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            key = request.headers.get("X-API-KEY")
            if key is None:
                self.vendor.protocol_error(request, "the header X-API-KEY is missing")
                return answers.error(401, "authorization header is missing")
            if key != self.vendor.api_key:
                return answers.error(
                    401,
                    "Invalid API key, please visit https://e2b.dev/docs/api-key "
                    "for more information.",
                )
            try:
                return await handler(request)
            except BadRequest as error:
                return answers.error(400, str(error))
            except KeyConflict as error:
                return answers.error(error.status, error.message, error.code)
            except TooMany:
                return answers.error(429, self.too_many())

        return guarded

    def too_many(self) -> str:
        return (
            "you have reached the maximum number of concurrent E2B sandboxes "
            f"({self._settings.concurrent_sandboxes}). If you need more, please visit "
            "'https://e2b.dev/docs/billing'"
        )

    def timeout_s(self, found: dict[str, Any]) -> float:
        seconds = found.get("timeout", DEFAULT_TIMEOUT_S)
        if seconds <= 0:
            raise BadRequest("Timeout must be greater than 0")
        if seconds > self._settings.max_hours * 3600:
            raise BadRequest(f"Timeout cannot be greater than {self._settings.max_hours} hours")
        return float(seconds)

    async def _create_v1(self, request: web.Request) -> web.StreamResponse:
        return await self._create(request, requests.CREATE_V1)

    async def _create_v2(self, request: web.Request) -> web.StreamResponse:
        return await self._create(request, requests.CREATE_V2)

    async def _create(self, request: web.Request, shape: Object) -> web.StreamResponse:
        found = await requests.body(self.vendor, request, shape)
        key = requests.idempotency_key(self.vendor, request)
        template = self.fleet.templates.find(found["templateID"])
        if template is None:
            return answers.error(404, f"template '{found['templateID']}' not found")
        plan = Plan(
            template=template,
            timeout_s=self.timeout_s(found),
            metadata=found.get("metadata"),
            environment=found.get("envVars", {}),
            auto_pause=found.get("autoPause", False),
            auto_pause_memory=found.get("autoPauseMemory", True),
            auto_resume=found.get("autoResume", {}).get("enabled", False),
            secure=shape is requests.CREATE_V2 or found.get("secure", False),
            allow_internet_access=found.get("allow_internet_access"),
            network=found.get("network"),
        )
        _check_plan(plan)
        if key is None or not self._settings.idempotency:
            box = await self.fleet.create(plan)
        else:
            box = await self._create_once(key, found, plan)
        Exchange.of(request).call.box = box.id
        return self._created(box)

    async def _create_once(self, key: str, found: dict[str, Any], plan: Plan) -> Sandbox:
        box_id = self._keys.claim(key, found)
        if box_id is not None:
            box = self.fleet.find(box_id)
            if box is None or box.state == "killing":
                raise OUTCOME_UNKNOWN
            return box
        try:
            box = await self.fleet.create(plan)
        except BaseException:
            self._keys.release(key)
            raise
        self._keys.settle(key, box.id)
        return box

    def _created(self, box: Sandbox, status: int = 201) -> web.Response:
        return web.json_response(answers.created(box, self.domain), status=status)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        query = requests.list_query(self.vendor, request)
        template = self.fleet.templates.find(query.template) if query.template else None
        visible_until = time.time() - self._settings.list_lag_s
        found = [
            box
            for box in self.fleet.boxes
            if box.state != "killing"
            and answers.listed(box)["state"] in query.states
            and box.created_at <= visible_until
            and box.started_at >= query.started_after
            and (query.template is None or (template and template.id == box.plan.template_id))
            and (
                not self._settings.metadata_filter
                or query.metadata.items() <= (box.plan.metadata or {}).items()
            )
        ]
        page, headers = query.page, {}
        if "running" in query.states:
            running = sum(box.state == "running" for box in found)
            headers["X-Total-Running"] = str(running)
        places = {(box.started_at, box.id): box for box in found}
        order = sorted(places, reverse=not page.ascending)
        if page.after is not None:
            after = page.after
            order = [place for place in order if (place > after) == page.ascending]
            order = [place for place in order if place != after]
        if len(order) > page.limit:
            headers["X-Next-Token"] = page.token(order[page.limit - 1])
        shown = [answers.listed(places[place]) for place in order[: page.limit]]
        return web.json_response(shown, headers=headers)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        box = self.fleet.find(request.match_info["box"])
        if box is None or box.state == "killing":
            return answers.not_found(request.match_info["box"])
        return web.json_response(answers.detail(box, self.domain))

    async def _kill(self, request: web.Request) -> web.StreamResponse:
        box = self.fleet.find(request.match_info["box"])
        if box is None:
            return answers.not_found(request.match_info["box"])
        await self.fleet.kill(box)
        return web.Response(status=204)

    async def _connect_v1(self, request: web.Request) -> web.StreamResponse:
        return await self._connect(request, requests.CONNECT_V1)

    async def _connect_v2(self, request: web.Request) -> web.StreamResponse:
        return await self._connect(request, requests.CONNECT_V2)

    async def _connect(self, request: web.Request, shape: Object) -> web.StreamResponse:
        found = await requests.body(self.vendor, request, shape)
        timeout_s = self.timeout_s(found)
        box_id = request.match_info["box"]
        box = self.fleet.find(box_id)
        if box is None:
            return answers.not_found(box_id)
        if box.state == "killing":
            return answers.error(409, f'Sandbox "{box_id}" is being killed')
        async with box.turn:
            if self.fleet.find(box_id) is not box:
                return answers.not_found(box_id)
            if box.state == "running":
                wanted = self._latest_end(box, timeout_s)
                if wanted > box.ends_at:
                    box.keep_until(wanted)
                return self._created(box, 200)
            memory = found.get("memory", True)
            if not memory and box.pause_mode == "full" and not self._settings.filesystem_resume:
                return answers.error(
                    400,
                    "Resuming without memory (memory: false) is not enabled for this team; "
                    "a plain resume still restores memory",
                    "sandbox_memory_override_disabled",
                )
            await self.fleet.resume(box, timeout_s, memory)
            return self._created(box, 201)

    async def _pause(self, request: web.Request) -> web.StreamResponse:
        found = await requests.body(self.vendor, request, requests.PAUSE, optional=True)
        box_id = request.match_info["box"]
        box = self.fleet.find(box_id)
        if box is None:
            return answers.not_found(box_id)
        async with box.turn:
            if box.state == "paused":
                return answers.error(
                    409, f"Error pausing sandbox - sandbox '{box_id}' is already paused"
                )
            if box.state == "killing":
                return answers.error(
                    409, f"Sandbox '{box_id}' cannot be paused while in 'killing' state"
                )
            await box.pause(found.get("memory", True))
        return web.Response(status=204)

    async def _set_timeout(self, request: web.Request) -> web.StreamResponse:
        found = await requests.body(self.vendor, request, requests.TIMEOUT)
        box_id = request.match_info["box"]
        box = self.fleet.find(box_id)
        if box is None or box.state == "paused":
            return answers.not_found(box_id)
        if box.state != "running":
            return answers.error(409, f'Sandbox "{box_id}" is currently {box.state}')
        box.keep_until(self._latest_end(box, max(0, found["timeout"])))
        return web.Response(status=204)

    def _latest_end(self, box: Sandbox, timeout_s: float) -> float:
        """No box lives longer than the longest time, counted from its start."""
        longest = box.started_at + self._settings.max_hours * 3600
        return min(time.time() + timeout_s, longest)

    async def _set_network(self, request: web.Request) -> web.StreamResponse:
        found = await requests.body(self.vendor, request, requests.NETWORK)
        box = self.fleet.find(request.match_info["box"])
        if box is None or box.state != "running":
            return answers.not_found(request.match_info["box"])
        kept = {"allowPublicTraffic", "maskRequestHost"} & set(box.plan.network or {})
        box.plan.network = {name: (box.plan.network or {})[name] for name in kept} | found
        return web.Response(status=204)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        box = self.fleet.find(request.match_info["box"])
        if box is None:
            return answers.not_found(request.match_info["box"])
        return web.json_response([answers.metric()])


def _check_plan(plan: Plan) -> None:
    if not plan.auto_pause_memory and not plan.auto_pause:
        raise BadRequest("autoPauseMemory=false only applies when autoPause is true.")
    if not plan.auto_pause_memory and plan.auto_resume:
        raise BadRequest(
            "autoPauseMemory=false (filesystem-only auto-pause) cannot be combined with "
            "autoResume: a filesystem-only snapshot cannot be auto-resumed by traffic and must be "
            "resumed explicitly."
        )
    if not plan.public_traffic and not plan.secure:
        raise BadRequest(
            "You cannot create a sandbox without public access unless you enable secure envd "
            "access via 'secure' flag."
        )
