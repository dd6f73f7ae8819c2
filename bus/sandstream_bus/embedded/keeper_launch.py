"""Starts a keeper process: parameters, inherited descriptors, answer.

Does not know leases or who may start a keeper: the caller holds `store.lock` and hands it over.
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

from sandstream_bus.embedded import keeper
from sandstream_bus.embedded.errors import ServerStartFailed
from sandstream_bus.embedded.server_binary import find_server_binary
from sandstream_bus.embedded.server_config import KEEPER_USER, Identity, render_config
from sandstream_bus.embedded.statedir import ServerRecord, StateDir, translate
from sandstream_bus.environment import environment

_PARENT_DEATH_SIGNAL = sys.platform.startswith("linux")
# A long-lived process must not get the secrets of the process that happened to start it.
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENVIRONMENT_MORE = ("LANG", "LC_ALL", "LC_CTYPE", "GOMAXPROCS", "GOMEMLIMIT", "GOGC")
# The file's directory is last on the path, so that it shadows nothing. The keeper is imported
# instead of run as a script, so that its byte code is cached.
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

    Raises ServerStartFailed with the end of the log if it does not come up. The caller keeps
    `store_fd`; the keeper has its own descriptor of the same lock. If cancelled, it leaves a keeper
    that ends by itself.
    """
    state.prepare_for_server()
    command = [str(binary or find_server_binary()), "-c", str(state.config), "-a", "127.0.0.1"]
    last = state.read_record()
    if last is not None:  # the new server on the old port must not pass for the old one
        stopped = msgspec.structs.replace(last, server_pid=None, keeper_pid=None)
        state.write_private(state.record, msgspec.json.encode(stopped))
    identity = _identity(last)
    keeper_password = os.urandom(24).hex()
    state.write_private(state.config, render_config(state, identity, sync, keeper_password))
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
        "user": KEEPER_USER,
        "password": keeper_password,
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
            process.wait()  # the intermediate process, which ends as soon as it has forked
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
        env={name: value for name, value in environment().items() if name in names},
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(marshal.dumps(launch))
    except BrokenPipeError:
        pass  # it is already dead; it gives no answer, and the log says why
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
    """The fields of `server.json` that the keeper only copies, so that it needs no encoder."""
    members = {
        "server_name": identity.server_name,
        "user": identity.user,
        "password": identity.password,
        "sync": sync,
    }
    return msgspec.json.encode(members).decode()[1:-1]


def _if_free(port: int) -> int:
    """The port, or -1 if it is taken: then nats-server picks another one."""
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
    """The last lines written since `start`."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start, size - 16384))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-max_lines:])
