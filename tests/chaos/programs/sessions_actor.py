"""One replica of the sessions actor. Prints ``ready``, works until killed."""

from __future__ import annotations

import asyncio
import logging

from sandstream_actors.sessions.actor import SessionsActor

from sandstream._surface.connection import open_bus
from sandstream.settings import Settings


async def main() -> None:
    logging.basicConfig(level=logging.INFO)
    opened = await open_bus(Settings.from_env(), name="chaos-sessions")
    actor = SessionsActor(opened.bus)
    await actor.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
