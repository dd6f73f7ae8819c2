"""A file system of Amazon S3 Files, which must exist and be reachable."""

from __future__ import annotations

import builtins
from typing import Literal

from pydantic import Field

from sandstream.sandbox.entries.mounts.base import Mount
from sandstream.sandbox.entries.mounts.patterns import (
    MountPatternBase,
    S3FilesMountPattern,
)


class S3FilesMount(Mount):
    """A file system of Amazon S3 Files."""

    type: Literal["s3_files_mount"] = "s3_files_mount"
    file_system_id: str
    """The id of the file system."""
    subpath: str | None = None
    """The directory of the file system to mount; ``None`` is its root."""
    mount_target_ip: str | None = None
    """The address of the mount target; ``None`` finds it by name."""
    access_point: str | None = None
    """The id of the access point to mount through; ``None`` uses none."""
    region: str | None = None
    """The region of the file system; ``None`` finds it out."""
    extra_options: dict[str, str | None] = Field(default_factory=dict)
    """Other options of the mount by name; ``None`` as a value means an option without one."""

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (S3FilesMountPattern,)
