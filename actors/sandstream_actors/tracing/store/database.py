"""Connects to a store's file: creates it, migrates it, moves a damaged one aside."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiosqlite

from sandstream_actors.tracing.store.errors import (
    StoreTooNew,
    StoreUnavailable,
    is_busy,
    is_corrupt,
    store_error,
)
from sandstream_actors.tracing.store.schema import MIGRATIONS, migrate, version_of

logger = logging.getLogger(__name__)

BUSY_S: Final = 10.0
_WAL_BYTES: Final = 64 * 1024 * 1024
_SETTINGS: Final = (
    "PRAGMA auto_vacuum = INCREMENTAL",  # must come before the first table
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    f"PRAGMA journal_size_limit = {_WAL_BYTES}",
)
Prepare = Callable[[aiosqlite.Connection], Awaitable[None]]


async def connect_to_write(
    path: Path, prepare: Prepare | None = None
) -> tuple[aiosqlite.Connection, Path | None]:
    """A connection to a store of the current version, created if necessary, and the path to which a
    damaged one was moved. ``prepare`` may set limits on the connection; tests do.
    """
    try:
        return await _made_ready(path, prepare), None
    except sqlite3.Error as error:
        if not is_corrupt(error):
            raise store_error(path, error) from error
        aside = await asyncio.to_thread(put_aside, path, str(error))
    try:
        return await _made_ready(path, prepare), aside
    except sqlite3.Error as error:
        raise store_error(path, error) from error


def _make_file(path: Path) -> None:
    """Create the file for this user only; SQLite would let all users read it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        raise StoreUnavailable(
            path,
            f"cannot be made ({error.strerror})",
            "let this user write to that directory, or set SANDSTREAM_HOME",
        ) from error


async def connect_to_read(path: Path) -> aiosqlite.Connection | None:
    """A read-only connection; ``None`` if there is no store."""
    if not await asyncio.to_thread(path.exists):
        return None
    try:
        connection = await _connect(path, "ro")
        try:
            version = await _check_version(connection, path)
        except BaseException:
            await connection.close()
            raise
    except sqlite3.Error as error:
        raise store_error(path, error) from error
    if version == len(MIGRATIONS):
        return connection
    await connection.close()
    if version == 0:
        return None
    raise StoreUnavailable(
        path,
        f"has version {version}, and is only read here",
        "`sandstream stats` or the tracing actor bring it up to date",
    )


async def _made_ready(path: Path, prepare: Prepare | None) -> aiosqlite.Connection:
    await asyncio.to_thread(_make_file, path)
    connection = await _connect(path, "rwc")
    try:
        await _check_version(connection, path)
        for setting in _SETTINGS:
            await _patiently(connection, setting)
        if prepare is not None:
            await prepare(connection)
        await connection.execute("BEGIN IMMEDIATE")
        try:
            await _check_version(connection, path)
            await migrate(connection)
            await connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                await connection.execute("ROLLBACK")
            raise
    except BaseException:
        await connection.close()
        raise
    return connection


async def _connect(path: Path, mode: str) -> aiosqlite.Connection:
    uri = f"file:{quote(str(path))}?mode={mode}"
    connection = aiosqlite.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    # Its thread must not keep a program alive whose loop was not shut down.
    thread: Any = getattr(connection, "_thread", connection)
    thread.daemon = True
    try:
        return await connection
    except sqlite3.Error:
        await asyncio.to_thread(thread.join)  # its last callback must not outlive the loop
        raise


async def _check_version(connection: aiosqlite.Connection, path: Path) -> int:
    version = await version_of(connection)
    if version > len(MIGRATIONS):
        raise StoreTooNew(path, version, len(MIGRATIONS))
    return version


async def _patiently(connection: aiosqlite.Connection, statement: str) -> None:
    """Retry a statement that SQLite does not wait for: others may be creating the same store."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            await connection.execute_fetchall(statement)
        except sqlite3.Error as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)
        else:
            return


def put_aside(path: Path, why: str) -> Path:
    """Rename a damaged store with its companion files; return its new path."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    # The WAL goes first: a new store must never find that of the old one.
    for suffix in ("-wal", "-shm", ""):
        try:
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")  # noqa: PTH105
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreUnavailable(
                path,
                f"is damaged ({why}) and cannot be put aside ({error.strerror})",
                "move it away by hand",
            ) from error
    logger.error(
        "the trace store was damaged: it was moved aside, and a new one is created",
        extra={"path": str(path), "aside": str(aside), "why": why},
    )
    return aside
