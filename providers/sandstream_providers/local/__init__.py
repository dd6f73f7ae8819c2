"""Sandboxes on this machine: bubblewrap namespaces where they can be had."""

from __future__ import annotations

from sandstream_providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]
