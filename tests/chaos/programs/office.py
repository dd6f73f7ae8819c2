"""One worker that hosts all agents: ``python office.py <scope>``. The agents of both desks of the
company, and a scribe that works in a sandbox and is remembered in this scope. Prints ``ready``,
works until killed.
"""

from __future__ import annotations

import asyncio
import sys

import company
import forge

from sandstream._surface.connection import open_bus
from sandstream.settings import Settings
from sandstream.worker import AgentWorker


async def main(scope: str) -> None:
    opened = await open_bus(Settings.from_env(), name="chaos-office")
    scribe = forge.scribe_of("scribe", scope)
    config = forge.config_of("end")
    await AgentWorker(opened.bus, company.BACK | company.FRONT, pool="office").start()
    await AgentWorker(opened.bus, {scribe.name: scribe}, pool="scribes", config=config).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
