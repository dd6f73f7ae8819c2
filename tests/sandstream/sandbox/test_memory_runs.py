"""Agents that remember, end to end: a real server, real sandboxes, the memory actor of the calling
process, a scripted model.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.wire.memories import MemoryState
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.subjects import RunId
from support.memory_model import (
    consolidation,
    extraction,
    is_consolidation,
    is_extraction,
    is_phase,
    no_extraction,
)

from sandstream import Agent, BusSession, RunConfig, Runner, UserError
from sandstream._run.memory_host import start_memory_actor
from sandstream._run.process import Process
from sandstream.models.defaults import DefaultModels
from sandstream.sandbox import (
    LocalSnapshotSpec,
    Manifest,
    MemoryGenerateConfig,
    MemoryLayoutConfig,
    MemoryReadConfig,
    MemoryWriteConfig,
    SandboxAgent,
    SandboxRunConfig,
    wait_for_memory,
)
from sandstream.sandbox.capabilities import ApplyPatch, Filesystem, Memory, Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, Step, text, tool_call

pytestmark = pytest.mark.usefixtures("home")

LESSON = "Lesson: the user prefers minimal patches."
LEARNS = (extraction("patches", LESSON), *consolidation())


def play(
    monkeypatch: pytest.MonkeyPatch,
    program: Callable[[ScriptedModel], Awaitable[None]],
    *steps: Step,
) -> None:
    """The phases say what ``steps`` say; agents say "ok", unless a step is for them.

    In an installation of its own: what is left of other tests would be worked on here.
    """
    monkeypatch.setenv("SANDSTREAM_PREFIX", f"memory-{uuid.uuid4().hex[:12]}")

    async def main() -> None:
        says_ok = text("ok").when(lambda it: not is_phase(it)).forever()
        async with ScriptedModel([*(steps or LEARNS), says_ok], strict=False) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            await program(model)

    asyncio.run(main())


def agent(memory: Memory | None = None, **more: Any) -> SandboxAgent[Any]:
    capabilities = [memory or Memory(), Shell(), Filesystem()]
    return SandboxAgent(**({"name": "coder", "model": "m", "capabilities": capabilities} | more))


def config(*, run: dict[str, Any] | None = None, **sandbox: Any) -> RunConfig:
    if "session" not in sandbox:
        sandbox = {"client": UnixLocalSandboxClient(), **sandbox}
    return RunConfig(sandbox=SandboxRunConfig(**sandbox), **(run or {}))


def new_scope() -> str:
    return f"user:42/ü {uuid.uuid4().hex}"


def instructions(model: ScriptedModel) -> list[str]:
    """Of all turns that were no phases."""
    return [str(it.body.get("instructions")) for it in model.journal if not is_phase(it)]


def phases(model: ScriptedModel) -> tuple[int, int]:
    """How often the model was asked in phase one and in phase two."""
    one, two = (sum(map(kind, model.journal)) for kind in (is_extraction, is_consolidation))
    return one, two


def runs_command(command: str, *, after: str) -> Step:
    """The agent runs this command, once, when it is asked so."""
    return tool_call("exec_command", {"cmd": command}).when(
        lambda it: not is_phase(it) and after in it.text
    )


async def bus_here() -> Bus:
    return (await Process.of_this_loop()).bus


async def state_of(scope: str) -> MemoryState:
    return (await (await bus_here()).memories.read(scope)).state


async def file_of(scope: str, path: str) -> str:
    memories = (await bus_here()).memories
    state = (await memories.read(scope)).state
    return (await memories.get(scope, state.tree[path])).decode()


# --- learning and knowing -------------------------------------------------------------------------


def test_a_workspace_remembers_and_nothing_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        first = await Runner.run(agent(), "Minimal patches, please.", run_config=config())
        status = await wait_for_memory(first, timeout=30)
        state = first.sandbox_states["coder"]
        assert status.scope == f"sandbox:{state.sandbox_id}"
        assert status.problems == ()
        assert phases(model) == (1, 2)
        second = await Runner.run(agent(), "And?", run_config=config(session_state=state))
        before, after = instructions(model)
        assert "minimal patches" not in before
        assert LESSON in after
        assert "memories/MEMORY.md" in after
        again = await wait_for_memory(second, timeout=30)
        assert again.scope == status.scope
        assert (await wait_for_memory(state, timeout=30)).scope == status.scope

    play(monkeypatch, program)


def test_a_fresh_workspace_knows_nothing_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        own = MemoryGenerateConfig(wait_for_memory=True)
        for _ in range(2):
            await Runner.run(agent(Memory(generate=own)), "Work.", run_config=config())
        assert phases(model) == (2, 4)  # the runs ended after their memories were made
        assert all(LESSON not in each for each in instructions(model))

    play(monkeypatch, program)


def test_a_named_scope_is_in_any_workspace_and_repaired_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scope = new_scope()
    repair = "sed -i s/minimal/complete/ memories/memory_summary.md memories/MEMORY.md"

    async def program(model: ScriptedModel) -> None:
        remembering = agent(Memory(scope=scope))
        first = await Runner.run(remembering, "Minimal patches.", run_config=config())
        assert (await wait_for_memory(first, timeout=30)).scope == scope
        await Runner.run(remembering, "No: COMPLETE ones.", run_config=config())
        await wait_for_memory(scope, timeout=30)
        await Runner.run(remembering, "What do I prefer?", run_config=config())
        told = instructions(model)
        assert LESSON in told[1]
        assert LESSON in told[2] or "complete patches" in told[2]  # after its own repair
        assert "Lesson: the user prefers complete patches." in told[-1]
        assert LESSON not in told[-1]
        assert "edit" in [it.kind for it in (await state_of(scope)).history]

    learns_once = extraction("patches", LESSON, about="Minimal patches")
    play(
        monkeypatch,
        program,
        runs_command(repair, after="COMPLETE"),
        learns_once,
        no_extraction(),
        *consolidation(),
    )


# --- modes ----------------------------------------------------------------------------------------


def test_generate_only_and_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = new_scope()
    spoil = "echo spoilt > memories/memory_summary.md && echo mine > memories/own.md"

    async def program(model: ScriptedModel) -> None:
        generating = agent(capabilities=[Memory(scope=scope, read=None)])  # it needs nothing else
        first = await Runner.run(generating, "Minimal patches.", run_config=config())
        await wait_for_memory(first, timeout=30)
        second = await Runner.run(generating, "Again.", run_config=config())
        await wait_for_memory(second, timeout=30)
        assert all(LESSON not in each for each in instructions(model))
        before = await state_of(scope)

        reading = agent(
            Memory(scope=scope, generate=None, read=MemoryReadConfig(live_update=False))
        )
        third = await Runner.run(reading, "SPOIL it.", run_config=config())
        with pytest.raises(UserError, match="is not remembered"):
            await wait_for_memory(third)
        await wait_for_memory(scope, timeout=30)
        assert LESSON in instructions(model)[-2]
        after = await state_of(scope)
        assert after.tree == before.tree
        assert list(after.rollouts) == list(before.rollouts)
        fourth = await Runner.run(reading, "And now?", run_config=config())
        assert fourth.final_output == "ok"
        assert LESSON in instructions(model)[-1]

    play(monkeypatch, program, runs_command(spoil, after="SPOIL"), *LEARNS)


def test_what_an_agent_notes_itself_is_kept_without_generating(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scope = new_scope()
    note = "echo 'The build is slow.' > memories/memory_summary.md"

    async def program(model: ScriptedModel) -> None:
        reading = agent(Memory(scope=scope, generate=None))
        await Runner.run(reading, "NOTE it.", run_config=config())
        await wait_for_memory(scope, timeout=30)
        await Runner.run(reading, "What is slow?", run_config=config())
        assert "The build is slow." in instructions(model)[-1]
        assert phases(model) == (0, 0)

    play(monkeypatch, program, runs_command(note, after="NOTE"), *LEARNS)


# --- grouping -------------------------------------------------------------------------------------

ODD = "user:42/../ü*.> \n☃"


def test_runs_are_grouped_by_session_group_or_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = new_scope()

    async def program(model: ScriptedModel) -> None:
        remembering = agent(Memory(scope=scope, generate=MemoryGenerateConfig(batch_size=99)))
        name = f"{ODD}{uuid.uuid4().hex}"
        both = config(run={"group_id": ODD})
        for _ in range(2):
            await Runner.run(remembering, "Hi.", run_config=both, session=BusSession(name))
        await Runner.run(remembering, "Hi.", run_config=both)
        alone = await Runner.run(remembering, "Hi.", run_config=config())
        await wait_for_memory(alone, timeout=30)
        state = await state_of(scope)
        found = {id: len(it.runs) for id, it in state.rollouts.items()}
        assert found == {name: 2, ODD: 1, f"run-{alone.run_id}": 1}
        lines = (await file_of(scope, f"sessions/{state.rollouts[name].name}.jsonl")).splitlines()
        assert [msgspec.json.decode(it)["rollout_id"] for it in lines] == [name, name]
        assert len({it.name for it in state.rollouts.values()}) == 3
        assert all(it.is_merged for it in state.rollouts.values())

    play(monkeypatch, program)


def test_a_conversation_goes_before_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(
            agent(),
            "Hi.",
            run_config=config(run={"group_id": "group"}),
            conversation_id="conv_1",
        )
        done = await (await bus_here()).log.last(
            (await bus_here()).subjects.done(RunId(result.run_id))
        )
        assert done is not None
        assert isinstance(done.event, RunDone)
        assert done.event.memory is not None
        assert done.event.memory.id == "conv_1"

    play(monkeypatch, program)


# --- a session of the caller's, and the older names -----------------------------------------------


def test_the_program_of_the_guide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With older names, a batch size, a snapshot, close and resume."""

    async def program(model: ScriptedModel) -> None:
        manifest = Manifest(entries={"bug.py": File(content=b"1/0\n")})
        analyst: SandboxAgent[Any] = SandboxAgent(
            name="Data Analyst",
            model="gpt-5.4",
            instructions="Analyze the workspace and answer questions.",
            default_manifest=manifest,
            capabilities=[
                Shell(),
                ApplyPatch(),
                Memory(write=MemoryWriteConfig(batch_size=2, extra_prompt="SQL matters.")),
            ],
        )
        client = UnixLocalSandboxClient()
        snapshot = LocalSnapshotSpec(base_path=tmp_path / "snapshots")
        session = await client.create(manifest=manifest, snapshot=snapshot)
        async with session:
            run_config = RunConfig(sandbox=SandboxRunConfig(session=session))
            await Runner.run(analyst, "I prefer minimal patches.", run_config=run_config)
        await wait_for_memory(session, timeout=30)
        assert phases(model) == (1, 2)
        extractor = next(it for it in model.journal if is_extraction(it))
        assert "SQL matters." in str(extractor.body.get("instructions"))

        resumed = await client.resume(session.state)
        async with resumed:
            run_config = RunConfig(sandbox=SandboxRunConfig(session=resumed))
            await Runner.run(analyst, "Add a test.", run_config=run_config)
            assert LESSON in instructions(model)[-1]
            listed = await resumed.exec("ls memories sessions", shell=True)
            names = listed.stdout.decode().split()
            assert {"MEMORY.md", "memory_summary.md", "raw_memories", "raw_memories.md"} <= {*names}

    play(monkeypatch, program)


def test_closing_a_session_consolidates_and_can_wait_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(model: ScriptedModel) -> None:
        layout = MemoryLayoutConfig("notes/memories", "notes/sessions")
        waits = MemoryGenerateConfig(wait_for_memory=True)
        remembering = agent(Memory(layout=layout, generate=waits))
        session = await UnixLocalSandboxClient().create(manifest=Manifest())
        async with session:
            here = config(session=session)
            await Runner.run(remembering, "Minimal patches.", run_config=here)
            await Runner.run(remembering, "Once more.", run_config=here)
            assert phases(model)[1] == 0
        assert phases(model) == (2, 2)
        scope = f"sandbox:{session.sandbox_id}:notes/memories"
        assert LESSON in await file_of(scope, "memories/memory_summary.md")

    play(monkeypatch, program)


# --- who does it ----------------------------------------------------------------------------------


def test_the_actor_of_somebody_else_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        process = await Process.of_this_loop()
        models = DefaultModels()
        place = process._memory_place
        running = await start_memory_actor(process.bus, models, place)
        try:
            result = await Runner.run(agent(), "Minimal patches.", run_config=config())
            await wait_for_memory(result, timeout=30)
            assert process.memory._running is None
        finally:
            await running.stop(0.0)
            await models.aclose()
        # nobody is there now: whoever waits starts one
        await wait_for_memory(result, timeout=30)
        assert process.memory._running is not None

    play(monkeypatch, program)


def test_what_cannot_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        plain = await Runner.run(Agent(name="plain", model="m"), "Hi.")
        with pytest.raises(UserError, match="is not remembered"):
            await wait_for_memory(plain)
        session = await UnixLocalSandboxClient().create(manifest=Manifest())
        with pytest.raises(UserError, match="no agent with a Memory capability"):
            await wait_for_memory(session)
        with pytest.raises(UserError, match="must not be empty"):
            await wait_for_memory("")
        with pytest.raises(TypeError, match="not int"):
            await wait_for_memory(1)
        result = await Runner.run(agent(), "Hi.", run_config=config())
        with pytest.raises(UserError, match=r"is a run, not a memory; its memory is 'sandbox:"):
            await wait_for_memory(result.run_id)
        for wrong in ("3", -1, float("nan")):
            timeout: Any = wrong
            with pytest.raises(UserError, match="a number of seconds"):
                await wait_for_memory(result, timeout=timeout)
        with pytest.raises(TimeoutError, match="was not ready within 0 s"):
            await wait_for_memory(result, timeout=0)
        assert (await wait_for_memory(result, timeout=30)).revision > 0

    play(monkeypatch, program)
