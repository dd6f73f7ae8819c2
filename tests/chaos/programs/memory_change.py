"""A person's change of a memory: ``python memory_change.py run|rollout|scope|undo SCOPE [ID]``.
Prints ``done``.
"""

from __future__ import annotations

import asyncio
import sys

from sandstream_actors.memory import changes

from sandstream._surface.connection import open_bus
from sandstream.settings import Settings


async def main(what: str, scope: str, id: str = "") -> None:
    opened = await open_bus(Settings.from_env(), name="chaos-person")
    bus = opened.bus
    match what:
        case "run":
            await changes.remove(bus, scope, runs=[id], by="me")
        case "rollout":
            await changes.remove(bus, scope, rollouts=[id], by="me")
        case "scope":
            await changes.delete_scope(bus, scope)
        case "undo":
            await changes.undo(bus, scope, int(id), "me")
    print("done", flush=True)


asyncio.run(main(*sys.argv[1:]))
