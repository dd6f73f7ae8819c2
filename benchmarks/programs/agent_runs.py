"""Runs of one small agent, on either side: the same program but for the import.

    python agent_runs.py sandstream|agents|openai asyncio|uvloop

``openai`` is the bare client, for the time to the first token.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import lab_desk

MODEL = "gpt-4.1"
SIDE = sys.argv[1]

if SIDE == "agents":
    from agents import Agent, RunConfig, Runner, function_tool
elif SIDE == "sandstream":
    from sandstream import Agent, RunConfig, Runner, function_tool
else:
    from openai import AsyncOpenAI


def make_agent() -> Any:
    @function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a + b

    return Agent(name="Adder", instructions="Add what you are asked to.", model=MODEL, tools=[add])


class AgentSide:
    """What a program of the Agents SDK does; nothing here knows which of the two it is."""

    def __init__(self) -> None:
        self._agent = make_agent()

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.pop("do"):
            case "in_turn":
                return await self._in_turn(**request)
            case "at_once":
                return await self._at_once(**request)
            case "stream":
                return await self._streams(**request)
            case other:
                raise ValueError(other)

    async def _in_turn(self, runs: int, turns: int, ask: str = "Sum") -> dict[str, Any]:
        each_s: list[float] = []
        for number in range(runs):
            began = time.perf_counter()
            await self._run(f"{ask} {number}, please.", turns, None)
            each_s.append(time.perf_counter() - began)
        return {"wall_s": sum(each_s), "each_s": each_s}

    async def _at_once(
        self, runs: int, turns: int, pool: str | None = None, within_s: float | None = None
    ) -> dict[str, Any]:
        """All runs; with ``within_s`` those that end in this time are counted."""
        config = RunConfig(harness_pool=pool) if pool else None
        began = time.perf_counter()
        ends: list[float] = []

        async def one(number: int) -> None:
            await self._run(f"Sum {number}, please.", turns, config)
            ends.append(time.perf_counter() - began)

        tasks = [asyncio.create_task(one(number)) for number in range(runs)]
        done, late = await asyncio.wait(tasks, timeout=within_s)
        wall_s = time.perf_counter() - began
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in done:
            task.result()
        half_s = ends[len(done) // 2] if done else wall_s
        return {"wall_s": wall_s, "ended": len(done), "half_s": half_s}

    async def _run(self, input: str, turns: int, config: Any) -> None:
        result = await Runner.run(self._agent, input, run_config=config, max_turns=max(10, turns))
        if result.final_output != "done" or len(result.raw_responses) != turns:
            raise RuntimeError(f"wrong result: {result}")

    async def _streams(self, runs: int, input: str) -> dict[str, Any]:
        return {"first_token_s": [await self._stream(input) for _ in range(runs)]}

    async def _stream(self, input: str) -> float:
        began = time.perf_counter()
        first = 0.0
        result = Runner.run_streamed(self._agent, input)
        async for event in result.stream_events():
            if first or event.type != "raw_response_event":
                continue
            if event.data.type == "response.output_text.delta":
                first = time.perf_counter() - began
        return first


class BareSide:
    """The vendor's client alone."""

    def __init__(self) -> None:
        self._client = AsyncOpenAI()

    async def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        seconds = [await self._stream(request["input"]) for _ in range(request["runs"])]
        return {"first_token_s": seconds}

    async def _stream(self, input: str) -> float:
        began = time.perf_counter()
        first = 0.0
        async for event in await self._client.responses.create(
            model=MODEL, input=input, instructions="Add what you are asked to.", stream=True
        ):
            if event.type == "response.output_text.delta" and not first:
                first = time.perf_counter() - began
        return first


async def opened() -> lab_desk.Handler:
    return BareSide() if SIDE == "openai" else AgentSide()


lab_desk.serve(opened, sys.argv[2])
