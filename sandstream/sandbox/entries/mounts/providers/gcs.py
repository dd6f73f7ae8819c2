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
    """A bucket of Google Cloud Storage.

    Uses a service account, a token, or an HMAC pair (``access_id``, ``secret_access_key``).
    """

    type: Literal["gcs_mount"] = "gcs_mount"
    bucket: str
    """The name of the bucket."""
    access_id: str | None = None
    """The id of an HMAC key."""
    secret_access_key: str | None = None
    """The secret of the HMAC key."""
    prefix: str | None = None
    """Mount only the objects whose names begin with this; ``None`` is all."""
    region: str | None = None
    """The region of the bucket; ``None`` leaves it to the program that mounts."""
    endpoint_url: str | None = None
    """The address of the service; ``None`` is Google's own."""
    service_account_file: str | None = None
    """The path of a service account's JSON file, in the sandbox."""
    service_account_credentials: str | None = None
    """The content of such a file, instead of its path. It is a secret."""
    access_token: str | None = None
    """An OAuth access token. It is a secret, and expires."""

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (
            RcloneMountPattern,
            MountpointMountPattern,
        )

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"mountpoint", "rclone"})
