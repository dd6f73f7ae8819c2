"""Owns the start of a keeper process: what it is told, what it inherits, what it answers.

Must not know leases or who may start one: the caller holds `store.lock` and hands it over.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from sandstream_bus import keeper
from sandstream_bus.embedded_errors import ServerStartFailed
from sandstream_bus.server_binary import find_server_binary
from sandstream_bus.server_config import Identity, render_config
from sandstream_bus.statedir import ServerRecord, StateDir, translate

_PARENT_DEATH_SIGNAL = sys.platform.startswith("linux")
# A long-lived process gets no secrets from whoever happened to start it.
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENVIRONMENT_MORE = ("LANG", "LC_ALL", "LC_CTYPE", "GOMAXPROCS", "GOMEMLIMIT", "GOGC")
# The file's directory goes last on the path, so that it shadows nothing; imported instead of run
# as a script, the keeper's byte code is cached.
_BOOT = "import sys; sys.path.append(sys.argv[1]); import keeper; keeper.main()"


async def launch_keeper(
    state: StateDir,
    store_fd: int,
    *,
    sync: str,
    grace_s: float,
    binary: Path | None = None,
) -> None:
    """Start a keeper and its server; return when the server answers and `server.json` is written.

    Raises ServerStartFailed with the log's end if it does not come up. `store_fd` stays the
    caller's; the keeper has its own descriptor of the same lock. Cancelled, it leaves a keeper that
    ends by itself.
    """
    state.prepare_for_server()
    command = [str(binary or find_server_binary()), "-c", str(state.config), "-a", "127.0.0.1"]
    last = state.read_record()
    if last is not None:  # nobody shall take the new server on the old port for the old one
        stopped = msgspec.structs.replace(last, server_pid=None, keeper_pid=None)
        state.write_private(state.record, msgspec.json.encode(stopped))
    identity = _identity(last)
    state.write_private(state.config, render_config(state, identity, sync))
    log_fd = state.open_private(state.log, os.O_WRONLY | os.O_APPEND)
    log_start = os.fstat(log_fd).st_size
    read_fd, write_fd = os.pipe()
    launch = {
        "home": str(state.home),
        "command": command,
        "grace_s": float(grace_s),
        "store_fd": store_fd,
        "report_fd": write_fd,
        "parent_death_signal": _PARENT_DEATH_SIGNAL,
        "port": _if_free(last.port) if last else -1,
        "monitor_port": _if_free(last.monitor_port) if last else -1,
        "record_head": _record_head(identity, sync),
    }
    try:
        try:
            process = _start(launch, log_fd, (store_fd, write_fd))
        finally:
            os.close(log_fd)
            os.close(write_fd)
        try:
            answer = await _read_all(read_fd)
        finally:
            process.wait()  # the intermediate process, gone as soon as it has forked
    except OSError as error:
        raise translate(error, state.home) from error
    finally:
        os.close(read_fd)
    if answer != b"\0":
        reason = answer.decode(errors="replace") or "its keeper ended early"
        raise ServerStartFailed(reason, state.log, _tail(state.log, log_start))


def _start(
    launch: dict[str, object], log_fd: int, inherited: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    directory = str(Path(keeper.__file__).parent)
    names = _ENVIRONMENT + _ENVIRONMENT_MORE
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, directory, str(launch["home"])],  # home: for `ps`
        stdin=subprocess.PIPE,
        stdout=log_fd,
        stderr=log_fd,
        pass_fds=inherited,
        cwd="/",
        env={name: os.environ[name] for name in names if name in os.environ},
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(marshal.dumps(launch))
    except BrokenPipeError:
        pass  # it is dead already; its silence is the answer, and the log says why
    return process


def _identity(last: ServerRecord | None) -> Identity:
    if last is not None:
        return Identity(server_name=last.server_name, user=last.user, password=last.password)
    return Identity(
        server_name=f"sandstream-{os.urandom(6).hex()}",
        user="sandstream",
        password=os.urandom(24).hex(),
    )


def _record_head(identity: Identity, sync: str) -> str:
    """The members of `server.json` that the keeper only copies, so that it needs no encoder."""
    members = {
        "server_name": identity.server_name,
        "user": identity.user,
        "password": identity.password,
        "sync": sync,
    }
    return msgspec.json.encode(members).decode()[1:-1]


def _if_free(port: int) -> int:
    """The port, or -1 if somebody has it: then nats-server picks another."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return -1
    return port


async def _read_all(fd: int) -> bytes:
    """Everything until the other end is closed."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    chunks: list[bytes] = []

    def read() -> None:
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return
        if chunk:
            chunks.append(chunk)
        elif not done.done():
            done.set_result(None)

    os.set_blocking(fd, False)
    loop.add_reader(fd, read)
    try:
        await done
    finally:
        loop.remove_reader(fd)
    return b"".join(chunks)


def _tail(path: Path, start: int, *, max_lines: int = 20) -> str:
    """The last lines that were written since `start`."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - 16384))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-max_lines:])
