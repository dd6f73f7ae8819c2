"""A folder of Box."""

from __future__ import annotations

import builtins
from typing import Literal

from sandstream.sandbox.entries.mounts.base import Mount
from sandstream.sandbox.entries.mounts.patterns import (
    MountPatternBase,
    RcloneMountPattern,
)


class BoxMount(Mount):
    """Without interactive login it needs a ``token`` or an ``access_token``."""

    type: Literal["box_mount"] = "box_mount"
    path: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    access_token: str | None = None
    token: str | None = None
    box_config_file: str | None = None
    config_credentials: str | None = None
    box_sub_type: Literal["user", "enterprise"] = "user"
    root_folder_id: str | None = None
    impersonate: str | None = None
    owned_by: str | None = None

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (RcloneMountPattern,)

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"rclone"})
