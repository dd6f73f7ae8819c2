"""Agents that work together, on either side: the same program but for the import.

python compositions.py sandstream|agents asyncio|uvloop
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

import lab_desk

MODEL = "gpt-4.1"
SIDE = sys.argv[1]

if SIDE == "agents":
    from agents import Agent, RunConfig, Runner, RunState, SQLiteSession, function_tool
else:
    from sandstream import Agent, RunConfig, Runner, RunState, SQLiteSession, function_tool


def make_chain(handoffs: int) -> Any:
    """Agents that hand off one to the next; the first one."""
    following: list[Any] = []
    for number in range(handoffs, -1, -1):
        agent = Agent(
            name=f"Desk{number}",
            instructions="Answer, or hand off to the next lab_desk.",
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


def make_careful() -> Any:
    """An agent whose tool needs a person's agreement."""

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        return f"paid {amount}"

    tools: list[Any] = [pay]
    return Agent(name="Clerk", instructions="Pay what is due.", model=MODEL, tools=tools)


class Compositions:
    """Nothing here knows which of the two sides it is. A request names what is to be done, how
    often, and a pool of harnesses in other processes, if these are to do it.
    """

    def __init__(self) -> None:
        self._careful = make_careful()
        self._plain = Agent(name="Talker", instructions="Talk.", model=MODEL)
        self._chain = functools.cache(make_chain)
        self._orchestrator = functools.cache(make_orchestrator)

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        work = {
            "handoffs": self._handoffs,
            "fan_out": self._fan_out,
            "approval": self._approval,
            "conversation": self._conversation,
        }[request["do"]]
        pool = request.get("pool")
        config = RunConfig(harness_pool=pool) if pool else None
        began = time.perf_counter()
        parts = [
            await work(number, request.get("size", 1), config) for number in range(request["runs"])
        ]
        return {"wall_s": time.perf_counter() - began, "last_part_s": sum(parts)}

    # Each does one piece of work and returns the seconds of its last part, if it has parts.

    async def _handoffs(self, number: int, size: int, config: Any) -> float:
        agent = self._chain(size)
        result = await Runner.run(agent, f"Case {number}, please.", run_config=config)
        if result.final_output != "done" or result.last_agent.name != f"Desk{size}":
            raise RuntimeError(f"wrong result: {result}")
        return 0.0

    async def _fan_out(self, number: int, size: int, config: Any) -> float:
        agent = self._orchestrator(size)
        result = await Runner.run(agent, f"Ask all {size}, for case {number}.", run_config=config)
        items: list[Any] = list(result.new_items)
        outputs = [item.output for item in items if item.type == "tool_call_output_item"]
        if result.final_output != "done" or outputs != ["known"] * size:
            raise RuntimeError(f"wrong result: {result}")
        return 0.0

    async def _approval(self, number: int, size: int, config: Any) -> float:
        """To the question, through a text, and from the answer to the end."""
        agent = self._careful
        asked = await Runner.run(agent, f"Bill {number}, please.", run_config=config)
        text = asked.to_state().to_string()
        began = time.perf_counter()
        state = await RunState.from_string(agent, text)
        for item in state.get_interruptions():
            state.approve(item)
        result = await Runner.run(agent, state, run_config=config)
        took_s = time.perf_counter() - began
        if len(asked.interruptions) != 1 or result.final_output != "done":
            raise RuntimeError(f"wrong result: {asked} {result}")
        return took_s

    async def _conversation(self, number: int, size: int, config: Any) -> float:
        """So many turns of a conversation that a session in memory keeps."""
        session = SQLiteSession(f"bench-{time.time_ns()}")
        for turn in range(size):
            result = await Runner.run(
                self._plain, f"Message {turn}", session=session, run_config=config
            )
            if result.final_output != f"answer {turn}":
                raise RuntimeError(f"wrong result: {result}")
        if len(await session.get_items()) != 2 * size:
            raise RuntimeError("the session is not complete")
        session.close()
        return 0.0


async def opened() -> lab_desk.Handler:
    return Compositions()


lab_desk.serve(opened, sys.argv[2])
