"""What every step of the memory actor works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sandstream_bus.bus import Bus
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.tracing.secret_patterns import scrub as scrub_secrets

Place = Callable[[], Awaitable[tuple[str, str]]]
"""Which provider, and which of its nodes (empty: any), has the workspace of a consolidation."""
BACKOFF_S: Final = (5.0, 30.0, 120.0)
"""How long the tries of a phase are apart; one more try than there are pauses."""


@dataclass(frozen=True)
class Means:
    bus: Bus
    store: WorkspaceStore
    place: Place
    pool: str
    """The harness pool for phases whose own one is gone."""
    watch_s: float
    """How often somebody looks whether a phase under way is still worked on."""
    backoff_s: tuple[float, ...] = BACKOFF_S

    @property
    def attempts(self) -> int:
        """How often a phase is tried before it waits for a person."""
        return len(self.backoff_s) + 1

    def scrub(self, text: str) -> str:
        """The text without secrets: what a model or a file is given."""
        return scrub_secrets(text)
