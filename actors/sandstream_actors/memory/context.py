"""The dependencies and settings that every step of the memory actor shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sandstream_bus.bus import Bus
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.secrets.patterns import scrub as scrub_secrets

Place = Callable[[], Awaitable[tuple[str, str]]]
"""Returns the provider and node (empty: any) for the workspace of a consolidation."""
BACKOFF_S: Final = (5.0, 30.0, 120.0)
"""The pauses between attempts of a phase; there is one more attempt than pauses."""


@dataclass(frozen=True)
class Means:
    bus: Bus
    store: WorkspaceStore
    place: Place
    pool: str
    """The harness pool for phases whose original pool is gone."""
    watch_s: float
    """How often to check that a running phase is still being worked on."""
    backoff_s: tuple[float, ...] = BACKOFF_S

    @property
    def attempts(self) -> int:
        """How many attempts a phase gets before it waits for a person."""
        return len(self.backoff_s) + 1

    def scrub(self, text: str) -> str:
        """Remove secrets from a text before a model or a file receives it."""
        return scrub_secrets(text)
