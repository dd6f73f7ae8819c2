"""Fills a log with runs that have ended: what one run of ten turns has written, under many ids.

python past_runs.py sandstream asyncio|uvloop
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import lab_desk
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.headers import CAUSE
from sandstream_bus.wire.subjects import RunId

from sandstream import Agent, Runner, function_tool
from sandstream._run.process import Process

_AT_ONCE = 256


@function_tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def opened() -> lab_desk.Handler:
    agent = Agent(name="past", instructions="Add.", model="scripted", tools=[add])
    result = await Runner.run(agent, "go", max_turns=30)
    process = await Process.of_this_loop()
    events = await process.bus.log.read(RunId(result.run_id))

    async def handle(request: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        first, count = request["first"], request["runs"]
        await _write(process, events, first, count)
        return {
            "wall_s": time.perf_counter() - began,
            "events": len(events) * count,
            "last": f"past-{first + count - 1}",
        }

    return handle


async def _write(process: Process, events: list[LogEvent], first: int, count: int) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        run, places = f"past-{number}", dict[str, str]()
        async with gate:
            for event in events:
                kind = event.subject.split(".", 3)[3]
                headers = {CAUSE: places.get(event.stored.headers.get(CAUSE, ""), "")}
                ack = await process.bus.connection.publish(
                    f"{process.bus.subjects.prefix}.run.{run}.{_idle(kind)}",
                    event.stored.data,
                    msg_id=f"{run}:{event.sequence}",
                    headers={name: value for name, value in headers.items() if value},
                )
                places[str(event.sequence)] = str(ack.seq)

    await asyncio.gather(*(one(number) for number in range(first, first + count)))


def _idle(kind: str) -> str:
    """The same subject for a pool that nobody serves: these runs are over."""
    head, dot, _ = kind.partition(".")
    return f"{head}.past" if dot and head in ("start", "turn", "call", "result") else kind


lab_desk.serve(opened, sys.argv[2])
