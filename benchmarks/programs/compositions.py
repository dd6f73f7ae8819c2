"""Agents that work together, on either side: the same program but for the import.

python compositions.py sandstream|agents asyncio|uvloop
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

import desk

MODEL = "gpt-4.1"
SIDE = sys.argv[1]

if SIDE == "sandstream":
    from sandstream import Agent, RunConfig, Runner
else:
    from agents import Agent, RunConfig, Runner


def make_chain(handoffs: int) -> Any:
    """Agents that hand off one to the next; the first one."""
    following: list[Any] = []
    for number in range(handoffs, -1, -1):
        agent = Agent(
            name=f"Desk{number}",
            instructions="Answer, or hand off to the next desk.",
            model=MODEL,
            handoffs=following,
        )
        following = [agent]
    return following[0]


def make_orchestrator(children: int) -> Any:
    """An agent with so many others as its tools."""
    experts = [
        Agent(name=f"Expert{number}", instructions=f"You know all about {number}.", model=MODEL)
        for number in range(children)
    ]
    return Agent(
        name="Orchestrator",
        instructions="Ask the experts, then answer.",
        model=MODEL,
        tools=[
            expert.as_tool(f"ask_{number}", f"Ask the expert for {number}.")
            for number, expert in enumerate(experts)
        ],
    )


class Compositions:
    """Nothing here knows which of the two sides it is. A request names what is to be done, how
    often, and a pool of harnesses in other processes, if these are to do it.
    """

    def __init__(self) -> None:
        self._chain = functools.cache(make_chain)
        self._orchestrator = functools.cache(make_orchestrator)

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        work = {"handoffs": self._handoffs, "fan_out": self._fan_out}[request["do"]]
        pool = request.get("pool")
        config = RunConfig(harness_pool=pool) if pool else None
        began = time.perf_counter()
        for number in range(request["runs"]):
            await work(number, request["size"], config)
        return {"wall_s": time.perf_counter() - began}

    async def _handoffs(self, number: int, size: int, config: Any) -> None:
        agent = self._chain(size)
        result = await Runner.run(agent, f"Case {number}, please.", run_config=config)
        if result.final_output != "done" or len(result.raw_responses) != size + 1:
            raise RuntimeError(f"wrong result: {result}")

    async def _fan_out(self, number: int, size: int, config: Any) -> None:
        agent = self._orchestrator(size)
        result = await Runner.run(agent, f"Ask all {size}, for case {number}.", run_config=config)
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        if result.final_output != "done" or outputs != ["known"] * size:
            raise RuntimeError(f"wrong result: {result}")


async def opened() -> desk.Handler:
    return Compositions()


desk.serve(opened, sys.argv[2])
