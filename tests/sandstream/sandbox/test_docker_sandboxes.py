"""Docker sandboxes as programs use them, on a real engine: users, moves, runs, kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import docker
import pytest
from support.engines import engine

from sandstream.sandbox import (
    Dir,
    File,
    Group,
    Manifest,
    Permissions,
    User,
)
from sandstream.sandbox.sandboxes import (
    DockerRemovalService,
    DockerSandboxClient,
    DockerSandboxClientOptions,
    UnixLocalSandboxClient,
)
from sandstream.sandbox.snapshot import BusSnapshot
from sandstream.testing import ScriptedModel, text, tool_call

pytestmark = [pytest.mark.usefixtures("home", "on_engine"), pytest.mark.timeout(300)]
IMAGE = DockerSandboxClientOptions(engine.PYTHON, network_mode="none")
DEV, TEAM = User(name="dev"), Group(name="team", users=[User(name="dev")])
PLAN = File(content=b"secret", permissions=Permissions.from_str("-rw-------"))
SHARED = Manifest(
    users=[DEV],
    groups=[TEAM],
    entries={
        "shared": Dir(group=TEAM, permissions=Permissions.from_str("drwxrwx---")),
        "closed": Dir(
            permissions=Permissions.from_str("drwxr-x---"),
            children={"plan.md": PLAN},
        ),
    },
)


@pytest.fixture
def on_engine(monkeypatch: pytest.MonkeyPatch) -> str:
    url = engine.ensure()
    monkeypatch.setenv("DOCKER_HOST", url)
    return url


def in_session(manifest: Manifest, story: Callable[[Any, Any], Coroutine[Any, Any, None]]) -> None:
    """Play the story in a session, which is gone afterwards."""

    async def main() -> str:
        client = DockerSandboxClient()
        session: Any = await client.create(manifest=manifest, options=IMAGE)
        try:
            await session.start()
            await story(client, session)
        finally:
            await client.delete(session)
        return str(session.container_id)

    assert is_gone(asyncio.run(main()))


def is_gone(container: str) -> bool:
    found = engine.ask(engine.ensure(), f"/containers/{container}/json")
    return "Id" not in found


async def said(session: Any, command: str, **more: Any) -> str:
    done = await session.exec(command, **more)
    assert done.ok(), done
    return str(done.stdout.decode())


# --- moves ----------------------------------------------------------------------------------------


def test_a_workspace_moves_to_a_container_and_back() -> None:
    manifest = Manifest(entries={"src/a.txt": File(content=b"a\n"), "empty": Dir()})

    async def moved(client: Any, tree: str, **options: Any) -> Any:
        session = await client.create(snapshot=BusSnapshot(id="move", tree=tree), **options)
        await session.start()
        return session

    async def main() -> None:
        local, container = UnixLocalSandboxClient(), DockerSandboxClient()
        first = await local.create(manifest=manifest)
        sessions: list[tuple[Any, Any]] = [(local, first)]
        try:
            await first.start()
            await said(first, "printf b > src/b; chmod 700 src/b; ln -s b src/link")
            tree = await first.checkpoint()
            second = await moved(container, tree, options=IMAGE)
            sessions.append((container, second))
            assert await second.checkpoint() == tree
            await said(second, "echo changed >> src/a.txt; rm src/link")
            changed = await second.checkpoint()
            assert changed != tree
            third = await moved(local, changed)
            sessions.append((local, third))
            assert await third.checkpoint() == changed
            assert await said(third, "cat src/a.txt; stat -c %a src/b") == "a\nchanged\n700\n"
            again = await moved(container, tree, options=IMAGE)
            sessions.append((container, again))
            back = await again.fork()
            await back.start()
            sessions.append((container, back))
            assert await back.checkpoint() == tree
        finally:
            for client, session in reversed(sessions):
                await client.delete(session)

    asyncio.run(main())


# --- the engine -----------------------------------------------------------------------------------


def test_the_engine_of_the_programs_own_client(
    on_engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")

    async def main(own: docker.DockerClient) -> str:
        client = DockerSandboxClient(own)
        session: Any = await client.create(options=IMAGE)
        try:
            await session.start()
            found = client.get_container(session.container_id)
            assert found is not None and found.status == "running"
            assert client.image_exists(engine.PYTHON) and not client.image_exists("no/such:image")
        finally:
            await client.delete(session)
        return str(session.container_id)

    own = docker.DockerClient(base_url=on_engine)
    try:
        assert DockerSandboxClient(own).get_container(asyncio.run(main(own))) is None
    finally:
        own.close()


def test_a_removal_service_lends_its_connection(on_engine: str) -> None:
    path = on_engine.removeprefix("unix://")
    limits = {"max_concurrent_removals": 1, "max_entry_visits": 10, "max_cpu_seconds": 1}
    service = DockerRemovalService(**limits, socket_path=path)
    try:
        client = DockerSandboxClient(service.docker_client, removal_service=service)
        assert client.image_exists(engine.PYTHON)
        with pytest.raises(ValueError, match="removal_service"):
            DockerSandboxClient(removal_service=service)
    finally:
        service.close()


# --- kill -9 --------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from sandstream import RunConfig, Runner
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes import DockerSandboxClient, DockerSandboxClientOptions

async def main():
    sandbox = SandboxRunConfig(
        client=DockerSandboxClient(), options=DockerSandboxClientOptions(sys.argv[1])
    )
    config = RunConfig(run_key=sys.argv[2], sandbox=sandbox)
    agent = SandboxAgent(name="builder", instructions="Build.")
    result = await Runner.run(agent, "Build it.", run_config=config)
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print(item.output)

asyncio.run(main())
"""


@pytest.mark.parametrize("image", [engine.PYTHON, engine.BUSYBOX])
def test_a_command_runs_once_although_its_program_is_killed(
    image: str, on_engine: str, home: Path
) -> None:
    command = "echo started >> counter; sleep 3; echo ended >> counter; cat counter"
    steps = [tool_call("exec_command", {"cmd": command, "yield_time_ms": 30_000}), text("Built.")]
    name = f"killed-{image.partition(':')[2]}"

    async def main() -> str:
        async with ScriptedModel(steps) as model:
            arguments = [sys.executable, "-c", PROGRAM, image, name]
            env = {**os.environ, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}
            first = await asyncio.create_subprocess_exec(
                *arguments, env=env, stdout=subprocess.DEVNULL
            )
            await until_started(on_engine, name)
            first.send_signal(signal.SIGKILL)
            await first.wait()
            second = await asyncio.create_subprocess_exec(
                *arguments, env=env, stdout=subprocess.PIPE
            )
            out, _ = await second.communicate()
            assert second.returncode == 0
            return out.decode()

    assert asyncio.run(main()).endswith("Output:\nstarted\nended\n\n")
    assert containers_of(on_engine, name) == []


async def until_started(url: str, run: str) -> None:
    """Wait until the container of this run has the counter."""
    client = docker.DockerClient(base_url=url)
    try:
        async with asyncio.timeout(120):
            while not await asyncio.to_thread(_has_counter, client, run):
                await asyncio.sleep(0.05)
    finally:
        client.close()


def containers_of(url: str, run: str) -> list[Any]:
    client = docker.DockerClient(base_url=url)
    try:
        label = {"label": f"io.sandstream.run={run}"}
        return list(client.containers.list(all=True, filters=label))
    finally:
        client.close()


def _has_counter(client: docker.DockerClient, run: str) -> bool:
    found = client.containers.list(filters={"label": f"io.sandstream.run={run}"})
    test = ["test", "-s", "/workspace/counter"]
    return any(it.exec_run(test).exit_code == 0 for it in found)
