"""Commands and patches that a person must agree to; a sandbox that is closed while they think."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sandstream_bus.wire.subjects import sandbox_of

from sandstream import Client, RunConfig, Runner, RunState
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Filesystem, Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, Step, custom_tool_call, text, tool_call, tool_calls

pytestmark = pytest.mark.usefixtures("home")
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+by a patch\n*** End Patch\n"


def play(
    steps: list[Step],
    program: Callable[[], Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    async def main() -> Any:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            return await program()

    return asyncio.run(main())


def agent(*capabilities: Any) -> SandboxAgent[Any]:
    manifest = Manifest(entries={"a.txt": File(content=b"first\n")})
    return SandboxAgent(
        name="Worker",
        model="gpt-4.1",
        default_manifest=manifest,
        capabilities=list(capabilities),
    )


def always(tools: Any) -> None:
    tools.exec_command.needs_approval = True


def only_removals(tools: Any) -> None:
    async def decide(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return "rm " in arguments["cmd"]

    tools.exec_command.needs_approval = decide


def patches(tools: Any) -> None:
    tools.apply_patch.needs_approval = True


def config() -> RunConfig:
    return RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))


def outputs(result: Any) -> list[str]:
    return [it.output for it in result.new_items if it.type == "tool_call_output_item"]


def test_a_command_waits_and_its_sandbox_does_not_run_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [
        tool_call("exec_command", {"cmd": "echo second >> a.txt; cat a.txt"}),
        tool_call("exec_command", {"cmd": "cat a.txt"}),
        text("ok"),
    ]

    async def program() -> None:
        worker = agent(Shell(configure_tools=always))
        result = await Runner.run(worker, "Go.", run_config=config())
        assert [it.name for it in result.interruptions] == ["exec_command"]
        async with await Client.connect() as client:
            log = await client.bus.sandboxes.read(sandbox_of(result.run_id, "Worker"))
            assert type(log[-1].event).__name__ == "SandboxStopped"
        state = await RunState.from_string(worker, result.to_state().to_string())
        state.approve(state.get_interruptions()[0], always_approve=True)
        result = await Runner.run(worker, state, run_config=config())
        said = outputs(result)
        assert "first\nsecond\n" in said[0]
        assert "first\nsecond\n" in said[1], "the workspace is the same after the wait"
        assert result.final_output == "ok"

    play(steps, program, monkeypatch)


def test_a_function_decides_which_commands_need_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    both = tool_calls(("exec_command", {"cmd": "cat a.txt"}), ("exec_command", {"cmd": "rm a.txt"}))

    async def program() -> None:
        worker = agent(Shell(configure_tools=only_removals))
        result = await Runner.run(worker, "Go.", run_config=config())
        assert [it.arguments for it in result.interruptions] == ['{"cmd":"rm a.txt"}']
        state = result.to_state()
        state.reject(result.interruptions[0], rejection_message="Keep it.")
        result = await Runner.run(worker, state, run_config=config())
        said = outputs(result)
        assert "first" in said[0]
        assert said[1] == "Keep it."

    play([both, text("ok")], program, monkeypatch)


def test_a_patch_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        custom_tool_call("apply_patch", PATCH),
        tool_call("exec_command", {"cmd": "cat made.txt"}),
        text("ok"),
    ]

    async def program() -> None:
        worker = agent(Shell(), Filesystem(configure_tools=patches))
        result = await Runner.run(worker, "Go.", run_config=config())
        assert [it.name for it in result.interruptions] == ["apply_patch"]
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await Runner.run(worker, state, run_config=config())
        assert "by a patch" in outputs(result)[-1]

    play(steps, program, monkeypatch)
