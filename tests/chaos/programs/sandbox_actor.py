"""One replica of the sandbox actor: ``python sandbox_actor.py <node> <grace>``. Each node has its
own home; boxes at a vendor are on one node for all. ``CHAOS_PROVIDER`` names the provider. The
actor checks other nodes and unneeded boxes much more often than usual, and removes such boxes after
``grace`` seconds. Prints ``ready``, works until killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_providers import registry

from sandstream._run.sandbox_host import make_provider, node_name
from sandstream._surface.connection import open_bus
from sandstream.settings import Settings


async def main(node: str, grace_s: float) -> None:
    logging.basicConfig(level=logging.INFO)
    settings = Settings.from_env()
    home = settings.home / f"node-{node}"
    opened = await open_bus(settings, name="chaos-sandbox")
    provider = os.environ.get("CHAOS_PROVIDER", "local")
    owns_boxes = registry.find(provider).owns_boxes
    actor = SandboxActor(
        opened.bus,
        make_provider(provider, home),
        node=node_name(home) if owns_boxes else "shared",
        owns_boxes=owns_boxes,
        reap_every_s=float(os.environ.get("CHAOS_REAP_S", "0.5")),
        reap_grace_s=grace_s,
        watch_every_s=float(os.environ.get("CHAOS_WATCH_S", "0.3")),
    )
    await actor.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
