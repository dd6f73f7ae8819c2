"""(e) Runs that wait for an approval cost log entries, not memory; approving them resumes all.

Each run requests a tool that needs approval and stays there. The memory of harness and server is
read before, after the first half and after the second: a bounded cache shows in the first half, a
leak in both. Then all are approved at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import processes
from figures import Figure, Series
from lab import Lab

from sandstream import Agent, function_tool
from sandstream.client import Client
from sandstream.settings import Settings
from sandstream.testing import Script, script_for, text, tool_call
from sandstream.worker import AgentWorker

_AT_ONCE = 50


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay, if a person agrees."""
    return f"paid {amount}"


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    asks = script_for("park", [tool_call("pay", {"amount": 7}), text("done")])
    default = script_for("", [text("done").forever()])
    base_url = lab.model(Script(conversations=(asks,), default=default))
    home = lab.home()
    harness = lab.start("harness", "sandstream", base_url=base_url, home=home)
    harness.wait_ready()
    pids = {"harness": harness.pid, "nats-server": lab.server_pids(home)[0]}
    half = 125 if quick else 500
    settings = Settings.from_env(lab.environment(base_url, home))
    readings, took_s = asyncio.run(_park(settings, half, list(pids.values())))
    lab.close_programs()
    figures = [
        figure
        for index, process in enumerate(pids)
        for figure in _memory(process, half, [reading[index] for reading in readings])
    ]
    figures.append(
        Figure(
            benchmark="parked_approvals",
            measure=f"{2 * half} parked runs, from the first approval to the last end",
            unit="s",
            ours=Series("sandstream", [took_s]),
        )
    )
    return figures


def _memory(process: str, half: int, readings: list[float]) -> Iterator[Figure]:
    before, first, second, after = readings
    for what, kb, most in (
        (f"first {half}", (first - before) * 1024 / half, None),
        (f"next {half}", (second - first) * 1024 / half, 1.0 if process == "harness" else None),
    ):
        yield Figure(
            benchmark="parked_approvals",
            measure=f"{process}, growth per run that waits for a person, {what}",
            unit="KB",
            ours=Series(process, [kb]),
            wanted_at_most=most,
        )
    yield Figure(
        benchmark="parked_approvals",
        measure=f"{process}, memory with {2 * half} waiting runs against before",
        unit="MB",
        ours=Series("waiting", [second]),
        baseline=Series("before", [before]),
    )
    yield Figure(
        benchmark="parked_approvals",
        measure=f"{process}, memory after they were approved against before",
        unit="MB",
        ours=Series("approved", [after]),
        baseline=Series("before", [before]),
    )


async def _park(
    settings: Settings, half: int, pids: list[int]
) -> tuple[list[tuple[float, ...]], float]:
    """The readings, and the time from the first approval to the last end."""
    async with _desk(settings) as client:

        def read() -> tuple[float, ...]:
            return tuple(map(processes.rss_mb, pids))

        ended = [f"finish-{number}" for number in range(half)]
        await _submit(client, ended)  # the same number of runs that end, as a reference
        await _wait_for(client, ended)
        readings = [read()]
        parked: list[str] = []
        for part in ("a", "b"):
            keys = [f"park-{part}-{number}" for number in range(half)]
            await _submit(client, keys)
            parked += keys
            await _until_parked(client, len(parked))
            readings.append(read())
        began = time.monotonic()
        for start in range(0, len(parked), _AT_ONCE):
            some = parked[start : start + _AT_ONCE]
            await asyncio.gather(*(client.approve(key, by="bench") for key in some))
        await _wait_for(client, parked)
        took_s = time.monotonic() - began
        return [*readings, read()], took_s


@asynccontextmanager
async def _desk(settings: Settings) -> AsyncIterator[Client]:
    """A client, and the worker that serves the agent in the same process."""
    async with await Client.connect(settings) as client:
        agent = Agent(name="Payer", model="gpt-4.1", tools=[pay])
        worker = AgentWorker(client.bus, {agent.name: agent}, pool="bench")
        await worker.start()
        try:
            yield client
        finally:
            await worker.stop()


async def _submit(client: Client, keys: list[str]) -> None:
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        await asyncio.gather(*(client.submit("Payer", key, key=key) for key in some))


async def _wait_for(client: Client, keys: list[str]) -> None:
    async with asyncio.timeout(120):
        for key in keys:
            done = await client.wait(key)
            if done.status != "completed":
                raise RuntimeError(f"{key} ended as {done.status}: {done.error}")


async def _until_parked(client: Client, count: int) -> None:
    """Wait until this many runs wait for an approval, and the harness has no messages left."""
    bus = client.bus
    async with asyncio.timeout(120):
        while len(await client.approvals(limit=2 * count)) < count:
            await asyncio.sleep(0.2)
        while True:
            info = await bus.topology.consumer_info(bus.connection, "harness-main")
            assert info is not None
            if info["num_pending"] == 0 and info["num_ack_pending"] == 0:
                return
            await asyncio.sleep(0.1)
