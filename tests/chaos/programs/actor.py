"""One replica: ``python actor.py harness|worker``. Prints ``ready``, works until killed."""

from __future__ import annotations

import asyncio
import sys

import desk
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import preload

from sandstream._surface.connection import open_bus
from sandstream.models.defaults import DefaultModels
from sandstream.settings import Settings
from sandstream.worker import AgentWorker


async def main(kind: str) -> None:
    opened = await open_bus(Settings.from_env(), name=f"chaos-{kind}")
    actor: Harness | AgentWorker
    if kind == "harness":
        await preload()  # as `sandstream actor harness` does
        actor = Harness(opened.bus, DefaultModels(), pool="main")
    else:
        actor = AgentWorker(opened.bus, {desk.clerk.name: desk.clerk}, pool="desk")
    await actor.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
