"""Where the traces of an installation are stored on this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sandstream_bus.bus import Bus


async def installation_of(bus: Bus) -> str:
    """A short name, unique to the installation, even if it is later recreated in the same place."""
    created = await bus.topology.created(bus.connection, bus.topology.log)
    return hashlib.sha256(f"{created}{bus.subjects.prefix}".encode()).hexdigest()[:12]


def store_path(home: Path, installation: str) -> Path:
    return home / "traces" / f"{installation}.db"
