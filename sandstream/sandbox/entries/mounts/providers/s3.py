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
    """Without keys, the bucket is read anonymously."""

    type: Literal["s3_mount"] = "s3_mount"
    bucket: str
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    prefix: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    s3_provider: str = "AWS"

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (
            RcloneMountPattern,
            MountpointMountPattern,
        )

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"mountpoint", "rclone"})
