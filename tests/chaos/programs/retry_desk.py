"""A program whose runs fail while a file ``broken`` exists: ``retry_desk.py <what> <key>``.

``run``: begin the run, or retry it if it has failed. ``serve``: a harness and a worker, until
killed. ``actors``: the harness alone. ``retry``: ask for a retry as a client.
Each effect of a tool is a line of the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route

from sandstream import Agent, Client, RunConfig, Runner, function_tool
from sandstream.exceptions import RetryRefused
from sandstream.worker import AgentWorker

LEDGER = Path(os.environ["CHAOS_LEDGER"])


def _note(line: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{line}\n")


@function_tool(failure_error_function=None)
def good(key: str) -> str:
    """Succeed."""
    _note(f"{key} good")
    return "good"


@function_tool(failure_error_function=None)
def flaky(key: str) -> str:
    """Succeed unless it is broken."""
    if LEDGER.with_name("broken").exists():
        _note(f"{key} failed")
        raise RuntimeError("the service is down")
    _note(f"{key} flaky")
    return "flaky"


below: Agent[None] = Agent(name="below", tools=[good, flaky], model="gpt-4.1")
above: Agent[None] = Agent(
    name="above",
    tools=[good, flaky, below.as_tool("below", "Ask below.", failure_error_function=None)],
    model="gpt-4.1",
)


async def run(key: str) -> None:
    config = RunConfig(run_key=key, retry_failed=True)
    result = await Runner.run(above, f"[{key}] work", run_config=config)
    print(result.final_output, flush=True)


async def serve(with_worker: bool) -> None:
    async with await Client.connect() as client:
        route = Route(prefix="openai", base_url=os.environ["OPENAI_BASE_URL"])
        harness = Harness(client.bus, ModelClient([route], environ={}))
        if with_worker:
            await AgentWorker(client.bus, {"above": above, "below": below}, pool="app").start()
        await harness.start()
        print("ready", flush=True)
        await asyncio.sleep(3600)


async def retry(key: str) -> None:
    async with await Client.connect() as client:
        with contextlib.suppress(RetryRefused):  # the one that was killed has done it
            await client.retry(key)
    print("ready", flush=True)


async def main(what: str, key: str) -> None:
    if what == "run":
        await run(key)
    elif what == "retry":
        await retry(key)
    else:
        await serve(what == "serve")


asyncio.run(main(*sys.argv[1:]))
