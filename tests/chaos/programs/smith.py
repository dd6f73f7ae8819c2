"""One worker: ``python smith.py end|turn``. Its agent's sandbox is saved at the end of a run, or
after each turn. Prints ``ready``, works until killed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import forge

from sandstream._surface.connection import open_bus
from sandstream.sandbox.config import CheckpointWhen
from sandstream.settings import Settings
from sandstream.worker import AgentWorker


async def main(checkpoint: str) -> None:
    opened = await open_bus(Settings.from_env(), name="chaos-smith")
    name = f"smith-{checkpoint}"
    config = forge.config_of(cast(CheckpointWhen, checkpoint))
    worker = AgentWorker(opened.bus, {name: forge.smith_of(name)}, pool=name, config=config)
    await worker.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
