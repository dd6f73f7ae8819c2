"""What runs can do, sessions can do: budgets, guardrails, secrets, traces, memory, compaction."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw
from sandstream_actors.model import ModelClient, Route
from sandstream_bus.wire.messages import ConversationOpened, RunStarted
from sandstream_bus.wire.subjects import RunId, session_conversation
from support.memory_model import consolidation, extraction, is_phase
from support.session_world import World, info_when, world
from support.waiting import eventually

from sandstream import (
    Agent,
    Budget,
    GuardrailFunctionOutput,
    RunConfig,
    function_tool,
    input_guardrail,
)
from sandstream._run.memory_host import start_memory_actor
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Compaction, Filesystem, Memory, Shell
from sandstream.sandbox.manifest import Environment, SecretRef
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.sessions import TurnFailed
from sandstream.testing import script_for, text, tool_call

pytestmark = pytest.mark.usefixtures("home")

LESSON = "Lesson: the user prefers minimal patches."
IN_SANDBOXES = RunConfig(sandbox=SandboxRunConfig(UnixLocalSandboxClient()))


@function_tool
def look(place: str) -> str:
    """Look at a place."""
    return f"nothing at {place}"


@input_guardrail
def is_about_work(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, "gossip" in str(input))


def test_each_turn_has_the_budget_of_a_run() -> None:
    agent = Agent(name="frugal", model="gpt-5", tools=[look])
    config = RunConfig(budget=Budget(turns=2))
    calls = [tool_call("look", {"place": "home"})] * 3

    async def main() -> None:
        script = [script_for("search", [*calls, text("Hello.")])]
        async with world("srb", script, agents=[agent], config=config) as (client, model, _):
            session = await client.sessions.create("frugal")
            with pytest.raises(TurnFailed) as failed:
                await (await session.send("search")).answer()
            assert failed.value.status == "budget"
            assert len(model.requests) == 2
            # the next turn is another run
            assert await (await session.send("then say hello")).answer() == "Hello."
            assert [it.status for it in await session.turns()] == ["budget", "completed"]

    asyncio.run(main())


def test_a_guardrail_ends_the_turn_and_not_the_session() -> None:
    agent = Agent(name="strict", model="gpt-5", input_guardrails=[is_about_work])

    async def main() -> None:
        async with world("srg", [script_for("work", [text("Done.")])], agents=[agent]) as it:
            session = await it.client.sessions.create("strict")
            with pytest.raises(TurnFailed) as failed:
                await (await session.send("any gossip?")).answer()
            assert failed.value.status == "guardrail"
            assert await (await session.send("work")).answer() == "Done."

    asyncio.run(main())


def test_a_secret_is_in_every_box_of_the_session_and_not_in_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SANDSTREAM_SECRET_gh", "s3cret")
    manifest = Manifest(environment=Environment(value={"TOKEN": SecretRef(name="gh")}))
    agent = SandboxAgent(name="trusted", model="gpt-5", default_manifest=manifest)
    count = tool_call("exec_command", {"cmd": "printf %s $TOKEN | wc -c >> sizes; cat sizes"})

    async def main() -> None:
        script = [script_for("count", [count, text("one"), count, text("two")])]
        async with world("srs", script, sandboxes=True, agents=[agent], config=IN_SANDBOXES) as it:
            session = await it.client.sessions.create("trusted", idle_s=None)
            await (await session.send("count")).answer()
            await session.pause()
            await info_when(it.client, session.id, lambda info: info.box == "asleep")
            await (await session.send("count")).answer()
            assert "6\\n6\\n" in json.dumps(it.model.requests[-1]["input"])
            bus = it.client.bus
            for turn in await session.turns():
                for event in await bus.log.read(RunId(turn.run)):
                    assert b"s3cret" not in event.stored.data
            assert "s3cret" not in str(await bus.sessions.read(session.id))
            assert "s3cret" not in str(await bus.sandboxes.read(f"{session.id}_w1"))

    asyncio.run(main())


def test_the_traces_of_a_session_belong_together() -> None:
    async def main() -> None:
        script = [script_for("hello", [text("One."), text("Two.")])]
        async with world("srt", script) as it:
            session = await it.client.sessions.create("plain")
            for number in (1, 2):
                await (await session.send("hello")).answer()
                options = await _options(it, (await session.turns())[-1].run)
                assert options.group_id == session.id
                assert options.metadata == {"session": session.id, "turn": number}

    asyncio.run(main())


async def _options(it: World, run: str) -> Any:
    events = await it.client.bus.log.read(RunId(run))
    return next(one.event.options for one in events if isinstance(one.event, RunStarted))


def test_a_session_learns_from_its_turns() -> None:
    memory = Memory(scope="session-team")
    agent = SandboxAgent(name="keen", model="gpt-5", capabilities=[memory, Shell(), Filesystem()])
    steps = [extraction("patches", LESSON), *consolidation()]
    says = text("ok").when(lambda it: not is_phase(it)).forever()

    async def main() -> None:
        script = [script_for("", [*steps, says])]
        async with world("srm", script, sandboxes=True, agents=[agent], config=IN_SANDBOXES) as it:
            models = ModelClient([Route(prefix="openai", base_url=it.model.base_url)], environ={})
            it.actors.push_async_callback(models.aclose)
            actor = await start_memory_actor(it.client.bus, models)
            try:
                session = await it.client.sessions.create("keen", idle_s=None)
                await (await session.send("Work.")).answer()

                async def learnt() -> bool:
                    state = (await it.client.bus.memories.read("session-team")).state
                    return any(path.endswith("MEMORY.md") for path in state.tree)

                await eventually(learnt, within_s=30, what="the memory is consolidated")
                await (await session.send("More.")).answer()
                first, second = [
                    one.body["instructions"] for one in it.model.journal if not is_phase(one)
                ]
                assert LESSON not in first and LESSON in second
            finally:
                await actor.stop()

    asyncio.run(main())


def test_a_compacted_session_is_short_for_the_model_and_whole_for_people() -> None:
    agent = SandboxAgent(name="wordy", model="gpt-5", capabilities=[Compaction(), Shell()])
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "all of it"}

    async def main() -> None:
        script = [script_for("", [text("One."), text("Two."), text("Three.")])]
        async with world("src", script, sandboxes=True, agents=[agent], config=IN_SANDBOXES) as it:
            session = await it.client.sessions.create("wordy", idle_s=None)
            await (await session.send("first")).answer()
            # the vendor's model adds this item to an answer; the scripted one cannot
            await it.client.bus.conversations.add(
                session_conversation(session.id), [Raw(json.dumps(compaction))]
            )
            await (await session.send("second")).answer()
            asked: Any = it.model.requests[-1]
            assert "context_management" in asked
            kinds = [one.get("type") or one.get("role") for one in asked["input"]]
            assert kinds[0] == "compaction" and "first" not in json.dumps(asked["input"])
            log = await it.client.bus.log.read(RunId((await session.turns())[-1].run))
            [opened] = [one.event for one in log if isinstance(one.event, ConversationOpened)]
            assert len(opened.history) == 1  # nor does the turn's log have the rest once more
            history = json.dumps(await session.history())
            assert "first" in history and "second" in history
            fork = await session.fork(turn=1)
            await (await fork.send("third")).answer()
            assert "first" in json.dumps(it.model.requests[-1]["input"])

    asyncio.run(main())
