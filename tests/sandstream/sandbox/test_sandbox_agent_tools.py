"""Sandbox agents as tools: each run has a sandbox of its own, which is closed at its end."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.wire.messages import CallRequested
from sandstream_bus.wire.subjects import RunId, child_of, sandbox_of

from sandstream import Agent, Client, RunConfig, Runner, UserError, function_tool
from sandstream.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Capability, Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, Step, text, tool_call, tool_calls

pytestmark = pytest.mark.usefixtures("home")
MODEL = "gpt-4.1"


def play(
    steps: list[Step],
    program: Callable[[ScriptedModel], Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    async def main() -> Any:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            return await program(model)

    return asyncio.run(main())


def config(**more: Any) -> RunConfig:
    return RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient(), **more))


class Names(Capability):
    """Offers a tool that says in which sandbox it is, and what is there."""

    type: str = "names"

    def tools(self) -> list[Any]:
        session = self.session
        assert session is not None

        @function_tool
        async def whereabouts() -> str:
            """Where am I?"""
            found = await session.exec("cat a.txt")
            return f"{session.sandbox_id} {found.stdout.decode().strip()}"

        return [whereabouts]


def coder(*capabilities: Capability) -> SandboxAgent[Any]:
    manifest = Manifest(entries={"a.txt": File(content=b"first\n")})
    return SandboxAgent(
        name="Coder", model=MODEL, default_manifest=manifest, capabilities=list(capabilities)
    )


def boss(*tools: Any) -> Agent[Any]:
    return Agent(name="Boss", instructions="I am Boss.", model=MODEL, tools=list(tools))


def command(cmd: str, call_id: str) -> Step:
    return tool_call("exec_command", {"cmd": cmd}, call_id=call_id)


def items_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = request["input"]
    return items


def test_each_run_of_a_sandbox_agent_has_its_own_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    both = tool_calls(("code", {"input": "Job one."}), ("code", {"input": "Job two."}))
    steps = [
        both.when("I am Boss"),
        text("done").when("I am Boss"),
        command("echo one >> a.txt; cat a.txt", "c1").when("Job one."),
        tool_call("whereabouts", call_id="c2").when("Job one."),
        text("one is done").when("Job one."),
        command("echo two >> a.txt; cat a.txt", "c3").when("Job two."),
        tool_call("whereabouts", call_id="c4").when("Job two."),
        text("two is done").when("Job two."),
    ]

    async def program(model: ScriptedModel) -> None:
        tool = coder(Shell(), Names()).as_tool("code", "Codes.", run_config=config())
        result = await Runner.run(boss(tool), "go")
        outputs = {
            item["call_id"]: item["output"]
            for request in model.requests
            for item in items_of(request)
            if item.get("output")
        }
        runs = [child_of(result.run_id, f"t1-{n}") for n in range(2)]
        for run, word, first, second in zip(
            runs, ("one", "two"), ("c1", "c3"), ("c2", "c4"), strict=True
        ):
            assert outputs[first].endswith(f"Output:\nfirst\n{word}\n")
            assert outputs[second] == f"{sandbox_of(run, 'Coder')} first\n{word}"
        async with await Client.connect() as client:
            for run in runs:
                events = [it.event for it in await client.bus.log.read(RunId(run))]
                kinds = [it.kind for it in events if isinstance(it, CallRequested)]
                assert kinds == ["open", "tool", "tool", "close"]
                sandbox = sandbox_of(run, "Coder")
                record = SandboxRecord.of(sandbox, await client.bus.sandboxes.read(sandbox))
                assert not record.is_live and record.tree

    play(steps, program, monkeypatch)


def test_the_callers_sandbox_settings_are_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        tool_call("code", {"input": "Job."}).when("I am Boss"),
        text("done").when("I am Boss"),
        command("cat a.txt", "c1").when("Job."),
        text("job done").when("Job."),
    ]

    async def program(model: ScriptedModel) -> None:
        tool = coder(Shell()).as_tool("code", "Codes.")
        with pytest.raises(UserError, match="'Coder' works in a sandbox"):
            await Runner.run(boss(tool), "go")
        result = await Runner.run(boss(tool), "go", run_config=config())
        assert result.final_output == "done"
        assert items_of(model.requests[2])[-1]["output"].endswith("Output:\nfirst\n")

    play(steps, program, monkeypatch)


def test_a_snapshot_of_the_callers_own_is_written_for_a_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = [
        tool_call("code", {"input": "Job."}).when("I am Boss"),
        text("done").when("I am Boss"),
        command("echo new > b.txt", "c1").when("Job."),
        text("job done").when("Job."),
    ]

    async def program(model: ScriptedModel) -> None:
        own = config(snapshot=LocalSnapshotSpec(base_path=tmp_path))
        await Runner.run(boss(coder(Shell()).as_tool("code", "Codes.", run_config=own)), "go")

    play(steps, program, monkeypatch)
    (archive,) = tmp_path.glob("*.tar")
    with tarfile.open(archive) as tar:
        names = {member.name.removeprefix("./") for member in tar.getmembers() if member.isfile()}
    assert names == {"a.txt", "b.txt"}
