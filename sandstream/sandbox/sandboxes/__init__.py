"""Sandbox clients by provider."""

from sandstream.sandbox.sandboxes.docker import DockerRemovalService as DockerRemovalService
from sandstream.sandbox.sandboxes.docker import DockerSandboxClient as DockerSandboxClient
from sandstream.sandbox.sandboxes.docker import (
    DockerSandboxClientOptions as DockerSandboxClientOptions,
)
from sandstream.sandbox.sandboxes.docker import DockerSandboxSession as DockerSandboxSession
from sandstream.sandbox.sandboxes.docker import (
    DockerSandboxSessionState as DockerSandboxSessionState,
)
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient as UnixLocalSandboxClient
from sandstream.sandbox.sandboxes.unix_local import (
    UnixLocalSandboxClientOptions as UnixLocalSandboxClientOptions,
)
from sandstream.sandbox.sandboxes.unix_local import (
    UnixLocalSandboxSession as UnixLocalSandboxSession,
)
from sandstream.sandbox.sandboxes.unix_local import (
    UnixLocalSandboxSessionState as UnixLocalSandboxSessionState,
)

__all__ = [
    "DockerRemovalService",
    "DockerSandboxClient",
    "DockerSandboxClientOptions",
    "DockerSandboxSession",
    "DockerSandboxSessionState",
    "UnixLocalSandboxClient",
    "UnixLocalSandboxClientOptions",
    "UnixLocalSandboxSession",
    "UnixLocalSandboxSessionState",
]
