"""A replica of the sessions actor in a process of its own, on the loop that is asked for. Asked to,
it collects its garbage.

python measured_sessions_actor.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import lab_desk
from sandstream_actors.sessions.actor import SessionsActor
from sandstream_bus.nats.collector import tune_collector

from sandstream._surface.connection import open_bus
from sandstream.settings import Settings

_kept: list[Any] = []


async def opened() -> lab_desk.Handler:
    tune_collector()
    bus = await open_bus(Settings.from_env(), name="bench-sessions")
    actor = SessionsActor(bus.bus)
    await actor.start()
    _kept.extend((bus, actor))

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        """Collect garbage, which the patient collector leaves for later: a leak stays."""
        return {"collected": gc.collect()}

    return handle


lab_desk.serve(opened, sys.argv[2])
