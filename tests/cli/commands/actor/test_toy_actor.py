"""An actor of another package: `sandstream actor` and `doctor` know it by its entry point."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cli.cli_process import DEADLINE_S, wait_until
from support.nats_server import NatsServer, open_bus
from support.runs import done, new_run

TOY = Path(__file__).parents[2] / "toy_actor"
GROUP = "sandstream.actors"


@pytest.fixture
def environment(tmp_path: Path, nats_server: NatsServer) -> dict[str, str]:
    """The package is installed beside ours: as its pyproject.toml says, without a build."""
    project = tomllib.loads((TOY / "pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / "toy_actor-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    [(name, reference)] = project["entry-points"][GROUP].items()
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {reference}\n")
    path = os.pathsep.join([str(TOY), str(info.parent)])
    return {**os.environ, "PYTHONPATH": path, "NATS_URL": nats_server.url, "NO_COLOR": "1"}


def _cli(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sandstream.cli", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _says(environment: dict[str, str], *arguments: str) -> str:
    process = _cli(environment, *arguments)
    out, _ = process.communicate(timeout=DEADLINE_S)
    return out


def test_an_actor_of_another_package_is_listed(environment: dict[str, str]) -> None:
    assert "toy        writes one line for each run that ends" in _says(environment, "actor")
    assert "--lines FILE" in _says(environment, "actor", "--help")


def test_an_actor_of_another_package_works(
    environment: dict[str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    async def end_run() -> str:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await bus.log.send(bus.subjects.done(run), done(), msg_id=f"{run}:done")
            return run

    async def create_streams() -> None:
        async with open_bus(nats_server):
            pass

    asyncio.run(create_streams())
    lines = tmp_path / "lines"
    process = _cli(environment, "actor", "toy", "--json", "--lines", str(lines))
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["url"] == nats_server.url
        run = asyncio.run(end_run())
        wait_until(lambda: lines.exists() and lines.read_text() == f"{run} completed\n", "a line")
        checks = [json.loads(it) for it in _says(environment, "doctor", "--json").splitlines()]
        assert {"name": "toy", "state": "ok", "found": "live"} in checks
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0 and "toy actor is ready" in said
    finally:
        process.kill()
        process.communicate()
