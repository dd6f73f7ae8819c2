"""A worker in a process of its own: offers the small agent of ``agent_runs``, hosts its tool.

What `sandstream worker` starts, but on the loop that is asked for.

python worker.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import sys
from typing import Any

import lab_desk

from sandstream import Agent, function_tool
from sandstream._surface.connection import open_bus
from sandstream.settings import Settings
from sandstream.worker import AgentWorker

_kept: list[Any] = []


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


async def opened() -> lab_desk.Handler:
    bus = await open_bus(Settings.from_env(), name="bench-worker")
    agent = Agent(
        name="Adder", instructions="Add what you are asked to.", model="gpt-4.1", tools=[add]
    )
    worker = AgentWorker(bus.bus, {agent.name: agent}, pool="bench")
    await worker.start()
    _kept.extend((bus, worker))

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(request)

    return handle


lab_desk.serve(opened, sys.argv[2])
