"""Memories that outlive processes and machines, and models that are objects in one of them."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.memory.actor import MemoryActor
from support.memory_model import (
    CONSOLIDATION,
    NOTHING,
    consolidation,
    extraction,
    is_consolidation,
    is_extraction,
    is_phase,
)
from support.nats_server import NatsServer
from support.processes import warm_python
from support.processes.warm_server import Order

from sandstream import Client, ModelResponse, RunConfig, Runner, Usage
from sandstream._run import memory_host
from sandstream._run.memory_host import start_memory_actor
from sandstream._run.process import Process
from sandstream._run.sandbox_host import start_sandbox_actor
from sandstream.models.defaults import DefaultModels
from sandstream.models.interface import Model, ModelProvider
from sandstream.sandbox import (
    MemoryGenerateConfig,
    MemoryGivenUpError,
    SandboxAgent,
    SandboxRunConfig,
    wait_for_memory,
)
from sandstream.sandbox.capabilities import Filesystem, Memory, Shell
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, structured, text
from sandstream.worker import AgentWorker

LESSON = "Lesson: the user prefers minimal patches."
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from sandstream import RunConfig, Runner
from sandstream.sandbox import SandboxAgent, SandboxRunConfig, wait_for_memory
from sandstream.sandbox.capabilities import Filesystem, Memory, Shell
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient

async def run(memory, text, **sandbox):
    agent = SandboxAgent(name="coder", model="m", capabilities=[memory, Shell(), Filesystem()])
    config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient(), **sandbox))
    return await Runner.run(agent, text, run_config=config)

async def first(saved):
    results = [
        await run(Memory(scope="user:42"), "of the user"),
        await run(Memory(), "of the workspace"),
    ]
    for result in results:
        await wait_for_memory(result, timeout=30)
    saved.write_text(results[1].sandbox_states["coder"].model_dump_json())

async def second(saved):
    await run(Memory(scope="user:42"), "again of the user")
    state = json.loads(saved.read_text())
    await run(Memory(), "again of the workspace", session_state=state)

asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))
"""


def test_what_is_learned_is_known_on_another_machine_after_all_was_restarted(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    server = NatsServer(tmp_path / "nats")
    server.start()
    server.set_up()
    steps = [extraction("patches", LESSON), *consolidation()]
    says_ok = text("ok").when(lambda it: not is_phase(it)).forever()
    try:
        with ScriptedModel([*steps, says_ok], strict=False) as model:
            for part in ("first", "second"):
                env = {
                    "PATH": os.environ["PATH"],
                    "NATS_URL": server.url,
                    "SANDSTREAM_HOME": str(tmp_path / part),  # so another node
                    "OPENAI_BASE_URL": model.base_url,
                    "OPENAI_API_KEY": "none",
                }
                arguments = [part, str(tmp_path / "state.json")]
                order = Order(str(program), arguments, env, str(tmp_path))
                done = warm_python.run(order, within_s=50)
                assert done.returncode == 0, done.stderr
                server.restart()
            told = {
                str(it.body["input"][-1]["content"]): str(it.body.get("instructions"))
                for it in model.journal
                if not is_phase(it)
            }
    finally:
        server.stop()
    assert {asked: LESSON in found for asked, found in told.items()} == {
        "of the user": False,
        "of the workspace": False,
        "again of the user": True,
        "again of the workspace": True,
    }


# --- models that are objects ----------------------------------------------------------------------


class Asked:
    """What a model was asked, as the scripted steps read it."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.text = msgspec.json.encode(body).decode()


class Teller(Model):
    """A model of the user's own; knows nothing of HTTP."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str], bool]] = []

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **more: Any,
    ) -> ModelResponse:
        request: Any = Asked({"input": input})
        has_worked = any(it.get("type") == "function_call_output" for it in input)
        kind = "extraction" if is_extraction(request) else "consolidation"
        kind = kind if is_phase(request) else "agent"
        self.asked.append((kind, [it.name for it in tools], output_schema is not None))
        if kind == "extraction":
            found = {"rollout_slug": "p", "rollout_summary": LESSON, "raw_memory": LESSON}
            return _says(json.dumps(found))
        if is_consolidation(request) and not has_worked:
            arguments = json.dumps({"cmd": CONSOLIDATION})
            call = {"name": "exec_command", "call_id": "c1", "arguments": arguments}
            return ModelResponse([{"type": "function_call", **call}], Usage(), None)
        return _says("ok")

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError


def _says(words: str) -> ModelResponse:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    item = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    return ModelResponse([{"id": "m1", **item}], Usage(), None)


class OnlyTellers(ModelProvider):
    def __init__(self) -> None:
        self.by_name: dict[str, Teller] = {}

    def get_model(self, model_name: str | None) -> Model:
        return self.by_name.setdefault(str(model_name), Teller())


def agent(memory: Memory, **more: Any) -> SandboxAgent[Any]:
    capabilities = [memory, Shell(), Filesystem()]
    return SandboxAgent(**({"name": "coder", "capabilities": capabilities} | more))


def config(**more: Any) -> RunConfig:
    return RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()), **more)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("by", ["provider", "objects"])
def test_phases_ask_the_models_of_the_run_after_it_has_ended(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDSTREAM_PREFIX", f"memory-{uuid.uuid4().hex[:12]}")
    provider, one, two = OnlyTellers(), Teller(), Teller()

    async def main() -> None:
        if by == "provider":
            result = await Runner.run(
                agent(Memory()), "Hi.", run_config=config(model_provider=provider)
            )
        else:
            phases = MemoryGenerateConfig(phase_one_model=one, phase_two_model=two)
            own = agent(Memory(generate=phases), model=Teller())
            result = await Runner.run(own, "Hi.", run_config=config())
        assert result.final_output == "ok"
        process = await Process.of_this_loop()
        status = await wait_for_memory(result, timeout=30)
        memories = process.bus.memories
        state = (await memories.read(status.scope)).state
        summary = await memories.get(status.scope, state.tree["memories/memory_summary.md"])
        assert LESSON in summary.decode()
        assert process.hosted(result.run_id) is None  # type: ignore[arg-type]

    asyncio.run(main())
    if by == "provider":
        one, two = provider.by_name["gpt-5.4-mini"], provider.by_name["gpt-5.5"]
    assert one.asked == [("extraction", [], True)]
    tools = ["exec_command", "write_stdin", "apply_patch"]
    assert two.asked == [("consolidation", tools, False)] * 2


@pytest.mark.usefixtures("home")
def test_a_worker_has_the_models_of_its_agents_phases(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("SANDSTREAM_PREFIX", f"memory-{uuid.uuid4().hex[:12]}")
    provider = OnlyTellers()

    async def main() -> None:
        async with await Client.connect(Settings.from_env()) as client, AsyncExitStack() as stack:
            models = DefaultModels()
            sandboxes = await start_sandbox_actor(client.bus, home)
            harness = Harness(client.bus, models)
            remembering = agent(Memory(scope="team"))
            worker = AgentWorker(
                client.bus,
                {"coder": remembering},
                pool="app",
                config=RunConfig(model_provider=provider),
            )
            stack.push_async_callback(sandboxes.stop, 0.0)
            stack.push_async_callback(harness.stop, 0.0)
            stack.push_async_callback(worker.stop)
            await harness.start()
            await worker.start()
            running = await start_memory_actor(client.bus, models)
            stack.push_async_callback(running.stop, 0.0)
            done = await client.wait(await client.submit("coder", "Hi."))
            assert done.memory is not None
            assert done.memory.scope == "team"
            status = await wait_for_memory("team", timeout=30)
            state = (await client.bus.memories.read(status.scope)).state
            assert all(it.is_merged for it in state.rollouts.values())

    asyncio.run(main())
    assert [kind for kind, _, _ in provider.by_name["gpt-5.4-mini"].asked] == ["extraction"]
    assert [kind for kind, _, _ in provider.by_name["gpt-5.5"].asked] == ["consolidation"] * 2


# --- phases that fail -----------------------------------------------------------------------------


def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases are tried again at once."""
    monkeypatch.setenv("SANDSTREAM_PREFIX", f"memory-{uuid.uuid4().hex[:12]}")
    actor = partial(MemoryActor, backoff_s=(0.01, 0.01, 0.01))
    monkeypatch.setattr(memory_host, "MemoryActor", actor)


@pytest.mark.usefixtures("home")
def test_whoever_waits_hears_of_what_was_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hasty(monkeypatch)
    half = structured({**NOTHING, "raw_memory": "half"}).when(is_extraction).forever()

    async def main() -> None:
        says_ok = text("ok").when(lambda it: not is_phase(it)).forever()
        async with ScriptedModel([half, says_ok], strict=False) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            result = await Runner.run(agent(Memory(), model="m"), "Hi.", run_config=config())
            with pytest.raises(MemoryGivenUpError, match="nothing could be extracted from 'run-"):
                await wait_for_memory(result, timeout=30)
            assert sum(map(is_extraction, model.journal)) == 4
            waiting = Memory(generate=MemoryGenerateConfig(wait_for_memory=True))
            again = await Runner.run(agent(waiting, model="m"), "Hi.", run_config=config())
            assert again.final_output == "ok"  # no memory is no reason to fail
            assert "the memory is not complete" in caplog.text

    asyncio.run(main())


@pytest.mark.usefixtures("home")
def test_a_phase_that_failed_once_is_a_problem_of_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty(monkeypatch)
    bad = structured({**NOTHING, "raw_memory": "half"}).when(is_extraction)

    async def main() -> None:
        says_ok = text("ok").when(lambda it: not is_phase(it)).forever()
        steps = [bad, extraction("patches", LESSON), *consolidation(), says_ok]
        async with ScriptedModel(steps, strict=False) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            result = await Runner.run(agent(Memory(), model="m"), "Hi.", run_config=config())
            await wait_for_memory(result, timeout=30)
            assert sum(map(is_extraction, model.journal)) == 2

    asyncio.run(main())
