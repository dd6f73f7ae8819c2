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
    """A folder of Box.

    Without interactive login it needs a ``token`` or an ``access_token``.
    """

    type: Literal["box_mount"] = "box_mount"
    path: str | None = None
    """The folder to mount; ``None`` is the root."""
    client_id: str | None = None
    """The client id of your own Box app; ``None`` is rclone's."""
    client_secret: str | None = None
    """The secret of that app."""
    access_token: str | None = None
    """An access token. It is a secret, and expires."""
    token: str | None = None
    """An OAuth token as JSON, as rclone writes it; it can be renewed."""
    box_config_file: str | None = None
    """The path of a Box app's JSON file, in the sandbox."""
    config_credentials: str | None = None
    """The content of such a file, instead of its path. It is a secret."""
    box_sub_type: Literal["user", "enterprise"] = "user"
    """Whether the app acts as a user or as an enterprise."""
    root_folder_id: str | None = None
    """The id of the folder that counts as the root; ``None`` is the account's own root."""
    impersonate: str | None = None
    """The id of a user to act as, with a service account."""
    owned_by: str | None = None
    """Show only the items of the user with this login."""

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (RcloneMountPattern,)

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        return frozenset({"rclone"})
