"""A run with a sandbox that failed goes on in its workspace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandstream import RunConfig, Runner, UserError, function_tool
from sandstream.items import ToolCallOutputItem
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, error, text, tool_call

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.timeout(60)]


def test_a_sandbox_without_checkpoints_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        tool_call("exec_command", {"cmd": "echo other >> a.txt"}),
        error(400),
        tool_call("exec_command", {"cmd": "cat a.txt"}),
        text("ok"),
    ]

    async def main() -> None:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            worker: SandboxAgent[Any] = SandboxAgent(
                name="Worker",
                model="gpt-4.1",
                default_manifest=Manifest(entries={"a.txt": File(content=b"first\n")}),
                capabilities=[Shell()],
            )
            sandbox = SandboxRunConfig(client=UnixLocalSandboxClient(), checkpoint="never")
            config = RunConfig(run_key="fresh", retry_failed=True, sandbox=sandbox)
            with pytest.raises(Exception, match="400"):
                await Runner.run(worker, "Go.", run_config=config)
            result = await Runner.run(worker, "Go.", run_config=config)
            said = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
            assert "first\n" in said[1] and "other" not in said[1]
            assert "created again for the retry" in said[1]
            assert result.final_output == "ok"

    asyncio.run(main())


def test_a_retried_run_finds_its_workspace_and_repeats_no_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = [True, False]

    @function_tool(failure_error_function=None)
    def upload() -> str:
        """Put it somewhere."""
        if failures.pop(0):
            raise RuntimeError("no space")
        return "uploaded"

    steps = [
        tool_call("exec_command", {"cmd": "echo second >> a.txt; cat a.txt"}),
        tool_call("upload", {}),
        error(400),
        tool_call("exec_command", {"cmd": "cat a.txt"}),
        text("ok"),
    ]

    async def go(worker: SandboxAgent[Any]) -> Any:
        sandbox = SandboxRunConfig(client=UnixLocalSandboxClient())
        config = RunConfig(run_key="boxed", retry_failed=True, sandbox=sandbox)
        return await Runner.run(worker, "Go.", run_config=config)

    async def main() -> None:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            worker: SandboxAgent[Any] = SandboxAgent(
                name="Worker",
                model="gpt-4.1",
                default_manifest=Manifest(entries={"a.txt": File(content=b"first\n")}),
                capabilities=[Shell()],
                tools=[upload],
            )
            with pytest.raises(UserError, match="no space"):
                await go(worker)
            with pytest.raises(Exception, match="400"):
                await go(worker)
            result = await go(worker)
            assert result.final_output == "ok"
            said = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
            assert said[1] == "uploaded" and failures == []
            assert "first\nsecond\n" in said[2] and "second\nsecond" not in said[2]

    asyncio.run(main())
