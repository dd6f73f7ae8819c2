"""The programs that mount inside a sandbox, and their settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from sandstream.sandbox.errors import MountConfigError
from sandstream.sandbox.workspace_paths import coerce_posix_path, windows_absolute_path


class MountPatternBase(BaseModel):
    """Base of patterns."""


class FuseMountPattern(MountPatternBase):
    """blobfuse2, for Azure."""

    type: Literal["fuse"] = "fuse"
    allow_other: bool = True
    log_type: str = "syslog"
    log_level: str = "log_debug"
    cache_type: Literal["block_cache", "file_cache"] = "block_cache"
    cache_path: Path | None = None
    cache_size_mb: int | None = None
    block_cache_block_size_mb: int = 16
    block_cache_disk_timeout_sec: int = 3600
    file_cache_timeout_sec: int = 120
    file_cache_max_size_mb: int | None = None
    attr_cache_timeout_sec: int | None = None
    entry_cache_timeout_sec: int | None = None
    negative_entry_cache_timeout_sec: int | None = None

    def model_post_init(self, context: object, /) -> None:
        if self.cache_path is None:
            return
        path = coerce_posix_path(self.cache_path)
        windows = windows_absolute_path(self.cache_path)
        if windows is not None or path.is_absolute() or ".." in path.parts:
            shown = path if windows is None else windows
            raise MountConfigError(
                message=f"cache_path must lie in the workspace, relative to its root: {shown}",
                context={"cache_path": shown.as_posix()},
            )


class MountpointMountPattern(MountPatternBase):
    """mount-s3, for S3 and compatible services."""

    type: Literal["mountpoint"] = "mountpoint"

    @dataclass(frozen=True)
    class MountpointOptions:
        prefix: str | None = None
        region: str | None = None
        endpoint_url: str | None = None

    options: MountpointOptions = Field(default_factory=MountpointOptions)


class S3FilesMountPattern(MountPatternBase):
    """mount.s3files, for S3 Files."""

    type: Literal["s3files"] = "s3files"

    @dataclass(frozen=True)
    class S3FilesOptions:
        mount_target_ip: str | None = None
        access_point: str | None = None
        region: str | None = None
        extra_options: dict[str, str | None] = field(default_factory=dict)

    options: S3FilesOptions = Field(default_factory=S3FilesOptions)


class RcloneMountPattern(MountPatternBase):
    """rclone, for all but S3 Files."""

    type: Literal["rclone"] = "rclone"
    mode: Literal["fuse", "nfs"] = "fuse"
    remote_name: str | None = None
    extra_args: list[str] = Field(default_factory=list)
    nfs_addr: str | None = None
    nfs_mount_options: list[str] | None = None
    config_file_path: Path | None = None


MountPattern = Annotated[
    FuseMountPattern | MountpointMountPattern | RcloneMountPattern | S3FilesMountPattern,
    Field(discriminator="type"),
]
