"""Owns the lease on the private nats-server: find it or start it, keep it while used, let it go.

    server = await ensure_server(default_home())
    nc = await nats.connect(server.url, user=server.user, password=server.password)
    ...
    server.release()

Must not know what is said over NATS. The rules, with the locks of `statedir.py`:

- A lease is a shared lock on `users.lock`. It goes with the process, so a killed user counts as
  gone; the descriptor is closed on exec and in forked children, so a user's children do not count.
- Whoever locks `store.lock` may start a keeper and hands the lock to it. Of many that come at once
  one gets it; the others wait until the server answers.
- A server is taken for ours if the one that answers on the port gives the name in `server.json`.
  Process ids are for people to read: nothing here sends a signal to one.
- The keeper (`keeper.py`) restarts a killed server and stops an unused one. A killed keeper takes
  its server along (Linux: PR_SET_PDEATHSIG; elsewhere a guard process); `revive()` starts anew.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from sandstream_bus.embedded_errors import (
    EmbeddedServerError,
    EmbeddedStoreFull,
    ServerBinaryMissing,
    ServerInUse,
    ServerNotAnswering,
    ServerStartFailed,
    StatePathInvalid,
    StoreNotWritable,
    SyncInvalid,
    SyncTooWeak,
)
from sandstream_bus.keeper_launch import launch_keeper
from sandstream_bus.server_config import sync_seconds
from sandstream_bus.statedir import ServerRecord, StateDir, default_home

__all__ = [
    "EmbeddedServer",
    "EmbeddedServerError",
    "EmbeddedStoreFull",
    "ServerBinaryMissing",
    "ServerInUse",
    "ServerNotAnswering",
    "ServerStartFailed",
    "ServerStatus",
    "StatePathInvalid",
    "StoreNotWritable",
    "SyncInvalid",
    "SyncTooWeak",
    "default_home",
    "ensure_server",
    "server_status",
    "stop_server",
]

GRACE_S = 2.0
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    sync: str
    grace_s: float
    binary: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """What `doctor` shows. `running`: the store is locked; `answering`: it also talks."""

    home: Path
    running: bool
    answering: bool
    in_use: bool
    store_bytes: int
    log_path: Path
    url: str | None = None
    monitor_url: str | None = None
    pid: int | None = None
    keeper_pid: int | None = None
    version: str | None = None
    sync: str | None = None
    started_at: str | None = None


class _Info(msgspec.Struct):
    server_name: str = ""


class EmbeddedServer:
    """A lease on the running server. Whoever called `ensure_server` releases it."""

    def __init__(self, state: StateDir, options: _Options, lock_fd: int, record: ServerRecord):
        self._state = state
        self._options = options
        self._lock_fd: int | None = lock_fd
        self._released = False
        self._record = record
        _leases.add(self)

    @property
    def home(self) -> Path:
        return self._state.home

    @property
    def url(self) -> str:
        return self._record.url

    @property
    def user(self) -> str:
        return self._record.user

    @property
    def password(self) -> str:
        return self._record.password

    @property
    def pid(self) -> int | None:
        """Of nats-server, when last looked; a restart by the keeper changes it."""
        return self._record.server_pid

    @property
    def keeper_pid(self) -> int | None:
        return self._record.keeper_pid

    @property
    def monitor_url(self) -> str:
        return _monitor_url(self._record)

    @property
    def version(self) -> str:
        return self._record.version

    @property
    def sync(self) -> str:
        """What the running server does, which may be stricter than what was asked for."""
        return self._record.sync

    async def revive(self, *, timeout_s: float = TIMEOUT_S) -> str:
        """Wait for the server to answer, starting a new one if there is none; its url.

        For a user whose connection broke. The url, user and password are those of before unless
        somebody else has taken the port.
        """
        if self._released:
            raise RuntimeError("this lease on the embedded server was released")
        deadline_s = _now() + timeout_s
        if self._lock_fd is None:  # in a forked child, which has no lease yet
            self._lock_fd = await _attach(self._state, deadline_s, timeout_s)
        self._record = await _find_or_start(self._state, self._options, deadline_s, timeout_s)
        return self.url

    def release(self) -> None:
        """The server stops a grace after its last lease. May be called twice."""
        self._released = True
        self._drop()

    def _drop(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)  # not LOCK_UN: that would take a forked sibling's lock as well
            self._lock_fd = None

    async def __aenter__(self) -> EmbeddedServer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


_leases: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _drop_in_child() -> None:
    for lease in tuple(_leases):
        lease._drop()


os.register_at_fork(after_in_child=_drop_in_child)


async def ensure_server(
    home: Path,
    *,
    sync: str = "1s",
    grace_s: float = GRACE_S,
    timeout_s: float = TIMEOUT_S,
    binary: Path | None = None,
) -> EmbeddedServer:
    """A lease on the server of this state directory, which is started if it does not run.

    `sync`, `grace_s` and `binary` are for a server that is started now. A running one that syncs
    more rarely than `sync` is replaced if nobody uses it, else SyncTooWeak is raised.
    """
    wanted_s = sync_seconds(sync)
    state = StateDir.at(home)
    state.prepare()
    options = _Options(sync=sync, grace_s=grace_s, binary=binary)
    deadline_s = _now() + timeout_s
    while True:
        lock_fd = await _attach(state, deadline_s, timeout_s)
        try:
            record = await _find_or_start(state, options, deadline_s, timeout_s)
            if sync_seconds(record.sync) <= wanted_s:
                return EmbeddedServer(state, options, lock_fd, record)
        except BaseException:
            os.close(lock_fd)
            raise
        os.close(lock_fd)
        try:
            await stop_server(home, timeout_s=max(deadline_s - _now(), 0.1))
        except ServerInUse as error:
            raise SyncTooWeak(state.home, record.sync, sync) from error


async def server_status(home: Path) -> ServerStatus:
    """Look without starting anything or creating the directory."""
    state = StateDir.at(home)
    running = _is_locked(state, state.store_lock)
    record = state.read_record() if running else None
    answering = record is not None and await _answers(record)
    status = ServerStatus(
        home=state.home,
        running=running,
        answering=answering,
        in_use=await _has_users(state),
        store_bytes=await asyncio.to_thread(_tree_bytes, state.store),
        log_path=state.log,
    )
    if record is None:
        return status
    return _with_record(status, record)


async def stop_server(home: Path, *, timeout_s: float = 10.0) -> bool:
    """Stop the server now if nobody uses it; False if none runs, ServerInUse if somebody does.

    The keeper is asked by a file and goes by its locks, so no process id is trusted.
    """
    state = StateDir.at(home)
    if not _is_locked(state, state.store_lock):
        return False
    deadline_s = _now() + timeout_s
    asked = False
    while _is_locked(state, state.store_lock):
        if await _has_users(state):
            raise ServerInUse(state.home)
        if not asked:
            state.write_private(state.stop_request, b"")
            asked = True
        if _now() > deadline_s:
            raise _not_answering(state, timeout_s)
        await asyncio.sleep(0.01)
    return True


async def _has_users(state: StateDir) -> bool:
    """Whether a user holds `users.lock`; a keeper that shuts down is none."""
    for _ in range(3):  # a keeper that just looks holds it for microseconds
        shared = not _is_locked(state, state.users_lock, fcntl.LOCK_SH)
        if not shared or not _is_locked(state, state.users_lock):
            return False
        await asyncio.sleep(0.002)
    return True


async def _attach(state: StateDir, deadline_s: float, timeout_s: float) -> int:
    """Take a user's lock; waits while a keeper that holds it exclusively shuts down."""
    while True:
        lock_fd = state.try_lock(state.users_lock, fcntl.LOCK_SH)
        if lock_fd is not None:
            os.utime(lock_fd)  # tells the keeper that somebody came, however briefly
            return lock_fd
        if _now() > deadline_s:
            raise _not_answering(state, timeout_s)
        await asyncio.sleep(0.002)


async def _find_or_start(
    state: StateDir, options: _Options, deadline_s: float, timeout_s: float
) -> ServerRecord:
    """For a holder of `users.lock`, so that nothing found here is about to be stopped."""
    pause_s = 0.002
    while True:
        record = state.read_record()
        if record is not None and await _answers(record):
            return record
        store_fd = state.try_lock(state.store_lock, fcntl.LOCK_EX)
        if store_fd is not None:
            try:
                async with asyncio.timeout(deadline_s - _now()):
                    await launch_keeper(
                        state,
                        store_fd,
                        sync=options.sync,
                        grace_s=options.grace_s,
                        binary=options.binary,
                    )
            except TimeoutError:
                raise _not_answering(state, timeout_s) from None
            finally:
                os.close(store_fd)
            continue
        if _now() > deadline_s:
            raise _not_answering(state, timeout_s)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)


async def _answers(record: ServerRecord) -> bool:
    """Whether the server of this record is the one on its port; it gives its name unasked."""
    loop = asyncio.get_running_loop()
    greeting = b""
    with socket.socket() as connection:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(1.0):
                await loop.sock_connect(connection, ("127.0.0.1", record.port))
                while not greeting.endswith(b"\r\n") and len(greeting) < 65536:
                    chunk = await loop.sock_recv(connection, 65536)
                    if not chunk:
                        return False
                    greeting += chunk
            info = msgspec.json.decode(greeting.removeprefix(b"INFO "), type=_Info)
        except (OSError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
            return False
    return info.server_name == record.server_name


def _is_locked(state: StateDir, path: Path, operation: int = fcntl.LOCK_EX) -> bool:
    """Whether somebody holds a lock that stands against `operation`."""
    if not path.exists():
        return False
    fd = state.try_lock(path, operation)
    if fd is None:
        return True
    os.close(fd)
    return False


def _not_answering(state: StateDir, waited_s: float) -> ServerNotAnswering:
    record = state.read_record()
    return ServerNotAnswering(
        state.home, waited_s, record.keeper_pid if record else None, state.log
    )


def _with_record(status: ServerStatus, record: ServerRecord) -> ServerStatus:
    return ServerStatus(
        home=status.home,
        running=status.running,
        answering=status.answering,
        in_use=status.in_use,
        store_bytes=status.store_bytes,
        log_path=status.log_path,
        url=record.url,
        monitor_url=_monitor_url(record),
        pid=record.server_pid,
        keeper_pid=record.keeper_pid,
        version=record.version,
        sync=record.sync,
        started_at=record.started_at,
    )


def _monitor_url(record: ServerRecord) -> str:
    return f"http://127.0.0.1:{record.monitor_port}"


def _tree_bytes(root: Path) -> int:
    total = 0
    for directory, _, files in os.walk(root):
        for name in files:
            try:
                total += (Path(directory) / name).stat().st_size
            except OSError:
                continue  # the server removes files as it goes
    return total


def _now() -> float:
    return asyncio.get_running_loop().time()
