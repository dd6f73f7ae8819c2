"""The agents of the demo, served by `sandstream worker examples/demo_app.py`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from sandstream import Agent, function_tool
from sandstream.sandbox import File, Manifest, SandboxAgent


@function_tool
async def weather(place: str) -> str:
    """The weather at a place tomorrow."""
    await asyncio.sleep(0.3)
    return "clear, -6 °C, light wind"


@function_tool
async def trail(start: str, end: str) -> str:
    """How far it is from one place to another on foot."""
    await asyncio.sleep(0.6)
    return "14 km, 5 hours"


@function_tool
def book_hut(place: str) -> str:
    """Book a bed in the hut at a place. This costs money."""
    with Path(os.environ["DEMO_LEDGER"]).open("a") as ledger:
        ledger.write(f"booked {place}\n")
    return "booked, 40 EUR"


guide = Agent(
    name="guide",
    instructions="You plan walks. Look things up before you answer.",
    tools=[weather, trail, book_hut],
)

surveyor = SandboxAgent(
    name="surveyor",
    instructions="You compute from the tracks in your workspace, with commands.",
    default_manifest=Manifest(
        entries={"track.csv": File(content=b"Alta,0\nridge,410\nlake,90\nBergset,140\n")}
    ),
)
