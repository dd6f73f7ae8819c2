"""The client of one side and the options of its sandboxes: directories, containers or a vendor's.

BENCH_IMAGE names an image for containers, BENCH_VENDOR a vendor whose server the environment names.
"""

from __future__ import annotations

import os
from typing import Any

IMAGE = os.environ.get("BENCH_IMAGE", "")
VENDOR = os.environ.get("BENCH_VENDOR", "")


def new_client(side: str) -> tuple[Any, Any]:
    """The client, and the options of its sandboxes."""
    if VENDOR:
        return _of_agents(VENDOR) if side == "agents" else _of_ours(VENDOR)
    if IMAGE:
        return _in_containers(side)
    if side == "agents":
        from agents.sandbox.sandboxes import UnixLocalSandboxClient
    else:
        from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
    return UnixLocalSandboxClient(), None


def _of_agents(vendor: str) -> tuple[Any, Any]:
    if vendor == "daytona":
        from agents.extensions.sandbox.daytona import (
            DaytonaSandboxClient,
            DaytonaSandboxClientOptions,
        )

        return DaytonaSandboxClient(), DaytonaSandboxClientOptions()
    from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions

    return E2BSandboxClient(), E2BSandboxClientOptions("e2b")


def _of_ours(vendor: str) -> tuple[Any, Any]:
    if vendor == "daytona":
        from sandstream.extensions.sandbox.daytona import (
            DaytonaSandboxClient,
            DaytonaSandboxClientOptions,
        )

        return DaytonaSandboxClient(), DaytonaSandboxClientOptions()
    from sandstream.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions

    return E2BSandboxClient(), E2BSandboxClientOptions("e2b")


def _in_containers(side: str) -> tuple[Any, Any]:
    import docker

    if side == "agents":
        from agents.sandbox.sandboxes.docker import DockerSandboxClient, DockerSandboxClientOptions
    else:
        from sandstream.sandbox.sandboxes.docker import (
            DockerSandboxClient,
            DockerSandboxClientOptions,
        )
    special: dict[str, dict[str, Any]] = {
        "sandstream-shell": {"agent": False},
        "sandstream-pool": {"pool": 2},
    }
    options = DockerSandboxClientOptions(image=IMAGE, **special.get(side, {}))
    return DockerSandboxClient(docker.from_env()), options
