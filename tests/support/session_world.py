"""An installation with the actors that sessions need, and a scripted model."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sessions.actor import SessionsActor
from sandstream_bus.bus import Bus
from support.waiting import eventually

from sandstream import Agent, Client, RunConfig, function_tool
from sandstream._run.sandbox_host import start_sandbox_actor
from sandstream.sandbox import SandboxAgent
from sandstream.sessions import SessionEvent, SessionInfo
from sandstream.settings import Settings
from sandstream.testing import Conversation, ScriptedModel
from sandstream.worker import AgentWorker


@function_tool(needs_approval=True)
def deploy(place: str) -> str:
    """Deploy to a place."""
    return f"deployed to {place}"


PLAIN = Agent(name="plain", instructions="Talk.", model="gpt-5")
CAREFUL = Agent(name="careful", instructions="Ask.", model="gpt-5", tools=[deploy])
BOSS = Agent(
    name="boss",
    instructions="Delegate.",
    model="gpt-5",
    tools=[CAREFUL.as_tool(tool_name="ask_careful", tool_description="Ask the careful one.")],
)
CODER = SandboxAgent(name="coder", instructions="Work.", model="gpt-5")
AGENTS: list[Agent[Any]] = [PLAIN, CAREFUL, BOSS, CODER]


class World(NamedTuple):
    """What a test works with."""

    client: Client
    model: ScriptedModel
    actors: AsyncExitStack
    """Closing it stops the actors, while the client stays."""


@asynccontextmanager
async def world(
    prefix: str,
    conversations: Sequence[Conversation] = (),
    *,
    sandboxes: bool = False,
    settings: Settings | None = None,
    agents: Sequence[Agent[Any]] = AGENTS,
    config: RunConfig | None = None,
) -> AsyncIterator[World]:
    """Actors on an installation of its own, and a client.

    With ``sandboxes``, all sessions are destroyed and their boxes deleted before the actors stop.
    """
    home = {"SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}
    settings = settings or Settings.from_env({"SANDSTREAM_PREFIX": prefix, **home})
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(
            ScriptedModel(conversations=list(conversations), strict=False)
        )
        client = await stack.enter_async_context(await Client.connect(settings))
        other = await stack.enter_async_context(await Client.connect(settings))
        models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
        stack.push_async_callback(models.aclose)
        actors = await stack.enter_async_context(AsyncExitStack())
        for actor in (
            Harness(other.bus, models),
            AgentWorker(other.bus, {it.name: it for it in agents}, pool="app", config=config),
            SessionsActor(other.bus),
        ):
            await actor.start()
            actors.push_async_callback(actor.stop)
        if sandboxes:
            box = await start_sandbox_actor(
                other.bus, Path(home["SANDSTREAM_HOME"]), "none", own=False
            )
            actors.push_async_callback(box.stop)
            actors.push_async_callback(_end_sessions, client)
        yield World(client, model, actors)


async def _end_sessions(client: Client) -> None:
    """Destroy what the test has not, and wait for the deletion of all boxes. A session is destroyed
    as soon as the deletion is ordered, and a box whose actor stops before that lives on.
    """
    for info in await client.sessions.list(archived=True):
        await (await client.sessions.get(info.id)).destroy()
    for sandbox in await client.bus.sandboxes.names():
        await eventually(
            partial(_has_no_box, client.bus, sandbox), within_s=30, what=f"{sandbox} is deleted"
        )


async def _has_no_box(bus: Bus, sandbox: str) -> bool:
    record = SandboxRecord.of(sandbox, await bus.sandboxes.read(sandbox))
    return not record.may_have_box and record.state != "unknown"


async def until(
    events: AsyncIterator[SessionEvent], is_it: Callable[[SessionEvent], bool]
) -> list[SessionEvent]:
    """The events up to the first that fits."""
    seen: list[SessionEvent] = []
    async for event in events:
        seen.append(event)
        if is_it(event):
            return seen
    raise AssertionError(f"the follower ended; it told {seen}")


async def info_when(
    client: Client, session: str, is_it: Callable[[SessionInfo], bool]
) -> SessionInfo:
    """The session as soon as it is so."""
    from sandstream.sessions import SessionChanged

    found = await client.sessions.get(session)
    events = found.follow(deltas=False)
    try:
        seen = await until(events, lambda it: isinstance(it, SessionChanged) and is_it(it.info))
    finally:
        await events.aclose()
    last = seen[-1]
    assert isinstance(last, SessionChanged)
    return last.info
