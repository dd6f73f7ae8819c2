"""The agent's own fence, tried without any other around it: nothing but it can refuse here."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from providers.box.agent_process import running_agent, shell, unprivileged
from sandstream_providers.box.agent import landlock

pytestmark = pytest.mark.skipif(
    landlock.abi() < landlock.LEAST_ABI, reason="this kernel has no Landlock"
)
STARTERS = ["root", "user"] if os.geteuid() == 0 else ["user"]
OUTSIDE = [
    "echo x > {outside}/new",
    "echo x > {outside}/file",
    "echo x >> {outside}/file",
    "rm {outside}/file",
    "rmdir {outside}/folder",
    "mkdir {outside}/made",
    "ln -s x {outside}/link",
    "mkfifo {outside}/pipe",
    "mv {outside}/file {inside}/taken",
    "mv {inside}/file {outside}/given",
    "ln {inside}/file {outside}/linked",
    "truncate -s 0 {outside}/file",
]
INSIDE = [
    "echo x > {inside}/new && rm {inside}/new",
    "mkdir -p {inside}/a/b && echo x > {inside}/a/file && mv {inside}/a/file {inside}/a/b/file",
    "ln {inside}/a/b/file {inside}/a/linked && ln -s b {inside}/a/link && mkfifo {inside}/pipe",
    "rm -r {inside}/a",
    "cat {outside}/file > /dev/null",
    "echo x > {outside}/granted/new",
    'python3 -c \'import os; os.write(os.open("/dev/null", os.O_RDWR | os.O_TRUNC), b"x")\'',
    "sh -c 'sh -c true; kill -0 $$'",
]


def prepare(home: Path, starter: str) -> dict[str, Any]:
    options = {} if starter == "root" or os.geteuid() != 0 else unprivileged(home)
    for folder in ("workspace", "jobs", "outside", "outside/granted", "outside/folder"):
        (home / folder).mkdir(exist_ok=True)
    for file in ("workspace/file", "outside/file"):
        (home / file).write_text("as it was")
    for path in (home / "outside").rglob("*"):
        path.chmod(0o777)
    for path in (home / "outside", home / "workspace", home / "workspace/file"):
        path.chmod(0o777)
    fence = {
        "abi": landlock.abi(),
        "write": [str(home / "workspace"), str(home / "outside/granted")],
        "change": ["/dev"],
    }
    return {**options, "landlock": fence}


@pytest.mark.parametrize("starter", STARTERS)
def test_only_what_is_listed_can_be_written(tmp_path: Path, starter: str) -> None:
    async def run() -> None:
        async with running_agent(tmp_path, **prepare(tmp_path, starter)) as agent:
            box = agent.box()
            names = {"inside": str(agent.root), "outside": str(tmp_path / "outside")}
            for number, script in enumerate([*INSIDE, *OUTSIDE]):
                done = await box.run(f"op-{number}", shell(script.format(**names)))
                expected = script in INSIDE
                assert (done.exit_code == 0) == expected, (script, done)

    asyncio.run(run())
    left = {path.name for path in (tmp_path / "outside").iterdir()}
    assert left == {"file", "folder", "granted"}
    assert (tmp_path / "outside/file").read_text() == "as it was"


@pytest.mark.parametrize("starter", STARTERS)
def test_without_it_the_same_can_be_written(tmp_path: Path, starter: str) -> None:
    """Shows that nothing else refuses it."""

    async def run() -> None:
        options = prepare(tmp_path, starter) | {"landlock": None}
        async with running_agent(tmp_path, **options) as agent:
            box = agent.box()
            done = await box.run("op", shell(f"echo x > {tmp_path}/outside/new"))
            assert done.exit_code == 0, done

    asyncio.run(run())
