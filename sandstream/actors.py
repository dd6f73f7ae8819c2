"""For packages that add an actor to ``sandstream actor``: see "Write an actor" in docs/guide.md."""

from __future__ import annotations

from sandstream_actors.base import Actor, Received
from sandstream_actors.registry import ActorEntry, Option
from sandstream_bus.bus import Bus

__all__ = ["Actor", "ActorEntry", "Bus", "Option", "Received"]
