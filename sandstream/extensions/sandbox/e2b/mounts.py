"""How a cloud bucket is mounted in a sandbox at E2B."""

from __future__ import annotations

from typing import Literal

from sandstream.sandbox.entries.mounts.base import (
    InContainerMountStrategy,
    Mount,
    MountStrategyBase,
)
from sandstream.sandbox.entries.mounts.patterns import RcloneMountPattern

__all__ = ["E2BCloudBucketMountStrategy"]


class E2BCloudBucketMountStrategy(MountStrategyBase):
    """Mounted by rclone in the sandbox. Providers refuse mounts so far: the class exists for
    manifests that were written for the Agents SDK.

    Example:
        S3Mount(bucket="data", mount_strategy=E2BCloudBucketMountStrategy())
    """

    type: Literal["e2b_cloud_bucket"] = "e2b_cloud_bucket"
    pattern: RcloneMountPattern = RcloneMountPattern(mode="fuse")
    """How rclone is started."""

    def validate_mount(self, mount: Mount) -> None:
        InContainerMountStrategy(pattern=self.pattern).validate_mount(mount)
