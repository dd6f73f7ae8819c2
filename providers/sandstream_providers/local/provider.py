"""The provider of sandboxes on this machine."""

from __future__ import annotations

from pathlib import Path

from sandstream_providers.addresses import Resolve, resolve_host
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.leases import Patience
from sandstream_providers.local.host import LocalHost
from sandstream_providers.local.machine import Isolation
from sandstream_providers.registry import ProviderSettings

OWN_IDLE_S = 15.0
"""How long an idle box of a program lives on when no process holds it."""


class LocalProvider(AgentProvider):
    """The boxes of a :class:`LocalHost`."""

    host: LocalHost

    def __init__(
        self,
        home: Path,
        *,
        isolation: Isolation = "required",
        resolve: Resolve = resolve_host,
        patience: Patience | None = None,
    ) -> None:
        """Args:
        home: The directory of the boxes. Several processes may use the same one.
        isolation: ``none`` runs commands as this user, with all its rights.
        resolve: Finds the addresses of hosts that repositories are cloned from.
        patience: How long a box waits for a process that holds it.
        """
        host = LocalHost(home, isolation=isolation, patience=patience)
        super().__init__(host, resolve=resolve)


def make_local(settings: ProviderSettings) -> LocalProvider:
    if settings.grace_s is not None:
        patience = Patience(idle_s=settings.grace_s, busy_s=settings.grace_s)
    else:
        patience = Patience(idle_s=OWN_IDLE_S) if settings.own else Patience()
    isolation: Isolation = "none" if settings.isolation == "none" else "required"
    return LocalProvider(settings.home, isolation=isolation, patience=patience)
