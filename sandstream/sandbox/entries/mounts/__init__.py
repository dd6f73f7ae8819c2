"""External storage as entries: what to mount, and how."""

from __future__ import annotations

from sandstream.sandbox.entries.mounts.base import (
    DockerVolumeMountStrategy,
    InContainerMountStrategy,
    Mount,
    MountStrategy,
    MountStrategyBase,
)
from sandstream.sandbox.entries.mounts.patterns import (
    FuseMountPattern,
    MountPattern,
    MountPatternBase,
    MountpointMountPattern,
    RcloneMountPattern,
    S3FilesMountPattern,
)
from sandstream.sandbox.entries.mounts.providers import (
    AzureBlobMount,
    BoxMount,
    GCSMount,
    R2Mount,
    S3FilesMount,
    S3Mount,
)

__all__ = [
    "AzureBlobMount",
    "BoxMount",
    "DockerVolumeMountStrategy",
    "FuseMountPattern",
    "GCSMount",
    "InContainerMountStrategy",
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
]
