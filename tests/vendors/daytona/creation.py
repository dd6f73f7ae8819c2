"""``POST /sandbox``: what a new box is made of, and what is refused."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

from vendors.daytona.checks import Kind
from vendors.daytona.fleet import Fleet
from vendors.daytona.refusals import Refusal, now
from vendors.daytona.sandbox import Sandbox, new_id
from vendors.daytona.snapshots import DEFAULT, Snapshot, Snapshots

FIELDS: dict[str, Kind] = {
    "name": "string",
    "snapshot": "string",
    "user": "string",
    "env": "texts",
    "labels": "texts",
    "public": "boolean",
    "networkBlockAll": "boolean",
    "kvm": "boolean",
    "networkAllowList": "string",
    "domainAllowList": "string",
    "outboundProxyUrl": "string",
    "otelEndpointOverride": "string",
    "target": "string",
    "cpu": "integer",
    "gpu": "integer",
    "gpuType": "strings",
    "spot": "boolean",
    "memory": "integer",
    "disk": "integer",
    "autoStopInterval": "integer",
    "autoPauseInterval": "integer",
    "autoArchiveInterval": "integer",
    "autoDeleteInterval": "integer",
    "ttlMinutes": "integer",
    "queueTimeout": "integer",
    "volumes": "objects",
    "buildInfo": "object",
    "linkedSandbox": "string",
    "secrets": "objects",
}
NETWORK = ("networkBlockAll", "networkAllowList", "domainAllowList")
REPEATED = ("outboundProxyUrl", "otelEndpointOverride", "spot")
INTERVALS = {
    "autoStopInterval": "auto_stop_interval",
    "autoPauseInterval": "auto_pause_interval",
    "autoArchiveInterval": "auto_archive_interval",
    "autoDeleteInterval": "auto_delete_interval",
}
FROM = re.compile(r"^\s*FROM\s+(\S+)", re.MULTILINE | re.IGNORECASE)


class Creation:
    """Makes the record of a new box, and starts it."""

    def __init__(self, fleet: Fleet, snapshots: Snapshots, organization_id: str) -> None:
        self._fleet = fleet
        self._snapshots = snapshots
        self._organization_id = organization_id

    async def create(self, asked: dict[str, Any]) -> Sandbox:
        """Create a box from a snapshot or from an image.

        Raises:
            Refusal: something about the request or the account does not allow it.
        """
        source, described = self._source(asked)
        self._check_intervals(asked)
        self._fleet.check_limits()
        box_id = new_id()
        name = asked.get("name") or box_id
        self._fleet.check_name(name)
        settings = self._fleet.settings
        box = Sandbox(
            id=box_id,
            name=name,
            directory=self._fleet.directory / box_id,
            organization_id=self._organization_id,
            env=asked.get("env", {}),
            labels=asked.get("labels", {}),
            public=asked.get("public", False),
            target=asked.get("target", "us"),
            volumes=asked.get("volumes", []),
            user=asked.get("user", "daytona"),
            queue_timeout=asked.get("queueTimeout"),
            network={field: asked[field] for field in NETWORK if field in asked},
            extra={field: asked[field] for field in REPEATED if field in asked},
            python=settings.python,
            sudo=settings.sudo,
            extra_dirs=settings.extra_dirs,
            created_at=time.time() + settings.clock_ahead_s,
            **described,
            **{ours: asked[theirs] for theirs, ours in INTERVALS.items() if theirs in asked},
        )
        if box.pausable and "autoStopInterval" not in asked:
            box.auto_stop_interval = 0
            box.auto_pause_interval = asked.get("autoPauseInterval", 60)
        if ttl := asked.get("ttlMinutes"):
            box.destroy_at = time.time() + ttl * settings.minute_s
        self._fleet.add(box)
        if box.build_info is not None:
            await self._build(box)
        else:
            await self._fleet.create(box, source)
        return box

    async def fork(self, parent: Sandbox, name: str | None) -> Sandbox:
        """Create a box from the files of a running one. Its processes are not copied here."""
        if not parent.pausable:
            raise Refusal(422, "Forking is not supported for this sandbox")
        if parent.changing:
            raise Refusal(409, "Sandbox state change in progress")
        if parent.state != "started":
            raise Refusal(400, "Sandbox must be in started state to fork")
        self._fleet.check_limits()
        box_id = new_id()
        if name is not None and self._fleet.find(name) is not None:
            raise Refusal(409, "Sandbox with this name already exists")
        box = Sandbox(
            id=box_id,
            name=name or box_id,
            directory=self._fleet.directory / box_id,
            organization_id=self._organization_id,
            env=dict(parent.env),
            labels=dict(parent.labels),
            parent=parent.id,
            **{field: getattr(parent, field) for field in _INHERITED},
        )
        self._fleet.add(box)
        self._fleet.set_state(parent, "forking")
        try:
            await self._fleet.create(box, parent.directory)
        finally:
            self._fleet.set_state(parent, "started")
        return box

    def _source(self, asked: dict[str, Any]) -> tuple[Path | None, dict[str, Any]]:
        """The files and the size of the new box."""
        if build := asked.get("buildInfo"):
            if asked.get("snapshot"):
                raise Refusal(400, "Cannot specify a snapshot when using a build info entry")
            if not isinstance(build.get("dockerfileContent"), str):
                raise Refusal(400, "buildInfo.dockerfileContent must be a string")
            info = {**build, "createdAt": now(), "updatedAt": now(), "snapshotRef": new_id()}
            sizes: dict[str, Any] = {
                name: asked[name] for name in ("cpu", "memory", "disk", "gpu") if name in asked
            }
            return None, {**sizes, "build_info": info, "sandbox_class": "container"}
        if any(asked.get(field) for field in ("cpu", "memory", "disk", "gpu")):
            raise Refusal(400, "Cannot specify Sandbox resources when using a snapshot")
        name = asked.get("snapshot") or DEFAULT
        snapshot = self._snapshots.find(name)
        if snapshot is None:
            message = f"Snapshot {name} not found. Did you add it through the Daytona Dashboard?"
            raise Refusal(400, message)
        return snapshot.files, self._sizes(snapshot)

    def _sizes(self, snapshot: Snapshot) -> dict[str, Any]:
        return {
            "snapshot": snapshot.name,
            "cpu": snapshot.cpu,
            "memory": snapshot.memory,
            "disk": snapshot.disk,
            "sandbox_class": snapshot.sandbox_class or self._fleet.settings.sandbox_class,
        }

    def _check_intervals(self, asked: dict[str, Any]) -> None:
        for name in ("Stop", "Pause", "Archive"):
            if asked.get(f"auto{name}Interval", 0) < 0:
                raise Refusal(400, f"Auto-{name.lower()} interval must be non-negative")
        if asked.get("ttlMinutes", 0) < 0:
            raise Refusal(400, "TTL must be non-negative")

    async def _build(self, box: Sandbox) -> None:
        """Build the image first: half of a slow start passes before the build begins."""
        assert box.build_info is not None
        image = FROM.search(box.build_info["dockerfileContent"])
        self._fleet.set_state(box, "pending_build")
        if image is None or image[1] in self._fleet.settings.broken_images:
            box.error_reason = f"failed to build image {image[1] if image else ''}: not found"
            self._fleet.set_state(box, "build_failed")
        elif half_s := self._fleet.settings.start_delay_s / 2:
            self._fleet.spawn(self._build_later(box, half_s))
        else:
            await self._fleet.create(box, None)

    async def _build_later(self, box: Sandbox, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if box.state == "pending_build":
            await self._fleet.build(box, delay_s)


_INHERITED = (
    *("user", "sandbox_class", "snapshot", "public", "target", "cpu", "gpu", "memory", "disk"),
    *("volumes", "auto_stop_interval", "auto_pause_interval", "auto_archive_interval"),
    *("auto_delete_interval", "network", "extra", "python", "sudo", "extra_dirs"),
)
