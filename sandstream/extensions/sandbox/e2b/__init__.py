"""Sandboxes at E2B.

Names are loaded on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.extensions.sandbox.e2b.mounts import (
        E2BCloudBucketMountStrategy as E2BCloudBucketMountStrategy,
    )
    from sandstream.extensions.sandbox.e2b.sandbox import E2BSandboxClient as E2BSandboxClient
    from sandstream.extensions.sandbox.e2b.sandbox import (
        E2BSandboxClientOptions as E2BSandboxClientOptions,
    )
    from sandstream.extensions.sandbox.e2b.sandbox import E2BSandboxSession as E2BSandboxSession
    from sandstream.extensions.sandbox.e2b.sandbox import (
        E2BSandboxSessionState as E2BSandboxSessionState,
    )
    from sandstream.extensions.sandbox.e2b.sandbox import E2BSandboxTimeouts as E2BSandboxTimeouts
    from sandstream.extensions.sandbox.e2b.sandbox import E2BSandboxType as E2BSandboxType

_MODULES = {
    "sandstream.extensions.sandbox.e2b.mounts": ("E2BCloudBucketMountStrategy",),
    "sandstream.extensions.sandbox.e2b.sandbox": (
        "E2BSandboxClient",
        "E2BSandboxClientOptions",
        "E2BSandboxSession",
        "E2BSandboxSessionState",
        "E2BSandboxTimeouts",
        "E2BSandboxType",
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
