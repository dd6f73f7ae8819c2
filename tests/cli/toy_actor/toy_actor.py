"""An actor in a package of its own: writes one line for each run that ends."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from sandstream.actors import Actor, ActorEntry, Bus, Option, Received
from sandstream.events import RunDone

ENTRY = ActorEntry(
    name="toy",
    purpose="writes one line for each run that ends",
    make="toy_actor:make",
    options=(Option("--lines", "the file that gets the lines", metavar="FILE"),),
)


def make(bus: Bus, arguments: argparse.Namespace) -> Actor:
    actor = Actor("toy", bus=bus, max_in_flight=arguments.concurrency)
    file = Path(arguments.lines)

    @actor.on(RunDone)
    async def tell(event: RunDone, received: Received) -> None:
        await asyncio.to_thread(_append, file, f"{received.run} {event.status}\n")

    return actor


def _append(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(line)
