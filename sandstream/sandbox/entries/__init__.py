"""The entries of a workspace."""

from __future__ import annotations

from sandstream.sandbox.entries.artifacts import Dir, File, GitRepo, LocalDir, LocalFile
from sandstream.sandbox.entries.base import BaseEntry, resolve_workspace_path
from sandstream.sandbox.entries.mounts import (
    AzureBlobMount,
    BoxMount,
    DockerVolumeMountStrategy,
    FuseMountPattern,
    GCSMount,
    InContainerMountStrategy,
    Mount,
    MountPattern,
    MountPatternBase,
    MountpointMountPattern,
    MountStrategy,
    MountStrategyBase,
    R2Mount,
    RcloneMountPattern,
    S3FilesMount,
    S3FilesMountPattern,
    S3Mount,
)

__all__ = [
    "AzureBlobMount",
    "BaseEntry",
    "BoxMount",
    "Dir",
    "DockerVolumeMountStrategy",
    "File",
    "FuseMountPattern",
    "GCSMount",
    "GitRepo",
    "InContainerMountStrategy",
    "LocalDir",
    "LocalFile",
    "Mount",
    "MountPattern",
    "MountPatternBase",
    "MountStrategy",
    "MountStrategyBase",
    "MountpointMountPattern",
    "R2Mount",
    "RcloneMountPattern",
    "S3FilesMount",
    "S3FilesMountPattern",
    "S3Mount",
    "resolve_workspace_path",
]
