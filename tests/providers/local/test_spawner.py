"""The process that starts commands: what becomes of them if a command kills or stops it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from providers.local.local_boxes import local_provider, new_spec, record_of, run, said, sh
from sandstream_providers.interface import Box, ExecSpec
from sandstream_providers.local import LocalProvider, cgroups
from support.waiting import until

FIND = """
spawner=$(grep -l '^PPid:\t1$' /proc/[0-9]*/status | while read file; do
  pid=${file%/status}; pid=${pid#/proc/}
  [ "$(tr '\\0' '\\n' < /proc/$pid/cmdline | tail -n +4 | head -1 | cut -c1-12)" = /.sandstream ] &&
    echo $pid
done)
"""


async def box_with_group(provider: LocalProvider) -> Box:
    if "cgroup" not in (await provider.check())["memory"]:
        pytest.skip("no memory control group is writable here")
    return await provider.create(new_spec())


@pytest.mark.parametrize("number", ["KILL", "STOP"])
def test_commands_are_started_after_it_was_killed_or_stopped(tmp_path: Path, number: str) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await box_with_group(provider)
            script = f"{FIND}\nkill -{number} $spawner && echo sent"
            assert (await sh(box, script)).stdout == b"sent\n"
            assert await said(box, "echo fine") == "fine\n"

    asyncio.run(main())


def test_a_running_command_keeps_its_outcome(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await box_with_group(provider)
            argv = ["sh", "-c", "read x; echo got $x; exit 7"]
            spec = ExecSpec(argv=argv, cwd=box.root, keep_stdin=True)
            waiting = await box.run("waits", spec, wait_s=0.5)
            assert waiting.state == "running"
            assert (await sh(box, f"{FIND}\nkill -KILL $spawner")).exit_code == 0
            output = await box.interact("go", waiting.session, b"it\n", wait_s=20)
            assert (output.exit_code, output.stdout) == (7, b"got it\n")

    asyncio.run(main())


def test_a_command_that_kills_it_at_once_runs_once(tmp_path: Path) -> None:
    """It may do so before the agent has heard that it was started."""

    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await box_with_group(provider)
            for _ in range(10):
                await run(box, "sh", "-c", "echo x >> started; kill -9 -1")
            assert await said(box, "wc -l < started") == "10\n"

    asyncio.run(main())


def test_what_it_reports_is_what_a_command_ended_with(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await box_with_group(provider)
            assert (await sh(box, "exit 3")).exit_code == 3
            assert (await sh(box, "kill -9 $$")).exit_code == 137
            assert (await run(box, "cat", stdin=b"x" * 300_000)).stdout == b"x" * 300_000
            assert (await run(box, "tty", tty=True)).stdout.startswith(b"/dev/pts/")
            folder = await run(box, "pwd", cwd="/tmp")
            assert folder.stdout == b"/tmp\n"
            many = [sh(box, f"sleep 0.1; exit {code}") for code in range(30)]
            assert [it.exit_code for it in await asyncio.gather(*many)] == list(range(30))

    asyncio.run(main())


def test_a_command_that_was_killed_leaves_room_at_once(tmp_path: Path) -> None:
    """Though the process that tells of its end is slow."""

    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await box_with_group(provider)
            await box.run("long", ExecSpec(argv=["sleep", "60"], cwd=box.root), wait_s=0)
            agent = record_of(tmp_path, box.key).inner
            assert agent is not None
            (spawner,) = [it for it in _children(agent.pid) if _words(it) == _words(agent.pid)]
            (command,) = _children(spawner)
            with frozen(spawner):
                killing = asyncio.create_task(box.kill("long"))
                await until(lambda: " (sleep) Z " in Path(f"/proc/{command}/stat").read_text())
                await asyncio.wait([killing], timeout=0.5)
                assert not killing.done()
            await killing
            assert await box.sessions() == 0

    asyncio.run(main())


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """One process stands still without a signal, of which its parent would hear."""
    hierarchies = cgroups.find_hierarchies()
    group = (hierarchies.v2 or hierarchies.v1["freezer"]) / f"frozen-{pid}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        cgroups.freeze([str(group)], True)
        yield
    finally:
        cgroups.freeze([str(group)], False)
        (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def _children(pid: int) -> list[int]:
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
