"""Boxes whose programs can do less, and channels that lose answers: the same outcomes.

Programs of a box are replaced by others that lack something, as older or smaller builds do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from contract.shell_host import ShellHost, ToyShell
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.box_host import HostedBox
from sandstream_providers.interface import (
    Box,
    BoxSpec,
    ExecSpec,
    FileWrite,
    ProviderError,
    ResolveRule,
)
from sandstream_providers.shell import commands
from sandstream_providers.shell.channel import Answer

BUSYBOX = shutil.which("busybox")
WHOLE_SECONDS = f"""#!/bin/sh
{BUSYBOX} stat "$@" | {BUSYBOX} sed 's/[.][0-9]\\{{9\\}} /.000000000 /g'
"""
NO_PARTS_OF_SECONDS = f"""#!/bin/sh
case $1 in *.*) echo "sleep: invalid number '$1'" >&2; exit 1 ;; esac
exec {BUSYBOX} sleep "$@"
"""
NO_ZERO_LINES = f"""#!/bin/sh
case $1 in -*z*) echo "grep: invalid option -- 'z'" >&2; exit 2 ;; esac
exec {BUSYBOX} grep "$@"
"""
BUSY_BEFORE_IT_READS = f"""#!/bin/sh
count=0
while [ $count -lt 300000 ]; do count=$((count + 1)); done
exec {BUSYBOX} dd "$@"
"""
"""As on a machine that has too much to do: half a second of work before the first byte."""
DETACHED = """
import os, time
if os.fork() == 0:
    os.setsid()
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
while not os.path.exists("pid"):
    time.sleep(0.01)
"""


class ForgetfulHost(ShellHost):
    """The answer to every other script is lost after the script has run."""

    async def open_shell(self, box: HostedBox) -> ToyShell:
        return ForgetfulShell(self, box)


class ForgetfulShell(ToyShell):
    scripts = 0

    async def run(self, script: str, data: bytes = b"", *, timeout_s: float = 30.0) -> Answer:
        answer = await super().run(script, data, timeout_s=timeout_s)
        ForgetfulShell.scripts += 1
        if ForgetfulShell.scripts % 2:
            raise ConnectionResetError("the answer was lost")
        return answer


@contextlib.asynccontextmanager
async def box_with(
    home: Path, tools: Mapping[str, str], kind: type[ShellHost] = ShellHost
) -> AsyncIterator[Box]:
    """A box whose scripts find these programs first."""
    (home / "tools").mkdir()
    for name, text in tools.items():
        (home / "tools" / name).write_text(text)
        (home / "tools" / name).chmod(0o755)
    provider = AgentProvider(kind(home, busybox=True, tools=home / "tools"))
    try:
        yield await provider.create(BoxSpec(key="plain", labels={"owner": "test"}))
    finally:
        await provider.delete("plain")
        await provider.close()


async def sh(box: Box, op: str, script: str, timeout_s: float = 30.0) -> bytes:
    spec = ExecSpec(argv=["sh", "-c", script], cwd=box.root, timeout_s=timeout_s)
    output = await box.run(op, spec)
    assert output.exit_code == 0, output
    return output.stdout


async def scanned(box: Box) -> dict[str, bytes | None]:
    return {item.entry.path: item.data async for item in box.scan([], full=False)}


@pytest.mark.needs_process
def test_a_change_within_the_same_second_is_found(tmp_path: Path) -> None:
    async def story() -> None:
        async with box_with(tmp_path, {"stat": WHOLE_SECONDS}) as box:
            for number in range(3):
                await sh(box, f"op-{number}", f"printf {number}{number} >file")
                assert await scanned(box) == {"file": f"{number}{number}".encode()}

    asyncio.run(story())


@pytest.mark.needs_process
def test_what_is_primed_is_not_believed_after_a_change(tmp_path: Path) -> None:
    """Takes two seconds: a change in the second of the first look could not be seen."""

    async def story() -> None:
        async with box_with(tmp_path, {"stat": WHOLE_SECONDS}) as box:
            await sh(box, "op-1", "printf 11 >file")
            entry = await box.stat(f"{box.root}/file", ResolveRule(roots=[box.root]))
            known = type(entry)(path="file", kind="file", size=2, digest="f" * 64)
            await box.prime([known])
            await sh(box, "op-2", "printf 22 >file")
            assert await scanned(box) == {"file": b"22"}

    asyncio.run(story())


@pytest.mark.needs_process
@pytest.mark.parametrize(
    "tools",
    [{"grep": NO_ZERO_LINES}, {"sleep": NO_PARTS_OF_SECONDS}],
    ids=lambda it: next(iter(it)),
)
def test_a_detached_process_is_found_and_ended(tmp_path: Path, tools: dict[str, str]) -> None:
    async def story() -> None:
        async with box_with(tmp_path, tools) as box:
            spec = ExecSpec(argv=["python3", "-c", DETACHED], cwd=box.root, timeout_s=30)
            assert (await box.run("op-1", spec)).exit_code == 0
            rule = ResolveRule(roots=[box.root])
            pid = (await box.read(f"{box.root}/pid", rule)).decode()
            assert _state(pid) == "S"
            await box.kill("op-1")
            assert _state(pid) in ("", "Z")
            slow = ExecSpec(argv=["sleep", "60"], cwd=box.root, timeout_s=0.5)
            assert (await box.run("op-2", slow)).killed == "timeout"

    asyncio.run(story())


def _state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def test_every_operation_happens_once_although_answers_are_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with box_with(tmp_path, {}, ForgetfulHost) as box:
            rule = ResolveRule(roots=[box.root])
            assert await sh(box, "op-1", "echo x >> count; cat count") == b"x\n"
            await box.append("op-2", f"{box.root}/count", b"y\n", rule, at=2)
            await box.make_dir("op-3", f"{box.root}/dir", rule)
            await box.move("op-4", f"{box.root}/count", f"{box.root}/dir/count", rule)
            writes = [FileWrite(path=f"{box.root}/new", data=b"new", exclusive=True)]
            await box.change("op-5", writes, rule)
            await box.remove("op-6", f"{box.root}/new", rule)
            await box.fill("op-7", [FileWrite(path=f"{box.root}/dir/filled", data=b"f")], rule)
            argv = ["sh", "-c", "read a; read b; echo $a$b"]
            talk = ExecSpec(argv=argv, cwd=box.root, keep_stdin=True, timeout_s=30)
            started = await box.run("op-8", talk, wait_s=0)
            await box.interact("op-9", started.session, b"one\n", wait_s=0)
            ended = await box.interact("op-10", started.session, b"two\n", wait_s=20)
            assert (ended.state, ended.stdout) == ("exited", b"onetwo\n")
            assert await scanned(box) == {"dir": None, "dir/count": b"x\ny\n", "dir/filled": b"f"}
            assert await box.first_request("op-1", "7@1") == "7@1"

    asyncio.run(story())


def test_a_box_without_a_needed_program_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        provider = AgentProvider(ShellHost(tmp_path, busybox=True))
        (tmp_path / "applets").mkdir()
        for name in ("sh", "mkdir", "mv", "cat", "stat", "grep", "sleep"):
            assert BUSYBOX is not None
            (tmp_path / "applets" / name).symlink_to(BUSYBOX)
        with pytest.raises(ProviderError, match=r"it has no .*setsid"):
            await provider.create(BoxSpec(key="bare", labels={"owner": "test"}))
        await provider.delete("bare")
        await provider.close()

    asyncio.run(story())


@pytest.mark.needs_process
def test_the_oldest_commands_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "PRUNE_EVERY", 2)

    async def story() -> None:
        async with box_with(tmp_path, {}) as box:
            running = ExecSpec(argv=["sleep", "60"], cwd=box.root, timeout_s=50)
            await box.run("running", running, wait_s=0)
            jobs = tmp_path / "toy-shell" / "plain" / "records" / "jobs"
            for number in range(1001):
                job = jobs / f"old-{number}"
                job.mkdir()
                (job / "rc").write_text("0 - - -\n")
                os.utime(job, (number + 2, number + 2))
            await sh(box, "new", "echo x >> count")
            names = {path.name for path in jobs.iterdir()}
            assert names == {"running", "new", *(f"old-{number}" for number in range(2, 1001))}
            assert (await box.run("running", running, wait_s=0)).state == "running"

    asyncio.run(story())


@pytest.mark.needs_process
@pytest.mark.parametrize("script", ["echo all", "sleep 30 & echo all"])
def test_output_is_whole_on_a_machine_that_is_too_busy_to_read_it(
    tmp_path: Path, script: str
) -> None:
    """Also if a process in the background keeps the stream open."""

    async def story() -> None:
        async with box_with(tmp_path, {"dd": BUSY_BEFORE_IT_READS}) as box:
            spec = ExecSpec(argv=["sh", "-c", script], cwd=box.root, timeout_s=40)
            output = await box.run("busy", spec)
            assert (output.exit_code, output.stdout) == (0, b"all\n")
            await box.kill_all()

    asyncio.run(story())
