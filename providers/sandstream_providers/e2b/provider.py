"""The provider of sandboxes at E2B."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandstream_providers.e2b.account import account_of
from sandstream_providers.e2b.vendor import E2BVendor

if TYPE_CHECKING:
    from sandstream_providers.hosted.host import HostedHost
    from sandstream_providers.registry import ProviderSettings


def make_e2b(settings: ProviderSettings) -> HostedHost:
    """Nothing is connected and the SDK is not imported yet: the first call does it."""
    from sandstream_providers.hosted.host import HostedHost

    return HostedHost(E2BVendor(account_of(settings.endpoint, settings.api_key)))
