"""A caller that stops waiting, as with Ctrl-C, leaves no sandbox behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.waiting import until

from sandstream import RunConfig, Runner
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, tool_call

pytestmark = pytest.mark.usefixtures("home")


def test_a_run_whose_caller_is_cancelled_takes_its_sandbox_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boxes = Settings.from_env().home / "sandboxes"

    def workspaces() -> list[Path]:
        return list(boxes.glob("*/workspace/begun"))

    async def main() -> None:
        steps = [tool_call("exec_command", {"cmd": "touch begun; sleep 1000"})]
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
            agent: SandboxAgent[None] = SandboxAgent(name="coder")
            run = asyncio.create_task(Runner.run(agent, "go", run_config=config))
            await until(workspaces, within_s=30, what="the command has begun")
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run

    asyncio.run(main())
    assert not workspaces()
