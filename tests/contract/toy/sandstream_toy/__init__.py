"""A provider that another package brings along. Its boxes are made by ``host``, on first use."""

from __future__ import annotations

from sandstream_providers.registry import ProviderEntry

ENTRY = ProviderEntry(name="toy", factory="sandstream_toy.host:make")
