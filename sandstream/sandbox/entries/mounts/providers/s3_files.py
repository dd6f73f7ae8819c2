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
    """``subpath`` is a directory of the file system."""

    type: Literal["s3_files_mount"] = "s3_files_mount"
    file_system_id: str
    subpath: str | None = None
    mount_target_ip: str | None = None
    access_point: str | None = None
    region: str | None = None
    extra_options: dict[str, str | None] = Field(default_factory=dict)

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        return (S3FilesMountPattern,)
