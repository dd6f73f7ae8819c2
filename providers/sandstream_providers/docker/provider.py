"""The provider of sandboxes in containers."""

from __future__ import annotations

from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.host import DockerHost
from sandstream_providers.leases import Patience
from sandstream_providers.registry import ProviderSettings

OWN_IDLE_S = 15.0
"""How long an idle box of a program lives on when no process holds it."""


def make_docker(settings: ProviderSettings) -> DockerHost:
    """Nothing is connected yet: the first call does it."""
    if settings.grace_s is not None:
        patience = Patience(idle_s=settings.grace_s, busy_s=settings.grace_s)
    else:
        patience = Patience(idle_s=OWN_IDLE_S) if settings.own else Patience()
    return DockerHost(settings.home, Engine(settings.endpoint), patience=patience)
