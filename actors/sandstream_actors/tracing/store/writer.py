"""One task writes all pending requests in one transaction, and each caller gets its result.

A commit costs about the same for one run as for a hundred, so under load many share one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import aiosqlite

from sandstream_actors.tracing.store.errors import StoreUnavailable, store_error
from sandstream_actors.tracing.store.link import StoreLink
from sandstream_actors.tracing.store.recordings import Recording, apply_recordings

T = TypeVar("T")
Change = Callable[[aiosqlite.Connection], Awaitable[Any]]
_Job = tuple[Recording | Change, "asyncio.Future[Any]"]
_MOST: Final = 256
"""The limit for one transaction, because other processes also want to write."""


class StoreWriter:
    """Writes to one store until it is closed."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()
        self._is_closed = False
        self._task = asyncio.create_task(self._run(), name="trace store writer")

    async def record(self, recording: Recording) -> list[Any]:
        """Write a recording; returns its new spans once it is committed."""
        news: list[Any] = await self._done(recording)
        return news

    async def change(self, change: Callable[[aiosqlite.Connection], Awaitable[T]]) -> T:
        """Run a change in a transaction, after earlier recordings; returns its result once it is
        committed.
        """
        result: T = await self._done(change)
        return result

    async def close(self) -> None:
        """Write all pending requests, then stop."""
        if not self._is_closed:
            self._is_closed = True
            self._jobs.put_nowait(None)
        await asyncio.wait([self._task])

    async def _done(self, job: Recording | Change) -> Any:
        if self._is_closed:
            raise StoreUnavailable(self._link.path, "is closed", "open it again")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((job, future))
        return await future

    async def _run(self) -> None:
        is_last = False
        while not is_last:
            jobs: list[_Job] = []
            next_job = await self._jobs.get()
            while next_job is not None:
                jobs.append(next_job)
                if self._jobs.empty() or len(jobs) == _MOST:
                    break
                next_job = self._jobs.get_nowait()
            is_last = next_job is None
            if jobs:
                await self._finish(jobs)

    async def _finish(self, jobs: list[_Job]) -> None:
        """Commit, and resolve the futures of all callers."""
        try:
            results = await self._commit([job for job, _ in jobs])
        except Exception as error:  # noqa: BLE001 - passed on to every caller
            for _, future in jobs:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(jobs, results, strict=True):
            if not future.done():
                future.set_result(result)

    async def _commit(self, jobs: Sequence[Recording | Change]) -> list[Any]:
        connection = await self._link.ready_writer()
        try:
            return await _in_transaction(connection, jobs)
        except sqlite3.Error as error:
            await self._link.repair(error)
            raise store_error(self._link.path, error) from error


async def _in_transaction(
    connection: aiosqlite.Connection, jobs: Sequence[Recording | Change]
) -> list[Any]:
    await connection.execute("BEGIN IMMEDIATE")
    try:
        recordings = [job for job in jobs if isinstance(job, Recording)]
        recorded = iter(await apply_recordings(connection, recordings))
        results = [
            next(recorded) if isinstance(job, Recording) else await job(connection) for job in jobs
        ]
        await connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite rolls back by itself after some failures
            await connection.execute("ROLLBACK")
        raise
    return results
