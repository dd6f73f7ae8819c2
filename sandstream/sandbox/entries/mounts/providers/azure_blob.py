"""A container of Azure Blob Storage."""

from __future__ import annotations

import builtins
from typing import Literal

from sandstream.sandbox.entries.mounts.base import Mount
from sandstream.sandbox.entries.mounts.patterns import (
    FuseMountPattern,
    MountPatternBase,
    RcloneMountPattern,
)


class AzureBlobMount(Mount):
    """Authenticates with an account key, or the managed identity ``identity_client_id``."""

    type: Literal["azure_blob_mount"] = "azure_blob_mount"
    account: str
    container: str
    endpoint: str | None = None
    identity_client_id: str | None = None
    account_key: str | None = None

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (
            RcloneMountPattern,
            FuseMountPattern,
        )

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"rclone"})
