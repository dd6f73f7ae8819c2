"""The control plane for snapshots of boxes, and forks, which are boxes made from one."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from aiohttp import web
from vendors.e2b import answers, requests
from vendors.e2b.control_plane import ControlPlane
from vendors.e2b.fleet import TooMany
from vendors.e2b.requests import BadRequest
from vendors.e2b.sandbox import Plan

_MOST_FORKS = 100


class SnapshotRoutes:
    """A snapshot keeps the files of a box. The memory of its processes cannot be copied here."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._fleet = plane.fleet
        self._vendor = plane.vendor

    def add_routes(self, add: Any) -> None:
        guarded = self._plane.guarded
        add("POST", "/sandboxes/{box}/snapshots", guarded(self._create))
        add("POST", "/sandboxes/{box}/fork", guarded(self._fork))
        add("GET", "/snapshots", guarded(self._list))
        add("DELETE", "/templates/{template}", guarded(self._delete))

    async def _create(self, request: web.Request) -> web.StreamResponse:
        found = await requests.body(self._vendor, request, requests.SNAPSHOT)
        box_id = request.match_info["box"]
        box = self._fleet.find(box_id)
        if box is None or box.state != "running":
            return answers.not_found(box_id)
        async with box.turn:
            snapshot = await self._fleet.snapshot(box, found.get("name"))
        body = {"snapshotID": snapshot.snapshot_id, "names": snapshot.names}
        return web.json_response(body, status=201)

    async def _fork(self, request: web.Request) -> web.StreamResponse:
        found = await requests.body(self._vendor, request, requests.FORK, optional=True)
        timeout_s = self._plane.timeout_s(found)
        count = found.get("count", 1)
        if count < 1:
            raise BadRequest("Count must be at least 1")
        if count > _MOST_FORKS:
            raise BadRequest(f"Count cannot be greater than {_MOST_FORKS}")
        box_id = request.match_info["box"]
        box = self._fleet.find(box_id)
        if box is None or box.state == "killing":
            return answers.not_found(box_id)
        if box.state != "running":
            return answers.error(
                409, f"Sandbox '{box_id}' is paused and cannot be forked; resume it first"
            )
        async with box.turn:
            snapshot = await self._fleet.snapshot(box, None)
        plan = dataclasses.replace(
            box.plan, template=snapshot, timeout_s=timeout_s, base_id=box.plan.template_id
        )
        results = await asyncio.gather(*(self._one_fork(plan) for _ in range(count)))
        self._fleet.templates.remove(snapshot)
        return web.json_response(results, status=201)

    async def _one_fork(self, plan: Plan) -> dict[str, Any]:
        try:
            box = await self._fleet.create(plan)
        except TooMany:
            return {"error": {"code": 429, "message": self._plane.too_many()}}
        return {"sandbox": answers.created(box, self._plane.domain)}

    async def _list(self, request: web.Request) -> web.StreamResponse:
        page = requests.snapshot_query(self._vendor, request)
        box_id, name = request.query.get("sandboxID"), request.query.get("name")
        named = self._fleet.templates.find(name) if name else None
        places = {
            (snapshot.created_at, snapshot.id): snapshot
            for snapshot in self._fleet.templates.snapshots
            if box_id in (None, snapshot.made_from) and (name is None or snapshot == named)
        }
        order = sorted(places, reverse=True)
        if page.after is not None:
            order = [place for place in order if place < page.after]
        headers = {}
        if len(order) > page.limit:
            headers["X-Next-Token"] = page.token(order[page.limit - 1])
        shown = [
            {"snapshotID": places[place].snapshot_id, "names": places[place].names}
            for place in order[: page.limit]
        ]
        return web.json_response(shown, headers=headers)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["template"]
        template = self._fleet.templates.find(name)
        if template is None:
            return answers.error(404, f"template '{name}' not found")
        if template.made_from is None:
            return answers.error(403, f"you don't have access to template '{name}'")
        self._fleet.templates.remove(template)
        return web.Response(status=204)
