"""One sandbox of the account: its description, its state and the machine that runs it."""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vendors.daytona.refusals import now
from vendors.machine import Machine

if TYPE_CHECKING:
    from vendors.daytona.daemon.daemon import Daemon

VM_CLASSES = ("linux-vm", "windows")
CHANGING = (
    *("creating", "starting", "stopping", "pausing", "resuming", "archiving", "restoring"),
    *("pending_build", "building_snapshot", "snapshotting", "forking", "resizing", "destroying"),
)
"""States in which every further change is refused with 409."""
ONLY_IN_FULL = (
    *("env", "kvm", "volumes", "buildInfo", "otelEndpointOverride", "outboundProxyUrl"),
    *("linkedSandboxId", "backupCreatedAt"),
)
"""What a list leaves out."""


@dataclass
class Sandbox:
    """The record of a sandbox. ``described`` gives it the form of the API."""

    id: str
    name: str
    directory: Path
    organization_id: str
    user: str = "daytona"
    sandbox_class: str = "container"
    snapshot: str | None = None
    build_info: dict[str, Any] | None = None
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    public: bool = False
    target: str = "us"
    cpu: int = 1
    gpu: int = 0
    memory: int = 1
    disk: int = 3
    volumes: list[dict[str, Any]] = field(default_factory=list)
    auto_stop_interval: int = 15
    auto_pause_interval: int = 0
    auto_archive_interval: int = 7 * 24 * 60
    auto_delete_interval: int = -1
    queue_timeout: int | None = None
    network: dict[str, Any] = field(default_factory=dict)
    """``networkBlockAll``, ``networkAllowList``, ``domainAllowList``, if set."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields that were sent and are only repeated."""
    python: bool = True
    sudo: bool = True
    extra_dirs: tuple[str, ...] = ()
    parent: str | None = None
    """The sandbox that this one was forked from."""

    state: str = "creating"
    error_reason: str | None = None
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    last_activity: float = field(default_factory=time.time)
    stopped_at: float | None = None
    destroy_at: float | None = None
    """When the time to live ends."""
    preview_token: str = field(default_factory=lambda: secrets.token_hex(16))
    signing_key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    lost_share: float = 0.0
    """The share of the files that the next start loses."""
    machine: Machine | None = None
    daemon: Daemon | None = None

    @property
    def home(self) -> str:
        return "/root" if self.user == "root" else f"/home/{self.user}"

    @property
    def changing(self) -> bool:
        return self.state in CHANGING

    @property
    def pausable(self) -> bool:
        return self.sandbox_class in VM_CLASSES

    @property
    def ephemeral(self) -> bool:
        """Whether it is deleted as soon as it stops."""
        return self.auto_delete_interval == 0

    def touch(self) -> None:
        """Something happened that counts as activity."""
        self.last_activity = time.time()

    def described(self, toolbox_url: str) -> dict[str, Any]:
        """The object ``Sandbox`` of the API; unset fields are absent."""
        found: dict[str, Any] = {
            "id": self.id,
            "organizationId": self.organization_id,
            "name": self.name,
            "snapshot": self.snapshot,
            "user": self.user,
            "env": self.env,
            "labels": self.labels,
            "public": self.public,
            "networkBlockAll": False,
            "kvm": False,
            "target": self.target,
            "cpu": self.cpu,
            "gpu": self.gpu,
            "memory": self.memory,
            "disk": self.disk,
            "state": self.state,
            "desiredState": self._desired_state(),
            "errorReason": self.error_reason,
            "recoverable": False,
            "backupState": "None",
            "autoStopInterval": self.auto_stop_interval,
            "autoPauseInterval": self.auto_pause_interval,
            "autoArchiveInterval": self.auto_archive_interval,
            "autoDeleteInterval": self.auto_delete_interval,
            "autoDestroyAt": None if self.destroy_at is None else now(self.destroy_at),
            "queueTimeout": self.queue_timeout,
            "volumes": self.volumes,
            "buildInfo": self.build_info,
            "createdAt": now(self.created_at),
            "updatedAt": now(self.updated_at),
            "lastActivityAt": now(self.last_activity),
            "sandboxClass": self.sandbox_class,
            "daemonVersion": "0.226.0",
            "runnerId": "runner-1",
            "toolboxProxyUrl": toolbox_url,
            **self.network,
            **self.extra,
        }
        return {name: value for name, value in found.items() if value is not None}

    def listed(self, toolbox_url: str) -> dict[str, Any]:
        """The object ``SandboxListItem`` of the API."""
        full = self.described(toolbox_url)
        return {name: value for name, value in full.items() if name not in ONLY_IN_FULL}

    def _desired_state(self) -> str:
        match self.state:
            case "stopping" | "stopped":
                return "stopped"
            case "pausing" | "paused":
                return "paused"
            case "archiving" | "archived":
                return "archived"
            case "destroying" | "destroyed":
                return "destroyed"
            case _:
                return "started"


def new_id() -> str:
    return str(uuid.uuid4())
