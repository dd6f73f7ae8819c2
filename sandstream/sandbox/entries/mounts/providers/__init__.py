"""The services whose storage can be mounted."""

from __future__ import annotations

from sandstream.sandbox.entries.mounts.providers.azure_blob import AzureBlobMount
from sandstream.sandbox.entries.mounts.providers.box import BoxMount
from sandstream.sandbox.entries.mounts.providers.gcs import GCSMount
from sandstream.sandbox.entries.mounts.providers.r2 import R2Mount
from sandstream.sandbox.entries.mounts.providers.s3 import S3Mount
from sandstream.sandbox.entries.mounts.providers.s3_files import S3FilesMount

__all__ = ["AzureBlobMount", "BoxMount", "GCSMount", "R2Mount", "S3FilesMount", "S3Mount"]
