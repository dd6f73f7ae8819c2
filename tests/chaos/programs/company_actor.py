"""One replica: ``python company_actor.py harness|second|worker``. Prints ``ready``, works until
killed. A worker hosts both desks, each in its own pool.
"""

from __future__ import annotations

import asyncio
import sys

import company
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import preload

from sandstream._surface.connection import open_bus
from sandstream.models.defaults import DefaultModels
from sandstream.settings import Settings
from sandstream.worker import AgentWorker


async def main(kind: str) -> None:
    opened = await open_bus(Settings.from_env(), name=f"chaos-{kind}")
    bus = opened.bus
    if kind == "worker":
        back = AgentWorker(bus, company.BACK, pool="back", harness_pool="second")
        await back.start()
        await AgentWorker(bus, company.FRONT, pool="front").start()
    else:
        await preload()  # as `sandstream actor harness` does
        pool = "main" if kind == "harness" else kind
        await Harness(bus, DefaultModels(), pool=pool, takes_tasks=kind == "harness").start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
