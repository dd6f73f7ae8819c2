"""Submits tasks to a deployed agent, all at once, and waits for all of their ends.

python submitter.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import desk

from sandstream.client import Client

_kept: list[Client] = []


async def opened() -> desk.Handler:
    client = await Client.connect()
    _kept.append(client)

    async def one(number: int, turns: int) -> None:
        run = await client.submit("Adder", f"Sum {number}, please.")
        done = await client.wait(run)
        if done.status != "completed" or done.turns != turns:
            raise RuntimeError(f"wrong end: {done}")

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        await asyncio.gather(*(one(number, request["turns"]) for number in range(request["runs"])))
        return {"wall_s": time.perf_counter() - began}

    return handle


desk.serve(opened, sys.argv[2])
