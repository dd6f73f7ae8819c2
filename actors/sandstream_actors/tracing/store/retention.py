"""Retention: delete the oldest runs by age and by size, a few at a time."""

from __future__ import annotations

from typing import Final

import aiosqlite
import msgspec

from sandstream_actors.tracing.store.recordings import drop_oldest
from sandstream_actors.tracing.store.writer import StoreWriter

RUNS_AT_ONCE: Final = 100
SPANS_AT_ONCE: Final = 2_000
OUTBOX_AT_ONCE: Final = 500
_PAGES_AT_ONCE: Final = 4_000
_LOOSE: Final = "NOT EXISTS (SELECT 1 FROM runs WHERE runs.run = spans.run)"
"""Spans of no stored run: programs reported them."""


class Retained(msgspec.Struct, kw_only=True):
    """What was deleted."""

    runs: int = 0
    spans: int = 0
    """Spans of no run."""
    dropped: int = 0
    """Spans that still waited to be exported."""


async def retain(writer: StoreWriter, *, oldest_ns: int, max_bytes: int) -> Retained:
    """Delete what began and ended before a time, then the oldest until the store is small enough.

    An open run is deleted only if it is too old.
    """
    done = Retained()
    while count := await writer.change(lambda it: _forget_old_runs(it, oldest_ns)):
        done.runs += count
    while count := await writer.change(lambda it: _forget_loose(it, oldest_ns)):
        done.spans += count
    while await writer.change(_size) > max_bytes:
        waiting = await writer.change(_outbox_size)
        if waiting <= max_bytes // 2:  # a backend that is down must not cost all history
            if count := await writer.change(_forget_oldest_runs):
                done.runs += count
                continue
            if count := await writer.change(lambda it: _forget_loose(it, None)):
                done.spans += count
                continue
        count = await writer.change(lambda it: drop_oldest(it, OUTBOX_AT_ONCE))
        done.dropped += count
        if not count:
            break
    while await writer.change(_give_back):
        pass
    return done


async def _forget_old_runs(connection: aiosqlite.Connection, oldest_ns: int) -> int:
    return await _forget(
        connection,
        "SELECT run FROM runs WHERE started_ns < ? AND (is_over = 0 OR ended_ns < ?) "
        "ORDER BY started_ns LIMIT ?",
        (oldest_ns, oldest_ns, RUNS_AT_ONCE),
    )


async def _forget_oldest_runs(connection: aiosqlite.Connection) -> int:
    return await _forget(
        connection,
        "SELECT run FROM runs WHERE is_over = 1 ORDER BY started_ns LIMIT ?",
        (RUNS_AT_ONCE,),
    )


async def _forget(connection: aiosqlite.Connection, which: str, values: tuple[int, ...]) -> int:
    rows = await connection.execute_fetchall(which, values)
    runs = [(run,) for (run,) in rows]
    await connection.executemany("DELETE FROM spans WHERE run = ?", runs)
    await connection.executemany("DELETE FROM runs WHERE run = ?", runs)
    return len(runs)


async def _forget_loose(connection: aiosqlite.Connection, before_ns: int | None) -> int:
    when = "" if before_ns is None else "start_ns < ? AND "
    cursor = await connection.execute(
        "DELETE FROM spans WHERE rowid IN "
        f"(SELECT rowid FROM spans WHERE {when}{_LOOSE} ORDER BY start_ns LIMIT ?)",
        (*(() if before_ns is None else (before_ns,)), SPANS_AT_ONCE),
    )
    return cursor.rowcount


async def _size(connection: aiosqlite.Connection) -> int:
    """The bytes in use. Free pages do not count: they are reused before the file grows."""
    pages, free, size = [
        int(value)
        for name in ("page_count", "freelist_count", "page_size")
        for (value,) in await connection.execute_fetchall(f"PRAGMA {name}")
    ]
    return (pages - free) * size


async def _outbox_size(connection: aiosqlite.Connection) -> int:
    ((size,),) = await connection.execute_fetchall(
        "SELECT coalesce(sum(length(span)), 0) FROM outbox"
    )
    return int(size)


async def _give_back(connection: aiosqlite.Connection) -> bool:
    """Return some free pages to the file system; whether there were any."""
    ((free,),) = await connection.execute_fetchall("PRAGMA freelist_count")
    if free:
        await connection.execute_fetchall(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
    return bool(free)
