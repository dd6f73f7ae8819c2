"""The Docker client of the session tests: with an image, on the engine of the tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import docker
from support.engines import engine

from sandstream.sandbox.sandboxes import DockerSandboxClient, DockerSandboxClientOptions
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.settings import SandboxSettings

Options = Callable[..., DockerSandboxClientOptions]


class ImageClient(DockerSandboxClient):
    """Tests of sessions give no options where the defaults will do: these have an image."""

    supports_default_options = True

    def __init__(self, options: Options, dependencies: Dependencies | None = None) -> None:
        super().__init__(_connection(), dependencies=dependencies)
        self._usual = options()

    def settings(self, options: DockerSandboxClientOptions | None) -> SandboxSettings:
        return super().settings(options or self._usual)

    def state_fields(self, options: DockerSandboxClientOptions | None) -> dict[str, Any]:
        return super().state_fields(options or self._usual)


def options_of(image: str, **fixed: Any) -> Options:
    """Makes options for containers of this image, without network unless ports need one."""

    def make(exposed_ports: tuple[int, ...] = (), **given: Any) -> DockerSandboxClientOptions:
        network_mode = None if exposed_ports else "none"
        chosen = {"network_mode": network_mode, **fixed, **given}
        return DockerSandboxClientOptions(image, exposed_ports, **chosen)

    return make


@functools.cache
def _connection() -> docker.DockerClient:
    """One for the whole process; with a version given it connects only when it is used."""
    return docker.DockerClient(base_url=engine.ensure(), version="1.41")
