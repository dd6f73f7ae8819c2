"""Sandboxes at Daytona.

Names are loaded on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.extensions.sandbox.daytona.mounts import (
        DaytonaCloudBucketMountStrategy as DaytonaCloudBucketMountStrategy,
    )
    from sandstream.extensions.sandbox.daytona.sandbox import (
        DEFAULT_DAYTONA_WORKSPACE_ROOT as DEFAULT_DAYTONA_WORKSPACE_ROOT,
    )
    from sandstream.extensions.sandbox.daytona.sandbox import (
        DaytonaSandboxClient as DaytonaSandboxClient,
    )
    from sandstream.extensions.sandbox.daytona.sandbox import (
        DaytonaSandboxClientOptions as DaytonaSandboxClientOptions,
    )
    from sandstream.extensions.sandbox.daytona.sandbox import (
        DaytonaSandboxResources as DaytonaSandboxResources,
    )
    from sandstream.extensions.sandbox.daytona.sandbox import (
        DaytonaSandboxSession as DaytonaSandboxSession,
    )
    from sandstream.extensions.sandbox.daytona.sandbox import (
        DaytonaSandboxSessionState as DaytonaSandboxSessionState,
    )
    from sandstream.extensions.sandbox.daytona.sandbox import (
        DaytonaSandboxTimeouts as DaytonaSandboxTimeouts,
    )
    from sandstream.sandbox.errors import ExposedPortUnavailableError as ExposedPortUnavailableError
    from sandstream.sandbox.errors import InvalidManifestPathError as InvalidManifestPathError
    from sandstream.sandbox.errors import WorkspaceArchiveReadError as WorkspaceArchiveReadError

_MODULES = {
    "sandstream.extensions.sandbox.daytona.mounts": ("DaytonaCloudBucketMountStrategy",),
    "sandstream.extensions.sandbox.daytona.sandbox": (
        "DEFAULT_DAYTONA_WORKSPACE_ROOT",
        "DaytonaSandboxClient",
        "DaytonaSandboxClientOptions",
        "DaytonaSandboxResources",
        "DaytonaSandboxSession",
        "DaytonaSandboxSessionState",
        "DaytonaSandboxTimeouts",
    ),
    "sandstream.sandbox.errors": (
        "ExposedPortUnavailableError",
        "InvalidManifestPathError",
        "WorkspaceArchiveReadError",
    ),
}

_EXPORTS = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


__all__ = [*_EXPORTS]
