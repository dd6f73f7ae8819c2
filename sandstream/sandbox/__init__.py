"""Agents with their own workspace: files, commands, and the parts they are configured with.

Names are loaded on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.sandbox._memory.freshness import MemoryGivenUpError as MemoryGivenUpError
    from sandstream.sandbox._memory.freshness import MemoryStatus as MemoryStatus
    from sandstream.sandbox._memory.freshness import wait_for_memory as wait_for_memory
    from sandstream.sandbox.capabilities import Capability as Capability
    from sandstream.sandbox.config import MemoryGenerateConfig as MemoryGenerateConfig
    from sandstream.sandbox.config import MemoryLayoutConfig as MemoryLayoutConfig
    from sandstream.sandbox.config import MemoryReadConfig as MemoryReadConfig
    from sandstream.sandbox.config import MemoryWriteConfig as MemoryWriteConfig
    from sandstream.sandbox.config import SandboxArchiveLimits as SandboxArchiveLimits
    from sandstream.sandbox.config import SandboxConcurrencyLimits as SandboxConcurrencyLimits
    from sandstream.sandbox.config import SandboxRunConfig as SandboxRunConfig
    from sandstream.sandbox.entries import Dir as Dir
    from sandstream.sandbox.entries import File as File
    from sandstream.sandbox.entries import GitRepo as GitRepo
    from sandstream.sandbox.entries import LocalDir as LocalDir
    from sandstream.sandbox.entries import LocalFile as LocalFile
    from sandstream.sandbox.environment import SecretRef as SecretRef
    from sandstream.sandbox.errors import ErrorCode as ErrorCode
    from sandstream.sandbox.errors import ExecTimeoutError as ExecTimeoutError
    from sandstream.sandbox.errors import ExecTransportError as ExecTransportError
    from sandstream.sandbox.errors import ExposedPortUnavailableError as ExposedPortUnavailableError
    from sandstream.sandbox.errors import ProviderUnavailableError as ProviderUnavailableError
    from sandstream.sandbox.errors import SandboxError as SandboxError
    from sandstream.sandbox.errors import SandboxLimitError as SandboxLimitError
    from sandstream.sandbox.errors import WorkspaceArchiveReadError as WorkspaceArchiveReadError
    from sandstream.sandbox.errors import WorkspaceArchiveWriteError as WorkspaceArchiveWriteError
    from sandstream.sandbox.errors import WorkspaceLostError as WorkspaceLostError
    from sandstream.sandbox.errors import WorkspaceReadNotFoundError as WorkspaceReadNotFoundError
    from sandstream.sandbox.errors import WorkspaceWriteTypeError as WorkspaceWriteTypeError
    from sandstream.sandbox.manifest import Manifest as Manifest
    from sandstream.sandbox.sandbox_agent import SandboxAgent as SandboxAgent
    from sandstream.sandbox.snapshot import BusSnapshot as BusSnapshot
    from sandstream.sandbox.snapshot import BusSnapshotSpec as BusSnapshotSpec
    from sandstream.sandbox.snapshot import LocalSnapshot as LocalSnapshot
    from sandstream.sandbox.snapshot import LocalSnapshotSpec as LocalSnapshotSpec
    from sandstream.sandbox.snapshot import RemoteSnapshot as RemoteSnapshot
    from sandstream.sandbox.snapshot import RemoteSnapshotSpec as RemoteSnapshotSpec
    from sandstream.sandbox.snapshot import SnapshotSpec as SnapshotSpec
    from sandstream.sandbox.snapshot import resolve_snapshot as resolve_snapshot
    from sandstream.sandbox.types import ExecResult as ExecResult
    from sandstream.sandbox.types import ExposedPortEndpoint as ExposedPortEndpoint
    from sandstream.sandbox.types import FileMode as FileMode
    from sandstream.sandbox.types import Group as Group
    from sandstream.sandbox.types import Permissions as Permissions
    from sandstream.sandbox.types import User as User
    from sandstream.sandbox.workspace_paths import SandboxPathGrant as SandboxPathGrant
    from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope as SandboxWorkspaceScope

_MODULES = {
    "sandstream.sandbox.capabilities": ("Capability",),
    "sandstream.sandbox.config": (
        "MemoryGenerateConfig",
        "MemoryLayoutConfig",
        "MemoryReadConfig",
        "MemoryWriteConfig",
        "SandboxArchiveLimits",
        "SandboxConcurrencyLimits",
        "SandboxRunConfig",
    ),
    "sandstream.sandbox.entries": (
        "Dir",
        "File",
        "GitRepo",
        "LocalDir",
        "LocalFile",
    ),
    "sandstream.sandbox.environment": ("SecretRef",),
    "sandstream.sandbox.errors": (
        "ErrorCode",
        "ExecTimeoutError",
        "ExecTransportError",
        "ExposedPortUnavailableError",
        "ProviderUnavailableError",
        "SandboxError",
        "SandboxLimitError",
        "WorkspaceArchiveReadError",
        "WorkspaceArchiveWriteError",
        "WorkspaceLostError",
        "WorkspaceReadNotFoundError",
        "WorkspaceWriteTypeError",
    ),
    "sandstream.sandbox.manifest": ("Manifest",),
    "sandstream.sandbox._memory.freshness": (
        "MemoryGivenUpError",
        "MemoryStatus",
        "wait_for_memory",
    ),
    "sandstream.sandbox.sandbox_agent": ("SandboxAgent",),
    "sandstream.sandbox.snapshot": (
        "BusSnapshot",
        "BusSnapshotSpec",
        "LocalSnapshot",
        "LocalSnapshotSpec",
        "RemoteSnapshot",
        "RemoteSnapshotSpec",
        "SnapshotSpec",
        "resolve_snapshot",
    ),
    "sandstream.sandbox.types": (
        "ExecResult",
        "ExposedPortEndpoint",
        "FileMode",
        "Group",
        "Permissions",
        "User",
    ),
    "sandstream.sandbox.workspace_paths": (
        "SandboxPathGrant",
        "SandboxWorkspaceScope",
    ),
}
_EXPORTS = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'sandstream.sandbox' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})


__all__ = [*_EXPORTS]
