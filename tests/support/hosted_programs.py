"""Runs of agents whose guardrails, hooks and servers are tested: called here, and deployed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_bus.wire.messages import CallFinished, GuardrailRecord

from sandstream import Agent, Client, RunConfig
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step
from sandstream.worker import AgentWorker

MODEL = "gpt-4.1"
Program = Callable[[ScriptedModel], Awaitable[Any]]


def play(
    monkeypatch: pytest.MonkeyPatch, steps: list[Step], program: Program, *, strict: bool = True
) -> Any:
    """Run a program against a script; unused or unexpected steps fail the test."""

    async def main() -> Any:
        async with ScriptedModel(steps, strict=strict) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            return await program(model)

    return asyncio.run(main())


@asynccontextmanager
async def deployed(
    prefix: str, agent: Agent[Any], steps: list[Step], *, config: RunConfig | None = None
) -> AsyncIterator[tuple[Client, ScriptedModel]]:
    """A worker that offers the agent, and a harness, on an installation of their own."""
    home = {"SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"], "SANDSTREAM_PREFIX": prefix}
    async with (
        ScriptedModel(steps) as model,
        await Client.connect(Settings.from_env(home)) as client,
    ):
        models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
        harness = Harness(client.bus, models)
        worker = AgentWorker(client.bus, {agent.name: agent}, pool="app", config=config)
        await harness.start()
        await worker.start()
        try:
            yield client, model
        finally:
            await worker.stop()
            await harness.stop()
            await models.aclose()


async def recorded(client: Client, run: str) -> list[GuardrailRecord]:
    """What the run's guardrails said, as its log has it."""
    finished = [it.event for it in await client.events(run) if isinstance(it.event, CallFinished)]
    return [record for event in finished for record in event.guardrails]
