"""Repositories for strangers: real git reaches public hosts, and never any other, whatever names
mean and wherever servers send it. The forbidden server counts its connections.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandstream_providers.git.route import route_to

LET_THROUGH = ["plain", "moved within", "submodule", "commit", "git daemon"]
REFUSED = ["moved to an address", "moved to a name", "rebinding", "git protocol", "ssh"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where every user can read."""
    with tempfile.TemporaryDirectory(prefix="sandstream-public-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def run(scenario: str, folder: Path, isolation: str) -> dict[str, Any]:
    """In a network of its own, which needs a user namespace if this is not root."""
    own_user = [] if os.getuid() == 0 else ["--map-root-user"]
    program = [sys.executable, "-m", "providers.local.public_net", scenario, str(folder)]
    done = subprocess.run(
        ["unshare", "--net", *own_user, *program],
        env={**os.environ, "ISOLATION": isolation, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


@pytest.mark.parametrize("scenario", LET_THROUGH)
def test_public_hosts_are_reached(folder: Path, scenario: str) -> None:
    facts = run(scenario, folder, "required" if os.getuid() == 0 else "none")
    assert facts["answer"] == "hello\n", facts
    assert facts["good"] > 0 or scenario == "git daemon"
    assert facts["evil"] == 0


@pytest.mark.parametrize("scenario", REFUSED)
@pytest.mark.parametrize("isolation", ["required", "none"])
def test_others_never(folder: Path, scenario: str, isolation: str) -> None:
    if os.getuid() != 0 and isolation == "required":
        pytest.skip("a user namespace in which this is root, but without its rights")
    facts = run(scenario, folder, isolation)
    assert facts["evil"] == 0, facts
    assert facts["answer"].startswith("private: "), facts
    assert "has a loopback address" in facts["answer"]


def test_ssh_connects_to_the_checked_address() -> None:
    """``ssh -G`` says what it would do. The key is still looked up by the name."""

    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("good.example", 22)
        return ["1.2.3.4"]

    async def command() -> str:
        url = "git@good.example:r"
        async with route_to(url, public_only=True, resolve=resolve) as route:
            assert (route.url, route.protocols) == (url, "ssh")
            return route.ssh

    line = f"{asyncio.run(command())} -G git@good.example"
    told = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    settings = dict(line.split(" ", 1) for line in told.splitlines() if " " in line)
    assert settings["hostname"] == "1.2.3.4"
    assert settings["hostkeyalias"] == "good.example"
    assert settings["user"] == "git"
