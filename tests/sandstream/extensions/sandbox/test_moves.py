"""A workspace moves between this machine, a container and vendors in the middle of a conversation.

The digest of its tree shows that each place has all files, with their contents, modes and links.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.engines import engine
from support.vendor_side import VendorSide, outputs, run_command
from vendors.shared import shared

from sandstream import Runner
from sandstream.run import RunConfig
from sandstream.sandbox import Dir, File, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.sandboxes import (
    DockerSandboxClient,
    DockerSandboxClientOptions,
    UnixLocalSandboxClient,
)
from sandstream.testing import ScriptedModel, Step, text

MANIFEST = Manifest(entries={"diary.txt": File(content=b"begun\n"), "empty": Dir()})
ROUTES = (
    ("local", "daytona", "e2b", "local"),
    ("docker", "daytona", "e2b", "docker"),
    ("docker", "e2b", "daytona", "docker"),
)
pytestmark = pytest.mark.timeout(300)  # a container and two vendors in one test
CONTAINER = DockerSandboxClientOptions(engine.PYTHON, network_mode="none")
ODD_FILES = (
    "mkdir -p 'a b/ü'; head -c 3000000 /dev/urandom > 'a b/ü/big'; "
    "printf '#!/bin/sh\\n' > tool; chmod 750 tool; ln -s diary.txt link; ln -s nowhere dangling"
)


@pytest.fixture
def vendors(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = {}
    for name in ("daytona", "e2b"):
        server = shared(name)
        for variable, value in server.env.items():
            monkeypatch.setenv(variable, value)
        found[name] = VendorSide(name, server, frozenset(it.id for it in server.boxes()))
    yield found
    for side in found.values():
        assert side.boxes() == []


@pytest.fixture(params=ROUTES, ids="-".join)
def places(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Where the workspace is, one after the other."""
    found: tuple[str, ...] = request.param
    if "docker" in found:
        monkeypatch.setenv("DOCKER_HOST", engine.ensure())
    return found


def client_of(place: str, vendors: dict[str, VendorSide]) -> tuple[Any, Any]:
    if place == "local":
        return UnixLocalSandboxClient(), None
    if place == "docker":
        return DockerSandboxClient(), CONTAINER
    return vendors[place].client(), vendors[place].options()


def writing(place: str) -> list[Step]:
    return [run_command(f"echo in {place} >> diary.txt; cat diary.txt"), text(f"I am in {place}.")]


def diary(places: tuple[str, ...]) -> str:
    return "".join(["begun\n", *(f"in {it}\n" for it in places)])


def test_a_session_moves_by_its_checkpoints(
    vendors: dict[str, VendorSide], places: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = SandboxAgent(name="Traveller", instructions="Write.", capabilities=[Shell()])

    async def main() -> None:
        steps = [step for place in places for step in writing(place)]
        conversation: list[Any] = []
        snapshot: Any = None
        tree = ""
        sessions: list[tuple[Any, Any]] = []
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            for number, place in enumerate(places):
                client, options = client_of(place, vendors)
                session = await client.create(snapshot=snapshot, manifest=MANIFEST, options=options)
                sessions.append((client, session))
                async with session:
                    if number == 0:
                        assert (await session.exec(ODD_FILES)).ok()
                    else:
                        assert await session.checkpoint() == tree, f"all of it came to {place}"
                    conversation.append({"role": "user", "content": f"Write from {place}."})
                    result = await Runner.run(
                        agent,
                        conversation,
                        run_config=RunConfig(sandbox=SandboxRunConfig(session=session)),
                    )
                    conversation = result.to_input_list()
                    assert outputs(result)[-1].endswith(diary(places[: number + 1]))
                    tree = await session.checkpoint()
                snapshot = session.state.snapshot
            assert f"I am in {places[1]}." in model.journal[-1].text
        for client, session in sessions:
            await client.delete(session)

    asyncio.run(main())


def test_runs_move_by_the_snapshot_of_the_run_before(
    vendors: dict[str, VendorSide], places: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = SandboxAgent(
        name="Traveller",
        instructions="Write.",
        default_manifest=MANIFEST,
        capabilities=[Shell()],
    )

    async def main() -> None:
        steps = [step for place in places for step in writing(place)]
        conversation: list[Any] = []
        snapshot: Any = None
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            for number, place in enumerate(places):
                client, options = client_of(place, vendors)
                conversation.append({"role": "user", "content": f"Write from {place}."})
                result = await Runner.run(
                    agent,
                    conversation,
                    run_config=RunConfig(
                        sandbox=SandboxRunConfig(client=client, options=options, snapshot=snapshot)
                    ),
                )
                conversation = result.to_input_list()
                assert outputs(result)[-1].endswith(diary(places[: number + 1]))
                snapshot = result.sandbox_states["Traveller"].snapshot

    asyncio.run(main())
