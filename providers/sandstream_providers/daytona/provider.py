"""The provider of sandboxes at Daytona."""

from __future__ import annotations

from sandstream_providers.box_host import BoxHost
from sandstream_providers.daytona.account import account_of
from sandstream_providers.daytona.vendor import DaytonaVendor
from sandstream_providers.registry import ProviderSettings


def make_daytona(settings: ProviderSettings) -> BoxHost:
    """Nothing is connected yet: the first call does it."""
    from sandstream_providers.hosted.host import HostedHost

    return HostedHost(DaytonaVendor(account_of(settings.endpoint, settings.api_key)))
