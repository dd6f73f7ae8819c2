"""kill -9 of the process that operates a box by scripts, and of the box: a command runs once, and a
batch of changes is whole or undone.

A program of the box that stands still at a chosen call makes the moment of the kill certain.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract.shell_host import ShellHost
from providers.shell.controller import KEY, OP, batch, command, provider
from sandstream_providers.interface import Box, BoxSpec, ResolveRule
from support.waiting import until

STANDS_STILL = """#!/bin/sh
if [ -e {tools}/armed ]; then
  read -r left <{tools}/left
  echo $((left - 1)) >{tools}/left
  if [ $left = 1 ]; then
    echo >{tools}/hit
    until [ -e {tools}/go ]; do sleep 0.02; done
  fi
fi
exec {busybox} {name} "$@"
"""
BEFORE = {"old": "old", "gone/leaf": "leaf", "moved": "m"}
AFTER = {"new/deep": "new", "old": "changed", "link": "-> old", "new/moved": "m", "last": "last"}
MOMENTS = [("tar", 1), *(("ln", at) for at in (1, 2, 3)), *(("mv", at) for at in range(1, 7))]
"""Calls of programs while the batch is made: the lock and the contents, what is kept of the old
files, and each change."""


class Stand:
    """A box and the process that works in it, which can be killed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.tools = home / "tools"
        self.tools.mkdir()
        self.workspace = home / "toy-shell" / KEY / "workspace"
        self._controller: subprocess.Popen[bytes] | None = None

    def stand_still(self, name: str, call: int) -> None:
        (self.tools / "left").write_text(f"{call}\n")
        busybox = shutil.which("busybox")
        tool = self.tools / name
        tool.write_text(STANDS_STILL.format(tools=self.tools, name=name, busybox=busybox))
        tool.chmod(0o755)

    def work(self, what: str) -> None:
        argv = [sys.executable, "-m", "providers.shell.controller"]
        argv += [str(self.home), str(self.tools), what]
        self._controller = subprocess.Popen(argv, cwd=Path(__file__).parents[2])

    def kill(self) -> None:
        if self._controller is not None:
            self._controller.kill()
            self._controller.wait()

    async def hit(self) -> None:
        await until((self.tools / "hit").exists, what="the program that stands still")

    def files(self) -> dict[str, str]:
        found = {}
        for path in sorted(self.workspace.rglob("*")):
            name = str(path.relative_to(self.workspace))
            if path.is_symlink():
                found[name] = f"-> {path.readlink()}"
            elif path.is_file():
                found[name] = path.read_text()
        return found


@contextlib.asynccontextmanager
async def box_of(home: Path) -> AsyncIterator[Stand]:
    stand = Stand(home)
    made = provider(home, stand.tools)
    await made.create(BoxSpec(key=KEY, labels={"owner": "test"}))
    await made.close()
    try:
        yield stand
    finally:
        stand.kill()
        last = provider(home, stand.tools)
        await last.delete(KEY)
        await last.close()


@contextlib.asynccontextmanager
async def next_process(stand: Stand) -> AsyncIterator[Box]:
    for name in ("armed", "go"):
        (stand.tools / name).unlink(missing_ok=True)
    other = provider(stand.home, stand.tools)
    try:
        box = await other.get(KEY)
        assert box is not None
        yield box
    finally:
        await other.close()


@pytest.mark.timeout(120)
def test_a_command_outlives_the_process_that_asked_for_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with box_of(tmp_path) as stand:
            stand.work("run")
            count = stand.workspace / "count"
            await until(count.exists, what="the command")
            stand.kill()
            async with next_process(stand) as box:
                (stand.workspace / "go").touch()
                output = await box.run(OP, command(box))
            assert (output.state, output.exit_code) == ("exited", 0)
            assert output.stdout == b"up\ndone\n"
            assert count.read_text() == "x\n"

    asyncio.run(story())


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("program", "call"), [("tar", 1), ("mkfifo", 1), ("ln", 1), ("setsid", 1)])
def test_a_command_runs_once_if_its_script_goes_on(tmp_path: Path, program: str, call: int) -> None:
    """The operation is claimed and the command is not started when the process is killed."""

    async def story() -> None:
        async with box_of(tmp_path) as stand:
            stand.stand_still(program, call)
            stand.work("run")
            await stand.hit()
            stand.kill()
            (stand.workspace / "go").touch()
            (stand.tools / "armed").unlink()
            other = provider(stand.home, stand.tools)
            box = await other.get(KEY)
            assert box is not None
            asked = asyncio.create_task(box.run(OP, command(box)))
            (stand.tools / "go").touch()
            output = await asked
            await other.close()
            assert (output.state, output.stdout) == ("exited", b"up\ndone\n")
            assert (stand.workspace / "count").read_text() == "x\n"

    asyncio.run(story())


@pytest.mark.timeout(120)
def test_a_claimed_command_that_never_started_is_lost(tmp_path: Path) -> None:
    """Takes ten seconds: a script that is only slow must be given that time."""

    async def story() -> None:
        async with box_of(tmp_path) as stand:
            stand.stand_still("setsid", 1)
            stand.work("run")
            await stand.hit()
            stand.kill()
            ShellHost(stand.home, busybox=True).end(KEY)
            async with next_process(stand) as box:
                for _ in range(2):
                    assert (await box.run(OP, command(box))).state == "lost"
                assert await box.sessions() == 0
            assert not (stand.workspace / "count").exists(), "a lost command was started"

    asyncio.run(story())


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("program", "call"), MOMENTS)
def test_a_batch_is_undone_or_whole(tmp_path: Path, program: str, call: int) -> None:
    async def story() -> None:
        async with box_of(tmp_path) as stand:
            for name, text in BEFORE.items():
                (stand.workspace / name).parent.mkdir(exist_ok=True)
                (stand.workspace / name).write_text(text)
            stand.stand_still(program, call)
            stand.work("change")
            await stand.hit()
            stand.kill()
            ShellHost(stand.home, busybox=True).end(KEY)
            async with next_process(stand) as box:
                rule = ResolveRule(roots=[box.root])
                seen = {entry.path for entry in await box.list(box.root, rule)}
                assert stand.files() == BEFORE
                assert seen == {"old", "gone", "moved"}
                for _ in range(2):
                    await box.change(OP, batch(box), rule)
                    assert stand.files() == AFTER

    asyncio.run(story())


@pytest.mark.timeout(120)
def test_a_batch_whose_outcome_is_recorded_stays(tmp_path: Path) -> None:
    """The script is killed while it removes what it no longer needs."""

    async def story() -> None:
        async with box_of(tmp_path) as stand:
            for name, text in BEFORE.items():
                (stand.workspace / name).parent.mkdir(exist_ok=True)
                (stand.workspace / name).write_text(text)
            stand.stand_still("rm", 2)
            stand.work("change")
            await stand.hit()
            stand.kill()
            ShellHost(stand.home, busybox=True).end(KEY)
            async with next_process(stand) as box:
                rule = ResolveRule(roots=[box.root])
                await box.list(box.root, rule)
                assert stand.files() == AFTER
                (stand.workspace / "old").write_text("later")
                await box.change(OP, batch(box), rule)
                assert (stand.workspace / "old").read_text() == "later"
                assert not (stand.workspace / ".sandstream-stage").exists()

    asyncio.run(story())
