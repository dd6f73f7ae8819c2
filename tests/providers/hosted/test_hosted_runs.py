"""Runs of agents whose sandbox is at a vendor that has a bad day."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers.hosted.accounts import Account, until
from support.nats_server import NatsServer

from sandstream import RunConfig, Runner, function_tool
from sandstream.extensions.sandbox import (
    DaytonaSandboxClient,
    DaytonaSandboxClientOptions,
    E2BSandboxClient,
    E2BSandboxClientOptions,
)
from sandstream.sandbox import File, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.errors import SandboxError, WorkspaceLostError
from sandstream.testing import ScriptedModel, Step, text, tool_call

MANIFEST = Manifest(root="/workspace", entries={"given.txt": File(content=b"given\n")})


@pytest.fixture
def scene(
    account: Account, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Account]:
    """The environment of a program with an account at the vendor."""
    nats_server.set_up()
    home = {"NATS_URL": nats_server.url, "SANDSTREAM_HOME": str(tmp_path / "home")}
    for name, value in {**account.server.env, **home}.items():
        monkeypatch.setenv(name, value)
    try:
        yield account
    finally:
        account.reset()


def config(account: Account) -> RunConfig:
    client: Any = DaytonaSandboxClient()
    options: Any = DaytonaSandboxClientOptions()
    if account.name == "e2b":
        client, options = E2BSandboxClient(), E2BSandboxClientOptions(sandbox_type="e2b")
    return RunConfig(sandbox=SandboxRunConfig(client=client, options=options))


def play(
    account: Account, steps: list[Step], monkeypatch: pytest.MonkeyPatch, *tools: Any
) -> list[str]:
    """What the calls of a run said. Afterwards no box is left."""

    async def main() -> list[str]:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            agent = SandboxAgent(name="coder", default_manifest=MANIFEST, tools=list(tools))
            result: Any = await Runner.run(agent, "Do it.", run_config=config(account))
            await until(lambda: account.boxes() == [])
        items = [item for item in result.new_items if item.type == "tool_call_output_item"]
        return [str(item.output) for item in items]

    return asyncio.run(main())


def command(script: str) -> Step:
    return tool_call("exec_command", {"cmd": script})


def test_answers_and_connections_are_lost(scene: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    for operation in ("create", "delete"):
        scene.fault(operation, "lost")
    scene.fault("terminal", "cut", messages=6, times=2)
    seen = scene.arrivals()
    said = play(
        scene,
        [
            command("cat given.txt; echo one >> log"),
            command("seq 20000 | tail -1; cat log"),
            text("."),
        ],
        monkeypatch,
    )
    assert "given" in said[0]
    assert said[1].count("20000") == 1 and said[1].count("one") == 1
    made = [call.box for call in seen.calls() if call.name == scene.routes["create"] and call.box]
    assert len(set(made)) == 1


def test_a_box_ends_between_two_commands(scene: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is paused or stopped by its vendor, and woken for the next command."""

    @function_tool
    def harm() -> str:
        """The box's time is over."""
        scene.server.expire(scene.only_box().id)
        return "harmed"

    steps = [command("echo one >> log"), tool_call("harm", {}), command("cat log"), text(".")]
    said = play(scene, steps, monkeypatch, harm)
    assert said[1] == "harmed" and said[2].count("one") == 1


def test_a_box_is_deleted_between_two_commands(
    scene: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a checkpoint cannot go on as if nothing had happened: it ends with an error."""

    @function_tool
    def harm() -> str:
        """The box is deleted in the vendor's dashboard."""
        scene.server.delete(scene.only_box().id)
        return "harmed"

    steps = [command("echo one >> log"), tool_call("harm", {}), command("cat log"), text(".")]
    with pytest.raises(WorkspaceLostError, match="its box is gone"):
        play(scene, steps, monkeypatch, harm)
    assert scene.boxes() == []


def test_an_account_with_all_its_boxes(scene: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {"daytona": "max_boxes", "e2b": "concurrent_sandboxes"}[scene.name]
    scene.server.configure(**{name: 0})
    with pytest.raises(SandboxError) as caught:
        play(scene, [text(".")], monkeypatch)
    assert caught.value.code == "workspace_start_error"
    assert scene.boxes() == []
