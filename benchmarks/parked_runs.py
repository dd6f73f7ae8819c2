"""(d) Waiting runs cost log entries, not memory: harness and server before and after parking.

The model answers 429 with a Retry-After of an hour, so each run ends in a durable timer. Memory is
read before, after the first half and after the second: a bounded cache shows in the first half, a
leak in both.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
import processes
from figures import Figure, Series
from lab import Lab
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import AgentRegistered, Task

from sandstream import Agent, RunConfig
from sandstream._surface.connection import open_bus
from sandstream._wire.compile import compile_graph
from sandstream.settings import Settings
from sandstream.testing import Script, error, script_for, text


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    script = Script(
        conversations=(script_for("park", [error(429, retry_after=3600).forever()]),),
        default=script_for("", [text("done").forever()]),
    )
    base_url = lab.model(script)
    home = lab.home()
    harness = lab.start("harness", "sandstream", base_url=base_url, home=home)
    harness.wait_ready()
    server = lab.server_pids(home)[0]
    settings = Settings.from_env(lab.environment(base_url, home))
    half = 250 if quick else 1000
    readings = asyncio.run(_park(settings, half, harness.pid, server))
    lab.close_programs()
    figures: list[Figure] = []
    for index, process in enumerate(("harness", "nats-server")):
        before, first, second = (reading[index] for reading in readings)
        for what, kb, most in (
            (f"first {half}", (first - before) * 1024 / half, None),
            (f"next {half}", (second - first) * 1024 / half, 1.0 if index == 0 else None),
        ):
            figures.append(
                Figure(
                    benchmark="parked_runs",
                    measure=f"{process}, growth per parked run, {what}",
                    unit="KB",
                    ours=Series(process, [kb]),
                    wanted_at_most=most,
                )
            )
        figures.append(
            Figure(
                benchmark="parked_runs",
                measure=f"{process}, memory after {2 * half} against before",
                unit="MB",
                ours=Series("after", [second]),
                baseline=Series("before", [before]),
            )
        )
    return figures


async def _park(
    settings: Settings, half: int, harness: int, server: int
) -> list[tuple[float, float]]:
    async with await open_bus(settings, name="bench-parked") as bus:
        graph = compile_graph(Agent(name="Waiter", model="gpt-4.1"), RunConfig(), host="nobody")
        await bus.agents.register(AgentRegistered(graph=graph), instance="bench")
        await _submit(bus, "finish", half)  # the same number of runs that end, as a reference
        readings = [(processes.rss_mb(harness), processes.rss_mb(server))]
        for part in ("park a", "park b"):
            await _submit(bus, part, half)
            readings.append((processes.rss_mb(harness), processes.rss_mb(server)))
    return readings


async def _submit(bus: Bus, what: str, count: int) -> None:
    """Publish tasks and wait until the harness has processed all of them."""
    subject = bus.subjects.task("Waiter")
    for start in range(0, count, 50):
        await asyncio.gather(
            *(
                bus.connection.publish(
                    subject,
                    msgspec.json.encode(Task(input=f"{what} {number}")),
                    msg_id=f"{what}-{number}",
                )
                for number in range(start, min(start + 50, count))
            )
        )
    deadline = time.monotonic() + 60
    quiet = 0
    while quiet < 3:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the harness is still busy with {what!r}")
        await asyncio.sleep(0.1)
        info = await bus.topology.consumer_info(bus.connection, "harness-main")
        assert info is not None
        idle = info["num_pending"] == 0 and info["num_ack_pending"] == 0
        quiet = quiet + 1 if idle else 0
