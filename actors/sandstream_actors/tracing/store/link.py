"""The two connections of an open store (one to write, one to read), and its repair."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiosqlite

from sandstream_actors.tracing.store.database import (
    Prepare,
    connect_to_read,
    connect_to_write,
    put_aside,
)
from sandstream_actors.tracing.store.errors import StoreUnavailable, is_corrupt, store_error

_ROWS_AT_ONCE: Final = 2_000


class StoreLink:
    """Open it with :meth:`open`; its owner closes it. Readers do not wait for the writer."""

    def __init__(self, path: Path, prepare: Prepare | None = None) -> None:
        self.path = path
        self.replaced: Path | None = None
        """Where the damaged store is that this one replaced."""
        self._prepare = prepare
        self._writer: aiosqlite.Connection | None = None
        self._reader: aiosqlite.Connection | None = None
        self._inode = 0
        self._damage: sqlite3.Error | None = None
        """Damage that a reader found; the next writer repairs it."""

    async def open(self) -> None:
        writer, aside = await connect_to_write(self.path, self._prepare)
        try:
            reader = await connect_to_read(self.path)
        except BaseException:
            await writer.close()
            raise
        self._writer, self._reader, self._inode = writer, reader, self._file()
        self._damage = None
        self.replaced = aside or self.replaced

    async def open_to_read(self) -> bool:
        """Open without a writer; ``False`` if there is no store."""
        self._reader = await connect_to_read(self.path)
        return self._reader is not None

    async def close(self) -> None:
        connections = (self._reader, self._writer)
        self._reader = self._writer = None
        for connection in connections:
            if connection is not None:
                await connection.close()

    async def fetch(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """The rows of a query, as of one moment."""
        with self._reading() as reader:
            rows = await reader.execute_fetchall(sql, parameters)
        return [tuple(row) for row in rows]

    async def stream(
        self, sql: str, parameters: Mapping[str, Any]
    ) -> AsyncIterator[list[tuple[Any, ...]]]:
        """The rows of a query in chunks, for results that may not fit into memory."""
        with self._reading() as reader:
            async with reader.execute(sql, parameters) as cursor:
                while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
                    yield [tuple(row) for row in rows]

    @contextmanager
    def _reading(self) -> Iterator[aiosqlite.Connection]:
        reader, inode = self._reader, self._inode
        if reader is None:
            raise StoreUnavailable(self.path, "is closed", "open it again")
        try:
            yield reader
        except sqlite3.Error as error:
            if is_corrupt(error) and inode == self._inode:
                self._damage = error
            raise store_error(self.path, error) from error

    async def ready_writer(self) -> aiosqlite.Connection:
        """The connection to write with. If the store's file was removed, the store is created
        again; otherwise writes would be lost.
        """
        if self._damage is not None:
            await self.repair(self._damage)
        elif self._writer is None or self._file() != self._inode:
            await self.close()
            await self.open()
        assert self._writer is not None
        return self._writer

    async def repair(self, error: sqlite3.Error) -> None:
        """Move a damaged file aside and create a new store, unless another process has already done
        so.
        """
        if not is_corrupt(error):
            return
        await self.close()
        if self._file() == self._inode:
            self.replaced = put_aside(self.path, str(error))
        await self.open()

    def _file(self) -> int:
        try:
            return self.path.stat().st_ino
        except OSError:  # gone or inaccessible: opening it will tell
            return 0
