"""``on_stream`` where the harness and the tool host are not in step: no delta comes too early."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_actors.run.forced_ends import end_parked_run
from sandstream_bus.wire.messages import CallFinished, CallRequested
from sandstream_bus.wire.subjects import RunId
from support.idle import is_idle
from support.waiting import eventually

from sandstream import Agent, AgentToolStreamEvent, Client
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, text, tool_call
from sandstream.worker import AgentWorker

pytestmark = pytest.mark.usefixtures("home")
MODEL = "gpt-4.1"
STEPS = [
    tool_call("ask", {"input": "Hi."}).when("I am Outer"),
    text("Outer done.").when("I am Outer"),
    text("one two three").when("I am Inner"),
]


class Stage:
    """A harness, and the worker of an agent that watches another one."""

    def __init__(self, client: Client, models: ModelClient) -> None:
        self.client = client
        self.seen: list[str] = []
        self.harness = Harness(client.bus, models)
        self.worker = self.new_worker()

    def new_worker(self) -> AgentWorker:
        inner: Agent[Any] = Agent(name="Inner", instructions="I am Inner.", model=MODEL)
        tool = inner.as_tool("ask", "Asks.", on_stream=self._see)
        outer = Agent(name="Outer", instructions="I am Outer.", model=MODEL, tools=[tool])
        return AgentWorker(self.client.bus, {"Outer": outer}, pool="app")

    def _see(self, payload: AgentToolStreamEvent) -> None:
        event = payload["event"]
        self.seen.append(event.data.type if event.type == "raw_response_event" else event.type)

    async def submit_without_host(self, run: str) -> None:
        """Start a run while nobody hosts its code, and wait until the harness has no more to do."""
        await self.worker.stop()
        await self.client.submit("Outer", "go", key=run)
        await eventually(lambda: self._has_asked(run), what="the watch is asked for")
        await eventually(lambda: is_idle(self.client.bus, "harness-main"), what="harness idle")

    async def _has_asked(self, run: str) -> bool:
        return "watch" in [kind for _, kind in await self.requests(run)]

    async def requests(self, run: str) -> list[tuple[str, str]]:
        events = [it.event for it in await self.client.events(run)]
        return [(it.call, it.kind) for it in events if isinstance(it, CallRequested)]

    async def results(self, run: str) -> list[str]:
        events = [it.event for it in await self.client.events(run)]
        return [it.call for it in events if isinstance(it, CallFinished)]


@asynccontextmanager
async def staged(prefix: str, *, strict: bool = True) -> AsyncIterator[Stage]:
    home = {"SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"], "SANDSTREAM_PREFIX": prefix}
    async with (
        ScriptedModel(STEPS, strict=strict) as model,
        await Client.connect(Settings.from_env(home)) as client,
    ):
        models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
        stage = Stage(client, models)
        await stage.harness.start()
        await stage.worker.start()
        try:
            yield stage
        finally:
            await stage.worker.stop()
            await stage.harness.stop()
            await models.aclose()


def test_a_tool_host_that_comes_late_misses_no_delta() -> None:
    async def main() -> None:
        async with staged("watch1") as stage:
            await stage.submit_without_host("w")
            stage.worker = stage.new_worker()
            await stage.worker.start()
            done = await stage.client.wait("w")
            assert done.status == "completed"
            assert stage.seen[0] == "agent_updated_stream_event"
            assert "response.output_text.delta" in stage.seen
            assert stage.seen.count("response.completed") == 1
            assert await stage.requests("w") == [("t1-0-watch", "watch"), ("t1-0", "child")]
            assert sorted(await stage.results("w")) == ["t1-0", "t1-0-listening", "t1-0-watch"]

    asyncio.run(main())


def test_nobody_listens_for_ever_to_a_child_that_never_starts() -> None:
    async def main() -> None:
        async with staged("watch2", strict=False) as stage:
            await stage.submit_without_host("w")
            await stage.harness.stop()
            stage.worker = stage.new_worker()
            await stage.worker.start()
            await eventually(lambda: stage.results("w"), what="the tool host says that it listens")
            assert await stage.results("w") == ["t1-0-listening"]
            await end_parked_run(stage.client.bus, RunId("w"), "for a reason")
            await eventually(lambda: is_idle(stage.client.bus, "tools-app"), what="host idle")

    asyncio.run(main())
