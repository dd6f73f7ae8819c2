"""One vendor as a program sees it: its client, options and states, against the local server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vendors.process import VendorServer
from vendors.server import Box

from sandstream import RunConfig
from sandstream.extensions.sandbox import (
    DaytonaSandboxClient,
    DaytonaSandboxClientOptions,
    DaytonaSandboxSessionState,
    E2BSandboxClient,
    E2BSandboxClientOptions,
    E2BSandboxSessionState,
    E2BSandboxType,
)
from sandstream.sandbox import Manifest, SandboxRunConfig
from sandstream.sandbox.entries import BaseEntry
from sandstream.testing import Step, tool_call

PAUSED = {"daytona": "stopped", "e2b": "paused"}
"""How a vendor calls a box that sleeps."""
HOMES = {"daytona": "/home/daytona", "e2b": "/home/user"}


@dataclass(frozen=True)
class VendorSide:
    """``server`` is shared with other tests: only the boxes that are new belong to this one."""

    name: str
    server: VendorServer
    known: frozenset[str]
    """The boxes that existed before the test."""

    def client(self) -> Any:
        return DaytonaSandboxClient() if self.name == "daytona" else E2BSandboxClient()

    def options(self, **chosen: Any) -> Any:
        if self.name == "daytona":
            return DaytonaSandboxClientOptions(**chosen)
        return E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B, **chosen)

    @property
    def state_class(self) -> Any:
        return DaytonaSandboxSessionState if self.name == "daytona" else E2BSandboxSessionState

    def manifest(self, **files: BaseEntry) -> Manifest:
        """With a root in the home directory of the vendor's user."""
        entries: dict[str | Path, BaseEntry] = dict(files.items())
        return Manifest(root=f"{HOMES[self.name]}/workspace", entries=entries)

    def run_config(self, client: Any, **chosen: Any) -> RunConfig:
        return RunConfig(sandbox=SandboxRunConfig(client=client, options=self.options(**chosen)))

    def boxes(self) -> list[Box]:
        """What this test would pay for."""
        return [it for it in self.server.boxes() if it.id not in self.known]

    def is_paused(self, box_id: str) -> bool:
        (box,) = [it for it in self.boxes() if it.id == box_id]
        return box.state == PAUSED[self.name]

    def created(self, since: int) -> int:
        """How many boxes were made after call number ``since``."""
        route = "POST /sandbox" if self.name == "daytona" else "POST /v2/sandboxes"
        calls = [f"{it.method} {it.path}" for it in self.server.journal(since)]
        return calls.count(route)


def run_command(command: str) -> Step:
    return tool_call("exec_command", {"cmd": command})


def outputs(result: Any) -> list[str]:
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]
