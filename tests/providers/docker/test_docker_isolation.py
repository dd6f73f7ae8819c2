"""Trying to get out of a container: the attempts that the local provider refuses, and its own."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers.docker.docker_boxes import OWNER, docker_provider, inspect, new_spec
from providers.local.local_boxes import said
from sandstream_providers.interface import ExecSpec, Grant, Limits, ProviderError
from support.engines import engine

ATTACKS = Path(__file__).parent.parent / "local" / "attacks.py"
TOOLS = {"called", "read", "write", "must_be_new", "helpers_of_the_agent", "main"}
ATTEMPTS = [
    node.name
    for node in ast.parse(ATTACKS.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name not in TOOLS
]
ALLOWED = {
    "take_much_memory": "it may end the whole command: tried alone",
}
LIMITS = Limits(processes=20, memory_mb=300, file_mb=5)
SECRET = "in-the-hosts-environment"


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    home = tmp_path_factory.mktemp("siege")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOST_SECRET", SECRET)
        yield asyncio.run(_besiege(home))


async def _besiege(home: Path) -> dict[str, Any]:
    """What came of all attempts in one box, and what the engine shows of it."""
    (home / "secret.txt").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with docker_provider(home / "boxes") as provider:
            neighbour = await provider.create(new_spec())
            box = await provider.create(new_spec(limits=LIMITS, env={"TOKEN_OF_MINE": SECRET}))
            facts = {
                "only": [],
                "secret": SECRET + "-of-the-provider",
                "secret_file": str(home / "secret.txt"),
                "home": str(home / "boxes"),
                "neighbour_file": str(home / "boxes" / "docker" / neighbour.key / "box.json"),
                "agent_socket": "/.sandstream/run/agent.sock",
                "script": Path(__file__).name,
                "port": listener.getsockname()[1],
                "abstract": f"sandstream-test-{os.getpid()}",
                "pid": os.getpid(),
                "processes": LIMITS.processes,
                "memory_mb": LIMITS.memory_mb,
                "file_mb": LIMITS.file_mb,
            }

            async def attack(only: list[str]) -> Any:
                argv = ["python3", "-", json.dumps(facts | {"only": only})]
                spec = ExecSpec(argv=argv, cwd=box.root, stdin=ATTACKS.read_bytes())
                return await box.run(f"attack {only}", spec)

            done = await attack([name for name in ATTEMPTS if name not in ALLOWED])
            assert done.stdout, done
            greedy = await attack(["take_much_memory"])
            await box.run("all", ExecSpec(argv=["sh", "-c", "kill -9 -1"], cwd=box.root), wait_s=20)
            return {
                "attempts": json.loads(done.stdout),
                "greedy": greedy.exit_code,
                "after": await said(box, "echo still here"),
                "run": await said(box, "ls /.sandstream/run 2>&1 || true"),
                "inspect": inspect(box.key),
                "token": json.loads((home / "boxes/docker" / box.key / "box.json").read_text())[
                    "token"
                ],
            }


@pytest.mark.parametrize("attempt", sorted(set(ATTEMPTS) - ALLOWED.keys()))
def test_refused(attempt: str, siege: dict[str, Any]) -> None:
    assert "refused" in siege["attempts"][attempt], siege["attempts"][attempt]


def test_the_box_works_after_all_that(siege: dict[str, Any]) -> None:
    assert siege["after"] == "still here\n"
    assert siege["greedy"] in (0, 1, 137)
    assert "Permission denied" in siege["run"]


def test_the_engine_is_told_to_allow_little(siege: dict[str, Any]) -> None:
    host = siege["inspect"]["HostConfig"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
    assert "no-new-privileges" in host["SecurityOpt"]
    assert not any("unconfined" in it for it in host["SecurityOpt"])
    assert host["NetworkMode"] == "none" and host["PidMode"] == "" and host["IpcMode"] == "private"
    assert host["Memory"] == host["MemorySwap"] == (300 + 64) << 20
    assert host["PidsLimit"] == 25
    assert siege["inspect"]["Config"]["User"] == "1000:1000"


def test_an_engine_that_shuts_down_need_not_wait(siege: dict[str, Any]) -> None:
    assert siege["inspect"]["Config"]["StopSignal"] == "SIGKILL"


def test_secrets_are_not_shown_by_the_engine(siege: dict[str, Any]) -> None:
    shown = json.dumps(siege["inspect"])
    assert SECRET not in shown
    assert siege["token"] and siege["token"] not in shown


def test_the_engine_is_never_inside(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            path = Path(engine.ensure().removeprefix("unix://"))
            for granted in (path, path.parent, Path("/")):
                grant = Grant(path="/granted", host_path=str(granted))
                with pytest.raises(ProviderError, match="cannot be granted"):
                    await provider.create(new_spec(grants=[grant]))
            assert await provider.list_owned(OWNER) == []

    asyncio.run(story())
