"""One replica of the memory actor with its harness, like `sandstream actor memory`, but with much
shorter waits: a phase is checked twice a second, a failed one is retried at once.
``python memory_actor.py harness``: the harness alone. Prints ``ready``, works until killed.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from sandstream_actors.harness.actor import Harness
from sandstream_actors.memory.actor import MemoryActor
from sandstream_workspaces.store import WorkspaceStore

from sandstream._run.memory_host import POOL, anywhere
from sandstream._surface.connection import open_bus
from sandstream.models.defaults import DefaultModels
from sandstream.settings import Settings


async def main(*, is_harness: bool) -> None:
    logging.basicConfig(level=logging.INFO)
    opened = await open_bus(Settings.from_env(), name="chaos-memory")
    bus = opened.bus
    harness = Harness(bus, DefaultModels(), pool=POOL, takes_tasks=False)
    actor = MemoryActor(
        bus, WorkspaceStore(bus), place=anywhere, pool=POOL, watch_s=0.5, backoff_s=(0.2,) * 5
    )
    await harness.start()
    if not is_harness:
        await actor.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(is_harness=sys.argv[1:] == ["harness"]))
