"""What the contract does not ask: other links, other kinds of containers, many at once, orphans."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from providers.docker.docker_boxes import OWNER, docker_provider, inspect, is_there, new_spec
from providers.local.local_boxes import run, said, sh
from sandstream_providers.box.start import new_token
from sandstream_providers.docker import links
from sandstream_providers.docker.end import ours
from sandstream_providers.docker.host import DockerHost
from sandstream_providers.interface import BoxGone, Limits
from sandstream_providers.leases import Patience
from support.engines import engine

MANY = 50
MAKER = """
import asyncio, sys, time
from pathlib import Path
from providers.docker.docker_boxes import new_spec
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.host import DockerHost
from sandstream_providers.leases import Patience

async def main(home, url, key, owner):
    host = DockerHost(Path(home), Engine(url), patience=Patience(idle_s=0.4, busy_s=0.4))
    await AgentProvider(host).create(new_spec(key=key, labels={"owner": owner}))
    print("made", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


def test_an_exec_stream_where_the_socket_does_not_cross(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            host = provider.host
            assert isinstance(host, DockerHost)
            host.starter.links[""] = links.EXEC
            box = await provider.create(new_spec())
            assert await said(box, "echo fine") == "fine\n"
            assert (await provider.check())["link"] == links.EXEC
            assert (await sh(box, "echo x > /.sandstream/run/y")).exit_code != 0

    asyncio.run(story())


def test_a_box_whose_maker_died_right_after_its_start(tmp_path: Path) -> None:
    """The container runs, and its agent is not up yet: the next process waits for it."""

    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            host = provider.host
            assert isinstance(host, DockerHost)
            spec = new_spec()
            box = await provider.create(spec)
            await said(box, "echo mine > file")
            await provider.stop(spec.key)
            record, seen = host.folders.read(spec.key), await ours(host.engine, spec.key)
            assert record is not None and seen is not None
            record = msgspec.structs.replace(record, token=new_token(), link="")
            host.folders.write(record)
            await host.starter._brief(record, seen)
            await host.engine.call("start", lambda api: api.start(seen.id))
            again = await provider.get(spec.key)
            assert again is not None
            assert await said(again, "cat file") == "mine\n"
            record = host.folders.read(spec.key)
            assert record is not None and record.link

    asyncio.run(story())


def test_a_read_only_root(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            spec = new_spec(options={"read_only": True})
            box = await provider.create(spec)
            assert await said(box, "echo mine > file; echo x > /tmp/y; cat file") == "mine\n"
            refused = await sh(box, "touch /etc/x /var/x /home/user/x")
            assert refused.stderr.count(b"Read-only file system") == 3
            await provider.stop(spec.key)
            again = await provider.get(spec.key)
            assert again is not None
            assert await said(again, "cat file; id -u") == "mine\n1000\n"
            volumes = {it["Name"] for it in inspect(spec.key)["Mounts"] if it["Type"] == "volume"}
            assert len(volumes) == 2
            await provider.delete(spec.key)
            left = engine.ask(engine.ensure(), "/volumes")["Volumes"] or []
            assert not volumes & {it["Name"] for it in left}

    asyncio.run(story())


def test_users_and_groups(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            options = {"users": ["ada", "bob"], "groups": {"team": ["ada", "bob"], "user": ["bob"]}}
            box = await provider.create(new_spec(options=options))
            assert await said(box, "id -un; id -Gn ada; id -Gn bob") == (
                "root\nada team\nbob user team\n"
            )
            as_ada = ("setpriv", "--reuid=ada", "--regid=ada", "--init-groups", "--")
            done = await run(box, *as_ada, "sh", "-c", "echo mine > file; stat -c %U file; id -un")
            assert done.stdout == b"ada\nada\n", done
            assert (await run(box, *as_ada, "touch", "/etc/x")).exit_code != 0
            caps = await said(box, "grep CapEff /proc/self/status")
            assert caps.split()[1] == "00000000000000eb"  # six, none of them the system's

    asyncio.run(story())


def test_the_user_of_the_image_and_another_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            for user, uid in (("root", "0"), ("1234:1234", "1234"), ("user", "1000")):
                box = await provider.create(new_spec(options={"user": user}))
                assert await said(box, "id -u; touch file; stat -c %u file") == f"{uid}\n{uid}\n"
                # not even root may do what root does
                assert (await sh(box, "chown 7 file; mount -t tmpfs x /mnt")).exit_code != 0
                assert (await sh(box, "echo x > /.sandstream/run/x")).exit_code != 0

    asyncio.run(story())


def test_a_container_that_was_killed_for_its_memory(tmp_path: Path) -> None:
    """A command is ended, not the box."""

    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            box = await provider.create(new_spec(limits=Limits(memory_mb=80)))
            many = "for i in 1 2 3 4 5 6 7 8; do head -c 30m /dev/zero | tail & done; wait"
            await sh(box, many)
            assert await said(box, "echo fine") == "fine\n"

    asyncio.run(story())


def test_a_disk_limit_keeps_the_files_in_memory(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            spec = new_spec(limits=Limits(disk_mb=8))
            box = await provider.create(spec)
            assert "8.0M" in await said(box, "df -h --output=size /workspace")
            await provider.stop(spec.key)
            assert await provider.get(spec.key) is None
            with pytest.raises(BoxGone, match="in memory"):
                await provider.create(spec)

    asyncio.run(story())


def test_a_box_ends_when_the_process_that_held_it_was_killed(tmp_path: Path) -> None:
    key = new_spec().key
    argv = [sys.executable, "-c", MAKER, str(tmp_path), engine.ensure(), key, OWNER]
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"made\n"
        assert inspect(key)["State"]["Running"]
        maker.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while inspect(key)["State"]["Running"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            box = await provider.get(key)
            assert box is not None
            assert await said(box, "echo again") == "again\n"

    asyncio.run(story())


def test_idle_boxes_are_stopped_by_a_process_that_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path, patience=Patience()) as provider:
            idle, busy = new_spec(), new_spec()
            for spec in (idle, busy):
                await provider.create(spec)
            box = await provider.get(busy.key)
            assert box is not None
            await sh(box, "sleep 60 >/dev/null 2>&1 &")
            await provider.stop_idle()
            assert not inspect(idle.key)["State"]["Running"]
            assert inspect(busy.key)["State"]["Running"]

    asyncio.run(story())


def test_busybox_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            spec = new_spec(engine.BUSYBOX)
            box = await provider.create(spec)
            assert await said(box, "id -u; echo mine > file; cat file") == "1000\nmine\n"
            for number in range(2):
                again = await provider.create(spec)
                assert await said(again, "cat file") == "mine\n", number
                await provider.stop(spec.key)
            await provider.delete(spec.key)
            assert not is_there(spec.key)

    asyncio.run(story())


@pytest.mark.timeout(180)
def test_many_boxes_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:

            async def one(number: int) -> str:
                spec = new_spec(engine.BUSYBOX, limits=Limits(memory_mb=64))
                box = await provider.create(spec)
                try:
                    return await said(box, f"echo {number}")
                finally:
                    await provider.delete(spec.key)

            found = await asyncio.gather(*(one(number) for number in range(MANY)))
            assert found == [f"{number}\n" for number in range(MANY)]

    asyncio.run(story())
