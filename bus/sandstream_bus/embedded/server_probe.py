"""Queries an embedded server without a lease on it: its status, and a request to stop.

Starts nothing. Relies on locks and on what answers on the port, never on process ids.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sandstream_bus.embedded.errors import ServerInUse, ServerNotAnswering
from sandstream_bus.embedded.statedir import ServerRecord, StateDir


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The status for `doctor`. `running`: the store is locked; `answering`: it also answers."""

    home: Path
    running: bool
    answering: bool
    in_use: bool
    store_bytes: int
    log_path: Path
    url: str | None = None
    pid: int | None = None
    keeper_pid: int | None = None
    version: str | None = None
    sync: str | None = None
    started_at: str | None = None


class ServerInfo(msgspec.Struct):
    """The relevant part of a NATS server's greeting."""

    server_name: str = ""
    version: str = ""


async def server_status(home: Path) -> ServerStatus:
    """Check without starting anything or creating the directory."""
    state = StateDir.at(home)
    running = is_locked(state, state.store_lock)
    record = state.read_record() if running else None
    info = await greeting(record) if record is not None else None
    return ServerStatus(
        home=state.home,
        running=running,
        answering=info is not None,
        in_use=await has_users(state),
        store_bytes=await asyncio.to_thread(_tree_bytes, state.store),
        log_path=state.log,
        url=record.url if record else None,
        pid=record.server_pid if record else None,
        keeper_pid=record.keeper_pid if record else None,
        version=info.version if info else None,
        sync=record.sync if record else None,
        started_at=record.started_at if record else None,
    )


async def stop_server(home: Path, *, timeout_s: float = 10.0) -> bool:
    """Stop an unused server now; False if none runs, ServerInUse if it is used.

    The request to the keeper is a file, and the keeper checks its locks, so no process id is
    needed.
    """
    state = StateDir.at(home)
    if not is_locked(state, state.store_lock):
        return False
    deadline_s = _now() + timeout_s
    asked = False
    while is_locked(state, state.store_lock):
        if await has_users(state):
            raise ServerInUse(state.home)
        if not asked:
            state.write_private(state.stop_request, b"")
            asked = True
        if _now() > deadline_s:
            raise not_answering(state, timeout_s)
        await asyncio.sleep(0.01)
    return True


async def has_users(state: StateDir) -> bool:
    """Whether a user holds `users.lock`; a keeper that shuts down does not count."""
    for _ in range(3):  # a keeper that only checks holds it for microseconds
        shared = not is_locked(state, state.users_lock, fcntl.LOCK_SH)
        if not shared or not is_locked(state, state.users_lock):
            return False
        await asyncio.sleep(0.002)
    return True


async def greeting(record: ServerRecord) -> ServerInfo | None:
    """The greeting of this record's server; None without an answer, or from another server."""
    loop = asyncio.get_running_loop()
    said = b""
    with socket.socket() as connection:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(1.0):
                await loop.sock_connect(connection, ("127.0.0.1", record.port))
                while not said.endswith(b"\r\n") and len(said) < 65536:
                    chunk = await loop.sock_recv(connection, 65536)
                    if not chunk:
                        return None
                    said += chunk
            info = msgspec.json.decode(said.removeprefix(b"INFO "), type=ServerInfo)
        except (OSError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
    return info if info.server_name == record.server_name else None


def is_locked(state: StateDir, path: Path, operation: int = fcntl.LOCK_EX) -> bool:
    """Whether another process holds a lock that conflicts with `operation`."""
    if not path.exists():
        return False
    fd = state.try_lock(path, operation)
    if fd is None:
        return True
    os.close(fd)
    return False


def not_answering(state: StateDir, waited_s: float) -> ServerNotAnswering:
    record = state.read_record()
    return ServerNotAnswering(
        state.home, waited_s, record.keeper_pid if record else None, state.log
    )


def _tree_bytes(root: Path) -> int:
    total = 0
    for directory, _, files in os.walk(root):
        for name in files:
            try:
                total += (Path(directory) / name).stat().st_size
            except OSError:
                continue  # the server removes files meanwhile
    return total


def _now() -> float:
    return asyncio.get_running_loop().time()
