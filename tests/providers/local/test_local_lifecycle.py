"""A box on this machine from its making to its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from pathlib import Path
from typing import Literal

import pytest
from providers.local.local_boxes import (
    OWNER,
    groups_with,
    inner_pid,
    local_provider,
    names_below,
    new_spec,
    outer_pid,
    pids_in,
    pids_with,
    record_of,
    run,
    said,
    sh,
    without_groups,
)
from sandstream_providers.interface import (
    Box,
    BoxGone,
    ExecSpec,
    Grant,
    Limits,
    PortUnavailable,
    ProviderError,
)
from sandstream_providers.local import cgroups
from sandstream_providers.local.cgroups import is_frozen
from sandstream_providers.processes import is_alive, is_stopped, mark, until

Isolation = Literal["required", "none"]
BOTH: list[Isolation] = ["required", "none"]


@pytest.fixture(params=BOTH)
def isolation(request: pytest.FixtureRequest) -> Isolation:
    found: Isolation = request.param
    return found


def test_a_box_runs_commands_in_its_root(tmp_path: Path, isolation: Isolation) -> None:
    async def main() -> None:
        async with local_provider(tmp_path, isolation=isolation) as provider:
            box = await provider.create(new_spec(env={"COLOUR": "green"}))
            assert await said(box, "pwd; echo $HOME $COLOUR") == (f"{box.root}\n{box.root} green\n")
            assert (box.root == "/workspace") is (isolation == "required")

    asyncio.run(main())


def test_the_root_is_where_the_spec_says(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await provider.create(new_spec(root="/home/me/project"))
            assert await said(box, "touch a; pwd; ls") == "/home/me/project\na\n"
            with pytest.raises(ProviderError, match="the system lies there"):
                await provider.create(new_spec(root="/usr/share"))

    asyncio.run(main())


def test_create_again_gives_the_same_box(tmp_path: Path, isolation: Isolation) -> None:
    async def main() -> None:
        async with local_provider(tmp_path, isolation=isolation) as provider:
            spec = new_spec()
            first = await provider.create(spec)
            await said(first, "echo kept > file")
            pid = outer_pid(tmp_path, spec.key)
            second = await provider.create(spec)
            assert await said(second, "cat file") == "kept\n"
            assert outer_pid(tmp_path, spec.key) == pid

    asyncio.run(main())


def test_there_is_no_box_that_was_not_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            assert await provider.get("nobody") is None
            await provider.delete("nobody")
            await provider.stop("nobody")
            with pytest.raises(BoxGone):
                await provider.pause("nobody")
            with pytest.raises(ProviderError, match="not a key"):
                await provider.create(new_spec(key="../up"))

    asyncio.run(main())


def test_a_stopped_box_starts_again_with_its_files(tmp_path: Path, isolation: Isolation) -> None:
    async def main() -> None:
        async with local_provider(tmp_path, isolation=isolation) as provider:
            spec = new_spec()
            box = await provider.create(spec)
            await said(box, "echo kept > file")
            await provider.stop(spec.key)
            assert not is_alive(record_of(tmp_path, spec.key).inner)
            assert [info.state for info in await provider.list_owned(OWNER)] == ["stopped"]
            again = await provider.get(spec.key)
            assert again is not None
            assert await said(again, "cat file") == "kept\n"
            assert [info.state for info in await provider.list_owned(OWNER)] == ["running"]

    asyncio.run(main())


@pytest.mark.parametrize("which", ["outer", "inner"])
def test_a_box_whose_process_was_killed_starts_again(tmp_path: Path, which: str) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            spec = new_spec(ports=[8000])
            box = await provider.create(spec)
            await said(box, "echo kept > file")
            old = record_of(tmp_path, spec.key)
            killed = {"outer": outer_pid, "inner": inner_pid}[which](tmp_path, spec.key)
            process = mark(killed)
            os.kill(killed, signal.SIGKILL)
            assert await until(lambda: not is_alive(process), timeout_s=20)
            again = await provider.get(spec.key)
            assert again is not None
            assert await said(again, "cat file") == "kept\n"
            new = record_of(tmp_path, spec.key)
            assert not is_alive(old.outer) and not is_alive(old.inner)
            assert is_alive(new.inner)
            assert (await again.port(8000))[1] == new.ports[8000]

    asyncio.run(main())


def test_a_dead_box_in_memory_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            spec = new_spec(limits=Limits(disk_mb=20))
            await provider.create(spec)
            os.kill(inner_pid(tmp_path, spec.key), signal.SIGKILL)
            process = record_of(tmp_path, spec.key).inner
            assert await until(lambda: not is_alive(process), timeout_s=20)
            assert await provider.get(spec.key) is None
            with pytest.raises(BoxGone, match="kept in memory"):
                await provider.create(spec)

    asyncio.run(main())


def test_a_box_that_cannot_start_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            missing = Grant(path="/data", host_path=str(tmp_path / "missing"))
            spec = new_spec(grants=[missing])
            with pytest.raises(ProviderError, match="missing"):
                await provider.create(spec)
            assert await provider.list_owned(OWNER) == []
            assert not list((tmp_path / "sandboxes").iterdir())
            assert groups_with(spec.key) == []

    asyncio.run(main())


def test_a_grant_shows_a_directory_of_the_host(tmp_path: Path) -> None:
    async def main() -> None:
        shared = Path("/var/tmp") / f"sandstream-test-{os.getpid()}"
        shared.mkdir(mode=0o755)
        (shared / "book").write_text("read me\n")
        try:
            async with local_provider(tmp_path) as provider:
                grant = Grant(path="/data", host_path=str(shared))
                box = await provider.create(new_spec(grants=[grant]))
                assert await said(box, "cat /data/book") == "read me\n"
                assert (await sh(box, "echo x > /data/book")).exit_code != 0
        finally:
            (shared / "book").unlink()
            shared.rmdir()

    asyncio.run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="only a box that is another user can be kept out")
def test_a_grant_behind_a_closed_directory_says_which(tmp_path: Path) -> None:
    async def main() -> None:
        closed = Path("/var/tmp") / f"sandstream-closed-{os.getpid()}"
        closed.mkdir(mode=0o700)
        inner = closed / "data"
        inner.mkdir()
        try:
            async with local_provider(tmp_path) as provider:
                grant = Grant(path="/data", host_path=str(inner))
                with pytest.raises(ProviderError, match=f"{closed} is closed to others"):
                    await provider.create(new_spec(grants=[grant]))
        finally:
            inner.rmdir()
            closed.rmdir()

    asyncio.run(main())


SERVER = """
import socket
listener = socket.create_server(("127.0.0.1", 8000))
print("up", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(b"hello " + connection.recv(10))
    connection.close()
"""


async def _greeted(box: Box) -> bytes:
    """Start the server in the box and speak to it through the host."""
    up = asyncio.Event()
    spec = ExecSpec(argv=["python3", "-c", SERVER], cwd=box.root)
    serving = asyncio.create_task(box.run("serve", spec, on_output=lambda *_: up.set()))
    await up.wait()
    reader, writer = await asyncio.open_connection(*await box.port(8000))
    writer.write(b"you")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    await box.kill("serve")
    await serving
    return answer


def test_ports_lead_into_the_box(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            boxes = [await provider.create(new_spec(ports=[8000])) for _ in range(2)]
            assert [await _greeted(box) for box in boxes] == [b"hello you"] * 2
            with pytest.raises(PortUnavailable):
                await boxes[0].port(8001)

    asyncio.run(main())


@pytest.mark.parametrize("by", ["groups", "signals"])
def test_a_paused_box_stands_still(tmp_path: Path, by: str, isolation: Isolation) -> None:
    async def main() -> None:
        async with local_provider(tmp_path, isolation=isolation) as provider:
            if by == "signals":
                await without_groups(provider)
            spec = new_spec()
            box = await provider.create(spec)
            groups = record_of(tmp_path, spec.key).cgroups
            if by == "groups" and not groups:
                pytest.skip("no control group is writable here")
            marker = f"3601.{os.getpid()}{by}"
            program = f"while True: pass  # {marker}"
            job = ExecSpec(argv=["/usr/bin/python3", "-c", program], cwd=box.root)
            await box.run("spin", job, wait_s=0.1)
            (pid,) = pids_with(marker)
            await provider.pause(spec.key)
            assert [info.state for info in await provider.list_owned(OWNER)] == ["paused"]
            if by == "signals":
                assert is_stopped(pid)
                assert is_stopped(inner_pid(tmp_path, spec.key))
            else:
                assert is_frozen(groups)
                assert pid in pids_in(groups)
            await provider.resume(spec.key)
            assert not is_stopped(pid)
            assert await said(box, "echo awake") == "awake\n"
            await provider.pause(spec.key)
            awake = await provider.get(spec.key)
            assert awake is not None
            assert await said(awake, "echo awake") == "awake\n"
            await provider.pause(spec.key)
            await provider.delete(spec.key)
            assert pids_with(marker) == []

    asyncio.run(main())


def test_delete_leaves_nothing(tmp_path: Path, isolation: Isolation) -> None:
    async def main() -> None:
        async with local_provider(tmp_path, isolation=isolation) as provider:
            spec = new_spec(limits=Limits(cpus=0.5))
            box = await provider.create(spec)
            marker = f"3600.{os.getpid()}"
            await said(box, f"setsid sleep {marker} </dev/null >/dev/null 2>&1 & echo started")
            deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
            assert (await run(box, "python3", "-c", deep)).exit_code == 0
            await said(box, "mkdir -p a/b; touch a/b/c; chmod 000 a/b; chmod 000 a; ln -s / out")
            await provider.delete(spec.key)
            assert pids_with(marker) == []
            assert pids_with(spec.key) == []
            assert groups_with(spec.key) == []
            assert names_below(tmp_path) == {"sandboxes", "locks"}
            assert await provider.get(spec.key) is None
            await provider.delete(spec.key)

    asyncio.run(main())


def test_a_removal_that_was_cut_short_is_finished_later(tmp_path: Path) -> None:
    async def main() -> None:
        rest = tmp_path / "sandboxes" / ".deleted-some-key"
        rest.mkdir(parents=True)
        async with local_provider(tmp_path) as provider:
            await provider.check()
            assert not rest.exists()

    asyncio.run(main())


def test_only_the_owners_boxes_are_listed(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            spec = new_spec()
            await provider.create(spec)
            assert await provider.list_owned("somebody else") == []
            (info,) = await provider.list_owned(OWNER)
            assert (info.key, info.labels, info.state) == (spec.key, {"owner": OWNER}, "running")

    asyncio.run(main())


def test_what_is_kept_is_private_and_a_long_home_has_its_socket_elsewhere(tmp_path: Path) -> None:
    async def main() -> None:
        home = tmp_path / ("long" * 30)
        async with local_provider(home) as provider:
            spec = new_spec()
            box = await provider.create(spec)
            assert await said(box, "echo here") == "here\n"
            for path in (home, home / "sandboxes", home / "sandboxes" / spec.key):
                assert stat.S_IMODE(path.stat().st_mode) == 0o700
            assert (
                stat.S_IMODE((home / "sandboxes" / spec.key / "box.json").stat().st_mode) == 0o600
            )

    asyncio.run(main())


def test_the_network_is_the_hosts_only_if_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                address = listener.getsockname()
                dial = f"import socket; socket.create_connection({address})"
                open_box = await provider.create(new_spec(network="host"))
                assert (await run(open_box, "python3", "-c", dial)).exit_code == 0
                closed_box = await provider.create(new_spec())
                assert (await run(closed_box, "python3", "-c", dial)).exit_code == 1

    asyncio.run(main())


def test_check_says_what_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path / "a") as provider:
            found = await provider.check()
            assert found["isolation"].startswith("bubblewrap 0.")
            assert {"isolated", "pty", "ports", "pause", "limits.disk"} <= provider.powers
        async with local_provider(tmp_path / "b", isolation="none") as provider:
            assert (await provider.check())["isolation"] == "none"
            assert "isolated" not in provider.powers

    asyncio.run(main())


def test_a_group_that_is_removed_while_it_is_used() -> None:
    hierarchies = cgroups.find_hierarchies()
    group = (hierarchies.v2 or hierarchies.v1["freezer"]) / f"removed-{os.getpid()}"
    group.mkdir()
    with (group / "cgroup.procs").open() as file:
        group.rmdir()
        with pytest.raises(OSError, match="No such device"):
            file.read()
        with cgroups.unless_gone():
            file.read()
    assert not cgroups.freeze([str(group)], True)
    assert not cgroups.is_frozen([str(group)])
    cgroups.kill([str(group)])
