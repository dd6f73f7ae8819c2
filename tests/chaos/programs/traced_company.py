"""A worker whose one run uses everything: ``python traced_company.py``. The chief calls twenty
agents at once and hands off to a smith, which works in a sandbox and needs an approval. Prints
``ready``, works until killed.
"""

from __future__ import annotations

import asyncio
from typing import Any

import forge

from sandstream import Agent, custom_span, function_tool
from sandstream._surface.connection import open_bus
from sandstream.sandbox import SandboxAgent
from sandstream.settings import Settings
from sandstream.worker import AgentWorker


@function_tool
def look_up(what: str) -> str:
    """Look something up, and measure a part of it."""
    with custom_span("read the shelf"):
        return f"found {what}"


@function_tool(needs_approval=True)
def refund(cents: int) -> str:
    """Pay back, if a person agrees."""
    return f"refunded {cents}"


leaf: Agent[Any] = Agent(name="leaf", model="gpt-test", tools=[look_up])
smith: SandboxAgent[Any] = SandboxAgent(name="smith", model="gpt-test", tools=[refund])
chief: Agent[Any] = Agent(
    name="chief",
    model="gpt-test",
    tools=[leaf.as_tool("ask_leaf", "Ask a leaf.")],
    handoffs=[smith],
)


async def main() -> None:
    opened = await open_bus(Settings.from_env(), name="traced-company")
    worker = AgentWorker(
        opened.bus, {"chief": chief}, pool="company", config=forge.config_of("end")
    )
    await worker.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
