"""The lease on the private nats-server: find or start it, hold it while it is used, release it.

    server = await ensure_server(default_home())
    nc = await nats.connect(server.url, user=server.user, password=server.password)
    ...
    server.release()

Does not know what is sent over NATS. The rules, with the locks of `statedir.py`:

- A lease is a shared lock on `users.lock`. It ends with the process, so a killed user counts as
  gone; the descriptor is closed on exec and in forked children, so a user's children do not count.
- A process that locks `store.lock` may start a keeper, and hands the lock over to it. If many
  processes try at once, one gets it; the others wait until the server answers.
- A server counts as ours if its greeting has the name in `server.json`.
  Process ids are only for people: this module sends no signals.
- The keeper (`keeper.py`) restarts a killed server and stops an unused one. If the keeper is
  killed, its server ends too (Linux: PR_SET_PDEATHSIG; elsewhere a guard process); `revive()`
  starts it again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from sandstream_bus.embedded.errors import (
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
from sandstream_bus.embedded.keeper_launch import launch_keeper
from sandstream_bus.embedded.server_config import sync_seconds
from sandstream_bus.embedded.server_probe import (
    ServerStatus,
    greeting,
    not_answering,
    server_status,
    stop_server,
)
from sandstream_bus.embedded.statedir import ServerRecord, StateDir, default_home

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


class EmbeddedServer:
    """A lease on the running server. The caller of `ensure_server` releases it."""

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
        """The process id of nats-server when last read; a restart by the keeper changes it."""
        return self._record.server_pid

    @property
    def keeper_pid(self) -> int | None:
        return self._record.keeper_pid

    @property
    def version(self) -> str:
        return self._record.version

    @property
    def sync(self) -> str:
        """The sync interval of the running server, which may be stricter than requested."""
        return self._record.sync

    async def revive(self, *, timeout_s: float = TIMEOUT_S) -> str:
        """Wait for the server to answer, and start a new one if there is none; return its url.

        For a user whose connection broke. The url, user and password do not change unless the port
        was taken.
        """
        if self._released:
            raise RuntimeError("this lease on the embedded server was released")
        deadline_s = _now() + timeout_s
        if self._lock_fd is None:  # in a forked child, which does not hold a lease yet
            self._lock_fd = await _attach(self._state, deadline_s, timeout_s)
        self._record = await _find_or_start(self._state, self._options, deadline_s, timeout_s)
        return self.url

    def release(self) -> None:
        """Release the lease; may be repeated. The server stops soon after its last lease."""
        self._released = True
        self._drop()

    def _drop(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)  # not LOCK_UN: that would also release a forked sibling's lock
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
    """A lease on the server of this state directory; starts the server if it is not running.

    `sync`, `grace_s` and `binary` apply to a server that is started now. A running server that
    syncs less often than `sync` is replaced if it is unused; otherwise SyncTooWeak is raised.
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


async def _attach(state: StateDir, deadline_s: float, timeout_s: float) -> int:
    """Take a user's lock; waits while a keeper that shuts down holds it exclusively."""
    while True:
        lock_fd = state.try_lock(state.users_lock, fcntl.LOCK_SH)
        if lock_fd is not None:
            os.utime(lock_fd)  # tells the keeper about a user, even a brief one
            return lock_fd
        if _now() > deadline_s:
            raise not_answering(state, timeout_s)
        await asyncio.sleep(0.002)


async def _find_or_start(
    state: StateDir, options: _Options, deadline_s: float, timeout_s: float
) -> ServerRecord:
    """Call it with `users.lock` held, so that the found server is not about to be stopped."""
    pause_s = 0.002
    while True:
        record = state.read_record()
        # Without a process id: stopped, or restarted and not yet recorded by the keeper.
        if record is not None and record.server_pid is not None:
            info = await greeting(record)
            if info is not None:
                return msgspec.structs.replace(record, version=info.version)
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
                raise not_answering(state, timeout_s) from None
            finally:
                os.close(store_fd)
            continue
        if _now() > deadline_s:
            raise not_answering(state, timeout_s)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)


def _now() -> float:
    return asyncio.get_running_loop().time()
