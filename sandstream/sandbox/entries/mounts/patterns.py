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
    """Whether all users of the sandbox can use the mount."""
    log_type: str = "syslog"
    """Where blobfuse2 writes its log."""
    log_level: str = "log_debug"
    """How much it writes, such as ``log_warning``."""
    cache_type: Literal["block_cache", "file_cache"] = "block_cache"
    """Whether blocks or whole files are kept on the sandbox's disk."""
    cache_path: Path | None = None
    """The directory of the cache, relative to the root; ``None`` leaves it to the provider."""
    cache_size_mb: int | None = None
    """The size of the cache in megabytes; ``None`` is blobfuse2's default."""
    block_cache_block_size_mb: int = 16
    """The size of a block in megabytes, for ``block_cache``."""
    block_cache_disk_timeout_sec: int = 3600
    """How many seconds an unused block stays on disk."""
    file_cache_timeout_sec: int = 120
    """How many seconds an unused file stays on disk, for ``file_cache``."""
    file_cache_max_size_mb: int | None = None
    """The size of all cached files in megabytes; ``None`` is ``cache_size_mb``."""
    attr_cache_timeout_sec: int | None = None
    """How many seconds the attributes of a file are kept; ``None`` is blobfuse2's default."""
    entry_cache_timeout_sec: int | None = None
    """How many seconds the names of a directory are kept; ``None`` is blobfuse2's default."""
    negative_entry_cache_timeout_sec: int | None = None
    """How many seconds a missing name is remembered; ``None`` is blobfuse2's default."""

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
        """Options of mount-s3. A value of the mount itself wins."""

        prefix: str | None = None
        """Mount only the objects whose names begin with this."""
        region: str | None = None
        """The region of the bucket; ``None`` finds it out."""
        endpoint_url: str | None = None
        """The address of a compatible service; ``None`` is S3."""

    options: MountpointOptions = Field(default_factory=MountpointOptions)
    """Options of mount-s3."""


class S3FilesMountPattern(MountPatternBase):
    """mount.s3files, for S3 Files."""

    type: Literal["s3files"] = "s3files"

    @dataclass(frozen=True)
    class S3FilesOptions:
        """Options of mount.s3files. A value of the mount itself wins."""

        mount_target_ip: str | None = None
        """The address of the mount target; ``None`` finds it by name."""
        access_point: str | None = None
        """The id of the access point to mount through; ``None`` uses none."""
        region: str | None = None
        """The region of the file system; ``None`` finds it out."""
        extra_options: dict[str, str | None] = field(default_factory=dict)
        """Other options by name; ``None`` as a value means an option without one."""

    options: S3FilesOptions = Field(default_factory=S3FilesOptions)
    """Options of mount.s3files."""


class RcloneMountPattern(MountPatternBase):
    """rclone, for all but S3 Files."""

    type: Literal["rclone"] = "rclone"
    mode: Literal["fuse", "nfs"] = "fuse"
    """Whether rclone mounts by FUSE, or serves NFS that is then mounted."""
    remote_name: str | None = None
    """The name of the remote in rclone's configuration; ``None`` makes one."""
    extra_args: list[str] = Field(default_factory=list)
    """Further arguments of rclone."""
    nfs_addr: str | None = None
    """The address of rclone's NFS server, for ``nfs``; ``None`` is the default address."""
    nfs_mount_options: list[str] | None = None
    """Options of the NFS mount; ``None`` is the default ones."""
    config_file_path: Path | None = None
    """rclone's configuration file in the sandbox; ``None`` makes one."""


MountPattern = Annotated[
    FuseMountPattern | MountpointMountPattern | RcloneMountPattern | S3FilesMountPattern,
    Field(discriminator="type"),
]
