"""One memory actor, whose harness and sandboxes are elsewhere: ``python lone_memory_actor.py``. It
uses shorter waits than usual. Prints ``ready``, works until killed.
"""

from __future__ import annotations

import asyncio

from sandstream_actors.memory.actor import MemoryActor
from sandstream_workspaces.store import WorkspaceStore

from sandstream._run.memory_host import anywhere
from sandstream._surface.connection import open_bus
from sandstream.settings import Settings


async def main() -> None:
    opened = await open_bus(Settings.from_env(), name="chaos-memory")
    store = WorkspaceStore(opened.bus)
    actor = MemoryActor(opened.bus, store, place=anywhere, watch_s=2.0, backoff_s=(0.1, 0.1, 0.1))
    await actor.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
