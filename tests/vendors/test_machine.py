"""The machine under every vendor box: its namespaces, its processes and its files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from pathlib import Path

import pytest
from e2b import AsyncSandbox
from vendors.box_files import PROGRAMS
from vendors.e2b_boxes import connection, until
from vendors.machine import Machine, MachineFailed, SpawnFailed
from vendors.process import VendorServer

ENVIRONMENT = {"HOME": "/home/user", "PATH": "/usr/bin:/bin"}


async def said(
    machine: Machine, command: str, *, privileged: bool = False, sudo: bool = False
) -> str:
    """The output of a command; its exit code must be 0. ``sudo``: it finds that program."""
    path = ENVIRONMENT["PATH"] + (f":{PROGRAMS}" if sudo else "")
    ours, theirs = os.pipe()
    try:
        process = await machine.spawn(
            ["/bin/sh", "-c", command],
            cwd="/home/user",
            env={**ENVIRONMENT, "PATH": path},
            stdout=theirs,
            stderr=theirs,
            privileged=privileged,
        )
    finally:
        os.close(theirs)
    with os.fdopen(ours) as output:
        text = await asyncio.to_thread(output.read)
    assert await process.wait() == 0, text
    return text


def test_a_box_has_namespaces_and_files_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        machine = await Machine.start(tmp_path / "box", extra_dirs=["/workspace"], hostname="far")
        try:
            assert (
                await said(machine, "id -un; hostname; echo 1 > /workspace/file") == "user\nfar\n"
            )
            assert machine.path("/workspace/file").read_text() == "1\n"
            assert "1" in (await said(machine, "ps -e -o pid=")).split()
            assert str(os.getpid()) not in (await said(machine, "ls /proc")).split()
            await said(machine, "mkdir /data; echo x > /data/x", privileged=True)
            assert await said(machine, "cat /data/x") == "x\n"
        finally:
            await machine.remove()
        assert not (tmp_path / "box").exists()

    asyncio.run(main())


def test_a_box_has_several_users(tmp_path: Path) -> None:
    async def main() -> None:
        machine = await Machine.start(tmp_path / "box", sudo=True)
        try:
            assert await said(machine, "id -u; sudo -n id -u", sudo=True) == "1000\n0\n"
            account = "echo ada:x:1001:1001::/:/bin/sh >> /etc/passwd"
            await said(machine, account, privileged=True)
            as_ada = "setpriv --reuid=ada --regid=1001 --clear-groups --"
            script = f"cd /tmp; {as_ada} touch a; {as_ada} touch /root/a 2>/dev/null; stat -c %U a"
            assert await said(machine, script, privileged=True) == "ada\n"
            refused = "echo x 2>/dev/null >> /etc/passwd || echo no; ls /root/a 2>/dev/null || :"
            assert await said(machine, refused) == "no\n"
            codes = "sudo -n sh -c 'exit 3' || echo $?; echo 1 | sudo -n cat; sudo -n nothing || :"
            assert await said(machine, codes, sudo=True) == "3\n1\n"
        finally:
            await machine.stop()
        machine = await Machine.start(tmp_path / "box")
        try:
            assert await said(machine, "id -u ada; command -v sudo || :", sudo=True) == "1001\n"
        finally:
            await machine.remove()

    asyncio.run(main())


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    async def main() -> None:
        machine = await Machine.start(tmp_path / "box")
        try:
            await said(machine, "ln -s /../../../home/user/a up; ln -s up/../b around; ln -s me me")
            root = machine.files.root
            assert machine.path("/home/user/up") == root / "home/user/a"
            assert machine.path("/home/user/around") == root / "home/user/b"
            assert machine.path("/home/user/up", follow=False) == root / "home/user/up"
            assert machine.path("/../../tmp/../home") == root / "home"
            assert machine.files.inside(root / "home/user") == "/home/user"
            for path, number in {
                "/home/user/me": errno.ELOOP,
                "/bin/new": errno.EROFS,
                "/etc/passwd": errno.EROFS,
                "/proc/1/environ": errno.ENOENT,
            }.items():
                with pytest.raises(OSError) as refused:
                    machine.path(path, write=True)
                assert refused.value.errno == number
        finally:
            await machine.remove()

    asyncio.run(main())


def test_processes_stop_and_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        machine = await Machine.start(tmp_path / "box")
        try:
            command = "while sleep 0.01; do echo >> beats; done"
            process = await machine.spawn(
                ["/bin/sh", "-c", command], cwd="/home/user", env=ENVIRONMENT
            )
            beats = machine.path("/home/user/beats")
            while not beats.exists():
                await asyncio.sleep(0.01)
            await machine.freeze()
            await asyncio.sleep(0.1)
            size = beats.stat().st_size
            await asyncio.sleep(0.1)
            assert beats.stat().st_size == size
            await machine.thaw()
            while beats.stat().st_size == size:
                await asyncio.sleep(0.01)
            assert await process.signal(signal.SIGTERM, group=True)
            assert await process.wait() == -signal.SIGTERM
            assert not await process.signal(signal.SIGTERM)
        finally:
            await machine.remove()

    asyncio.run(main())


def test_a_stop_keeps_the_files(tmp_path: Path) -> None:
    async def main() -> None:
        boot_id = "cat /proc/sys/kernel/random/boot_id"
        machine = await Machine.start(tmp_path / "box")
        first = await said(machine, f"echo 1 > file; {boot_id}")
        left = await machine.spawn(["/bin/sleep", "1000"])
        await machine.stop()
        assert await left.wait() == -signal.SIGKILL
        with pytest.raises(MachineFailed):
            await machine.spawn(["/bin/true"])
        machine = await Machine.start(tmp_path / "box", python=False)
        try:
            assert await said(machine, "cat file; command -v python3 || :") == "1\n"
            assert await said(machine, boot_id) != first
        finally:
            await machine.remove()

    asyncio.run(main())


def test_what_cannot_start_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        machine = await Machine.start(tmp_path / "box")
        try:
            for argv, cwd, stage in ((["/nothing"], "/", "exec"), (["/bin/true"], "/no", "cwd")):
                with pytest.raises(SpawnFailed) as failed:
                    await machine.spawn(argv, cwd=cwd)
                assert (failed.value.stage, failed.value.errno) == (stage, errno.ENOENT)
        finally:
            await machine.remove()

    asyncio.run(main())


def test_boxes_end_with_a_server_that_is_killed(tmp_path: Path) -> None:
    mark = f"{os.getpid()}.5"

    def running() -> bool:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if entry.read_bytes().split(b"\0")[:2] == [b"sleep", mark.encode()]:
                    return True
        return False

    async def main() -> None:
        with VendorServer.start("e2b", home=tmp_path) as vendor:
            box = await AsyncSandbox.create(**connection(vendor))
            handle = await box.commands.run(f"exec sleep {mark}", background=True, timeout=0)
            await until(running)
            await handle.disconnect()
            os.kill(vendor.pid, signal.SIGKILL)
            await until(lambda: not running())

    asyncio.run(main())
