"""Submits tasks to a deployed agent, all at once or one by one, and waits for their ends.

python submitter.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import lab_desk

from sandstream.client import Client

_kept: list[Client] = []


async def opened() -> lab_desk.Handler:
    client = await Client.connect()
    _kept.append(client)

    async def one(number: int, request: dict[str, Any]) -> float:
        """When the run has ended, with the right result."""
        turns = request["turns"]
        input = f"{request.get('ask', 'Sum')} {number}, please."
        run = await client.submit("Adder", input, max_turns=max(10, turns))
        done = await client.wait(run)
        if done.status != "completed" or done.turns != turns:
            raise RuntimeError(f"wrong end: {done}")
        return time.perf_counter()

    async def in_turn(request: dict[str, Any]) -> dict[str, Any]:
        each_s: list[float] = []
        for number in range(request["runs"]):
            began = time.perf_counter()
            each_s.append(await one(number, request) - began)
        return {"wall_s": sum(each_s), "each_s": each_s}

    async def at_once(request: dict[str, Any]) -> dict[str, Any]:
        """All runs; with ``within_s`` those that end in this time are counted."""
        began = time.perf_counter()
        tasks = [asyncio.create_task(one(number, request)) for number in range(request["runs"])]
        done, late = await asyncio.wait(tasks, timeout=request.get("within_s"))
        wall_s = time.perf_counter() - began
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        ends = sorted(task.result() - began for task in done)
        half_s = ends[len(ends) // 2] if ends else wall_s
        return {"wall_s": wall_s, "ended": len(ends), "half_s": half_s}

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        return await (in_turn if request["do"] == "in_turn" else at_once)(request)

    return handle


lab_desk.serve(opened, sys.argv[2])
