"""Snapshots: what boxes are created from. General ones have no files of their own."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vendors.box_files import BoxFiles
from vendors.daytona.refusals import Refusal, now
from vendors.daytona.sandbox import Sandbox, new_id

DEFAULT = "daytona-small"


@dataclass
class Snapshot:
    name: str
    cpu: int = 1
    memory: int = 1
    disk: int = 3
    sandbox_class: str | None = None
    """``None``: the class that the settings name."""
    general: bool = True
    image: str | None = None
    files: Path | None = None
    """The directory with the files of the box that it was made from."""
    source: str | None = None
    id: str = field(default_factory=new_id)
    created_at: float = field(default_factory=time.time)

    def described(self, organization_id: str) -> dict[str, Any]:
        """The object ``SnapshotDto`` of the API."""
        found: dict[str, Any] = {
            "id": self.id,
            "general": self.general,
            "name": self.name,
            "imageName": self.image,
            "state": "active",
            "size": 0.5,
            "entrypoint": [],
            "cpu": self.cpu,
            "gpu": 0,
            "mem": self.memory,
            "disk": self.disk,
            "errorReason": None,
            "createdAt": now(self.created_at),
            "updatedAt": now(self.created_at),
            "lastUsedAt": None,
            "sourceSandboxId": self.source,
            "regionIds": ["us"],
            "ref": f"registry.local/daytona/{self.id}",
        }
        if not self.general:
            found["organizationId"] = organization_id
        return found


class Snapshots:
    """The snapshots of the account."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.all: list[Snapshot] = [
            Snapshot("daytona-small"),
            Snapshot("daytona-medium", cpu=2, memory=4, disk=8),
            Snapshot("daytona-large", cpu=4, memory=8, disk=10),
            Snapshot("daytona-vm", sandbox_class="linux-vm"),
        ]

    def find(self, id_or_name: str) -> Snapshot | None:
        """The snapshot with this id or name."""
        for snapshot in self.all:
            if id_or_name in (snapshot.id, snapshot.name):
                return snapshot
        return None

    def get(self, id_or_name: str) -> Snapshot:
        """The snapshot with this id or name.

        Raises:
            Refusal: there is none (404).
        """
        if found := self.find(id_or_name):
            return found
        raise Refusal(404, f"Snapshot with ID or name {id_or_name} not found")

    def check_name(self, name: str) -> None:
        """Refuse a name that is in use."""
        if self.find(name) is not None:
            raise Refusal(409, f'Snapshot with name "{name}" already exists for this organization')

    async def take(self, box: Sandbox, name: str) -> Snapshot:
        """Keep a copy of the box's files as they are now."""
        directory = self._directory / new_id()
        files = BoxFiles(box.directory, home=box.home, user=box.user)
        await asyncio.to_thread(files.copy_to, directory)
        snapshot = Snapshot(
            name,
            cpu=box.cpu,
            memory=box.memory,
            disk=box.disk,
            sandbox_class=box.sandbox_class,
            general=False,
            files=directory,
            source=box.id,
        )
        self.all.append(snapshot)
        return snapshot

    def remove(self, snapshot: Snapshot) -> None:
        """Forget a snapshot of the organization.

        Raises:
            Refusal: it is a general one (403).
        """
        if snapshot.general:
            raise Refusal(403, "You cannot delete a general snapshot")
        self.all.remove(snapshot)
        if snapshot.files is not None:
            shutil.rmtree(snapshot.files, ignore_errors=True)
