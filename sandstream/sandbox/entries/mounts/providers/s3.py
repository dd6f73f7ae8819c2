"""A bucket of S3, or of a compatible service."""

from __future__ import annotations

import builtins
from typing import Literal

from sandstream.sandbox.entries.mounts.base import Mount
from sandstream.sandbox.entries.mounts.patterns import (
    MountPatternBase,
    MountpointMountPattern,
    RcloneMountPattern,
)


class S3Mount(Mount):
    """A bucket of S3, or of a compatible service. Without keys, the bucket is read anonymously.

    Example:
        data = S3Mount(
            bucket="measurements",
            region="eu-central-1",
            mount_strategy=InContainerMountStrategy(pattern=MountpointMountPattern()),
        )
        manifest = Manifest(entries={"data": data})
    """

    type: Literal["s3_mount"] = "s3_mount"
    bucket: str
    """The name of the bucket."""
    access_key_id: str | None = None
    """The id of an access key."""
    secret_access_key: str | None = None
    """The secret of the access key."""
    session_token: str | None = None
    """The token of temporary keys."""
    prefix: str | None = None
    """Mount only the objects whose names begin with this; ``None`` is all."""
    region: str | None = None
    """The region of the bucket; ``None`` leaves it to the program that mounts."""
    endpoint_url: str | None = None
    """The address of a compatible service; ``None`` is S3."""
    s3_provider: str = "AWS"
    """The service, by its name for rclone."""

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (
            RcloneMountPattern,
            MountpointMountPattern,
        )

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"mountpoint", "rclone"})
