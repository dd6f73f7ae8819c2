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
    """A container of Azure Blob Storage.

    Authenticates with an account key, or the managed identity ``identity_client_id``.
    """

    type: Literal["azure_blob_mount"] = "azure_blob_mount"
    account: str
    """The name of the storage account."""
    container: str
    """The name of the container."""
    endpoint: str | None = None
    """The address of the service; ``None`` is Azure's own for the account."""
    identity_client_id: str | None = None
    """The client id of a managed identity, instead of a key."""
    account_key: str | None = None
    """A key of the storage account. It is a secret."""

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (
            RcloneMountPattern,
            FuseMountPattern,
        )

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"rclone"})
