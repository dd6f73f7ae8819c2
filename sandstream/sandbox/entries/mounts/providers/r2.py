"""A bucket of Cloudflare R2."""

from __future__ import annotations

import builtins
from typing import Literal

from sandstream.sandbox.entries.mounts.base import Mount
from sandstream.sandbox.entries.mounts.patterns import (
    MountPatternBase,
    RcloneMountPattern,
)
from sandstream.sandbox.errors import MountConfigError


class R2Mount(Mount):
    """A bucket of Cloudflare R2. Needs both keys or neither."""

    type: Literal["r2_mount"] = "r2_mount"
    bucket: str
    """The name of the bucket."""
    account_id: str
    """The id of the Cloudflare account, which is part of the address."""
    access_key_id: str | None = None
    """The id of an access key."""
    secret_access_key: str | None = None
    """The secret of the access key."""
    custom_domain: str | None = None
    """The address of the service; ``None`` is Cloudflare's own for the account."""

    def check_credentials(self) -> None:
        """Raise if one key is given without the other."""
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise MountConfigError(
                message="r2_mount needs access_key_id and secret_access_key together, or neither",
                context={"type": self.type},
            )

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (RcloneMountPattern,)

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"rclone"})
