"""The sandbox agents of the chaos tests. All they do is done by commands in their sandboxes."""

from __future__ import annotations

from typing import Any

from sandstream import RunConfig
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.config import CheckpointWhen
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient


def config_of(checkpoint: CheckpointWhen, **settings: Any) -> RunConfig:
    sandbox = SandboxRunConfig(client=UnixLocalSandboxClient(), checkpoint=checkpoint)
    return RunConfig(sandbox=sandbox, **settings)


def smith_of(name: str) -> SandboxAgent[Any]:
    """An agent whose workspace holds a file from the start: filling it takes more than one step."""
    return SandboxAgent(
        name=name,
        model="gpt-test",
        instructions="Do as you are told.",
        default_manifest=Manifest(entries={"given/greeting.txt": File(content=b"hello\n")}),
    )
