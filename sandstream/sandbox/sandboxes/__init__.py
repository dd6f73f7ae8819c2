"""Sandbox clients by provider."""

from sandstream.sandbox.sandboxes.unix_local import (
    UnixLocalSandboxClient as UnixLocalSandboxClient,
)
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
    "UnixLocalSandboxClient",
    "UnixLocalSandboxClientOptions",
    "UnixLocalSandboxSession",
    "UnixLocalSandboxSessionState",
]
