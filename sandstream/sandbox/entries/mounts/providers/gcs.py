"""A bucket of Google Cloud Storage."""

from __future__ import annotations

import builtins
from typing import Literal

from sandstream.sandbox.entries.mounts.base import Mount
from sandstream.sandbox.entries.mounts.patterns import (
    MountPatternBase,
    MountpointMountPattern,
    RcloneMountPattern,
)


class GCSMount(Mount):
    """Uses a service account, a token, or an HMAC pair (``access_id``, ``secret_access_key``)."""

    type: Literal["gcs_mount"] = "gcs_mount"
    bucket: str
    access_id: str | None = None
    secret_access_key: str | None = None
    prefix: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    service_account_file: str | None = None
    service_account_credentials: str | None = None
    access_token: str | None = None

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (
            RcloneMountPattern,
            MountpointMountPattern,
        )

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"mountpoint", "rclone"})
