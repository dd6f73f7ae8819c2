"""A harness replica of the pool ``main`` in a process of its own.

What `sandstream actor harness` starts, but on the loop that is asked for: the command always takes
uvloop where it is installed, and both sides of a benchmark must have the same.

python harness.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import sys
from typing import Any

import lab_desk
from sandstream_actors.harness.actor import Harness
from sandstream_bus.nats.collector import tune_collector

from sandstream._surface.connection import open_bus
from sandstream.models.defaults import DefaultModels
from sandstream.settings import Settings

_kept: list[Any] = []


async def opened() -> lab_desk.Handler:
    tune_collector()
    bus = await open_bus(Settings.from_env(), name="bench-harness")
    harness = Harness(bus.bus, DefaultModels(), pool="main")
    await harness.start()
    _kept.extend((bus, harness))

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(request)

    return handle


lab_desk.serve(opened, sys.argv[2])
