"""The sandbox agents of the chaos tests. All their work is done by commands in their sandboxes."""

from __future__ import annotations

import os
from typing import Any

from sandstream import RunConfig
from sandstream.extensions.sandbox.daytona import DaytonaSandboxClient, DaytonaSandboxClientOptions
from sandstream.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Capability, Memory, Shell
from sandstream.sandbox.config import CheckpointWhen, MemoryGenerateConfig, MemoryReadConfig
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes.docker import DockerSandboxClient, DockerSandboxClientOptions
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient


def config_of(checkpoint: CheckpointWhen, **settings: Any) -> RunConfig:
    """The sandboxes are of the provider that ``CHAOS_PROVIDER`` names."""
    sandbox = SandboxRunConfig(*_client_of_provider(), checkpoint=checkpoint)
    return RunConfig(sandbox=sandbox, **settings)


def _client_of_provider() -> tuple[Any, Any]:
    """A client and its options. With ``CHAOS_IMAGE`` sandboxes are containers of that image."""
    image = os.environ.get("CHAOS_IMAGE", "")
    if image:
        return DockerSandboxClient(), DockerSandboxClientOptions(image, network_mode="none")
    match os.environ.get("CHAOS_PROVIDER", "local"):
        case "daytona":
            return DaytonaSandboxClient(), DaytonaSandboxClientOptions()
        case "e2b":
            return E2BSandboxClient(), E2BSandboxClientOptions("e2b")
        case _:
            return UnixLocalSandboxClient(), None


def smith_of(name: str, **more: Any) -> SandboxAgent[Any]:
    """An agent whose workspace contains a file from the start, so that filling it takes two
    steps.
    """
    return SandboxAgent(
        name=name,
        model="gpt-test",
        instructions="Do as you are told.",
        default_manifest=Manifest(entries={"given/greeting.txt": File(content=b"hello\n")}),
        **more,
    )


def scribe_of(name: str, scope: str) -> SandboxAgent[Any]:
    """A smith whose runs are remembered. Its memory is consolidated only on request."""
    generate = MemoryGenerateConfig(
        phase_one_model="gpt-small",
        phase_two_model="gpt-big",
        batch_size=4096,
        quiet_seconds=3600.0,
    )
    memory = Memory(scope=scope, read=MemoryReadConfig(live_update=False), generate=generate)
    capabilities: list[Capability] = [Shell(), memory]
    return smith_of(name, capabilities=capabilities)
