"""A box that nobody can reach or wants any more ends by itself, with all of its processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Literal

import pytest
from providers.local.local_boxes import (
    groups_with,
    inner_pid,
    local_provider,
    new_spec,
    outer_pid,
    pids_with,
    record_of,
    said,
)
from sandstream_providers.interface import ExecSpec, Limits
from sandstream_providers.leases import Patience
from sandstream_providers.local import LocalProvider, cage, cgroups, launch
from sandstream_providers.local.cgroups import find_hierarchies
from sandstream_providers.local.records import Layout
from sandstream_providers.processes import (
    PATH,
    ChildFds,
    _spawn,
    descendants,
    is_alive,
    until,
)

Isolation = Literal["required", "none"]
BOTH: list[Isolation] = ["required", "none"]
SOON = Patience(idle_s=0.5, busy_s=600)


def sleeper(number: int) -> tuple[ExecSpec, str]:
    """A command that runs until it is ended, and what its command line holds."""
    marker = f"36{number}.{os.getpid()}"
    return ExecSpec(argv=["sleep", marker], cwd="/"), f"sleep\0{marker}"


async def all_gone(key: str, *markers: str) -> None:
    gone = await until(lambda: not any(map(pids_with, (key, *markers))), timeout_s=20)
    assert gone, f"still running: {[pids_with(it) for it in (key, *markers)]}"


@pytest.mark.parametrize("which", ["launcher", "bubblewrap", "agent"])
def test_killing_any_process_of_a_box_ends_all(tmp_path: Path, which: str) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            spec = new_spec()
            box = await provider.create(spec)
            command, marker = sleeper(1)
            await box.run("sleep", command, wait_s=0.1)
            assert pids_with(marker)
            outer = outer_pid(tmp_path, spec.key)
            killed = {
                "launcher": outer,
                "bubblewrap": descendants(outer)[0],
                "agent": inner_pid(tmp_path, spec.key),
            }
            os.kill(killed[which], signal.SIGKILL)
            await all_gone(spec.key, marker)
            if which != "launcher":  # the one that removes the groups
                assert await until(lambda: not groups_with(spec.key), timeout_s=20)

    asyncio.run(main())


def test_the_end_of_a_box_completes_without_the_process_that_began_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            spec = new_spec()
            await provider.create(spec)
            ending = asyncio.create_task(
                launch.end(Layout(tmp_path), record_of(tmp_path, spec.key))
            )
            await asyncio.sleep(0)  # the signals are sent, nothing has been waited for
            ending.cancel()
            await all_gone(spec.key)
            assert await until(lambda: not groups_with(spec.key), timeout_s=20)

    asyncio.run(main())


@pytest.mark.parametrize("isolation", BOTH)
def test_a_box_whose_home_was_removed_ends(tmp_path: Path, isolation: Isolation) -> None:
    async def main() -> None:
        async with local_provider(tmp_path / "home", isolation=isolation) as provider:
            spec = new_spec()
            box = await provider.create(spec)
            command, marker = sleeper(2)
            await box.run("sleep", command, wait_s=0.1)
            outer = record_of(tmp_path / "home", spec.key).outer
            shutil.rmtree(tmp_path / "home")
            await all_gone(spec.key, marker)
            assert await until(lambda: not is_alive(outer), timeout_s=20)
            if isolation == "required":
                assert await until(lambda: not groups_with(spec.key), timeout_s=20)

    asyncio.run(main())


@pytest.mark.parametrize("isolation", BOTH)
def test_a_box_that_nobody_holds_ends_and_starts_again(
    tmp_path: Path, isolation: Isolation
) -> None:
    async def main() -> None:
        async with local_provider(tmp_path, isolation=isolation, patience=SOON) as provider:
            spec = new_spec()
            box = await provider.create(spec)
            await said(box, "echo kept > file; (setsid sleep 3601 &) >&- 2>&-")
            await provider.close()  # as its end would
            assert await until(
                lambda: not is_alive(record_of(tmp_path, spec.key).outer), timeout_s=20
            )
            await all_gone(spec.key)
            again = await provider.get(spec.key)
            assert again is not None
            assert await said(again, "cat file") == "kept\n"

    asyncio.run(main())


def test_a_box_lives_on_for_its_command_and_keeps_the_result(tmp_path: Path) -> None:
    """The promise to whoever comes back after a crash: the command ran once, to its end."""

    async def main() -> None:
        async with local_provider(tmp_path, patience=SOON) as provider:
            spec = new_spec()
            box = await provider.create(spec)
            script = "echo begun >> runs; while ! test -e go; do sleep 0.1; done; echo done"
            command = ExecSpec(argv=["sh", "-c", script], cwd=box.root)
            await box.run("work", command, wait_s=0.1)
            await provider.close()
            first = record_of(tmp_path, spec.key).inner
            await asyncio.sleep(4 * SOON.idle_s)  # an idle box would have ended by now
            assert is_alive(first)
            (tmp_path / "sandboxes" / spec.key / "workspace" / "go").touch()
            assert await until(lambda: not is_alive(first), timeout_s=20)
            again = await provider.get(spec.key)
            assert again is not None
            output = await again.run("work", command)
            assert (output.exit_code, output.stdout) == (0, b"done\n")
            assert await said(again, "cat runs") == "begun\n"

    asyncio.run(main())


def test_a_box_is_held_by_whoever_wants_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path, patience=SOON) as provider:
            spec = new_spec()
            await provider.create(spec)
            first = record_of(tmp_path, spec.key).inner
            other = LocalProvider(tmp_path)
            other.hold(spec.key)
            await provider.close()
            await asyncio.sleep(4 * SOON.idle_s)
            assert is_alive(first)
            await other.close()
            assert await until(lambda: not is_alive(first), timeout_s=20)

    asyncio.run(main())


def test_an_ending_process_ends_its_idle_boxes(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            idle, busy, left = new_spec(), new_spec(), new_spec()
            await said(await provider.create(idle), "true")
            command, marker = sleeper(3)
            await (await provider.create(busy)).run("sleep", command, wait_s=0.1)
            await said(await provider.create(left), "setsid sleep 3604 > /dev/null 2>&1 &")
            await provider.stop_idle()
            assert pids_with(idle.key) == []
            assert groups_with(idle.key) == []
            assert pids_with(marker), "a command that runs on has its own end"
            assert pids_with(left.key), "and so has what a command left in the background"

    asyncio.run(main())


def test_a_box_that_was_being_made_when_its_process_ends(tmp_path: Path) -> None:
    """The end of an event loop cancels whoever makes a box."""

    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            spec = new_spec()
            making = asyncio.ensure_future(provider.create(spec))
            layout = Layout(tmp_path)

            def is_under_way() -> bool:
                record = layout.read(spec.key)
                return record is not None and record.outer is not None

            while not is_under_way() and not making.done():
                await asyncio.sleep(0)
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            assert making.cancelled()
            await provider.stop_idle()
            assert pids_with(spec.key) == []
            assert groups_with(spec.key) == []

    asyncio.run(main())


def test_a_group_that_is_in_use_for_a_while_is_removed_all_the_same() -> None:
    """The kernel lets go of the last processes a moment after they have ended."""
    hierarchies = find_hierarchies()
    groups = cgroups.plan(hierarchies, f"t-{uuid.uuid4().hex[:12]}", Limits(processes=50))
    if not groups.paths:
        pytest.skip("no control group is writable here")
    waits, go = os.pipe()
    with ChildFds() as fds:
        fds.add(waits)
        if groups.commands is not None:
            fds.add(waits)
        script = cage.launcher(["true"], groups=groups, mounts=[], stays=True)
        pid = _spawn(script, {"PATH": PATH}, fds, 2)
    cgroups.make(hierarchies, groups, Limits(processes=50))
    with subprocess.Popen(["sleep", "1"]) as busy:
        for group in groups.to_join:
            (Path(group) / "cgroup.procs").write_text(str(busy.pid))
        os.write(go, b"go\n")
        os.waitpid(pid, 0)
    os.close(waits)
    os.close(go)
    assert [path for path in groups.paths if path.exists()] == []
