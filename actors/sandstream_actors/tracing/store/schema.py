"""The tables of the store, and the migration of older stores."""

from __future__ import annotations

from typing import Final

import aiosqlite

VERSION_KEY: Final = "version"

_FIRST: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE runs (
        run TEXT PRIMARY KEY,
        trace_id TEXT NOT NULL,
        root TEXT NOT NULL,
        parent TEXT NOT NULL,
        workflow TEXT NOT NULL,
        group_id TEXT NOT NULL,
        session TEXT NOT NULL,
        key TEXT NOT NULL,
        agent TEXT NOT NULL,
        first_agent TEXT NOT NULL,
        model TEXT NOT NULL,
        pool TEXT NOT NULL,
        status TEXT NOT NULL,
        started_ns INTEGER NOT NULL,
        ended_ns INTEGER NOT NULL,
        turns INTEGER NOT NULL,
        requests INTEGER NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        total_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        cache_write_tokens INTEGER NOT NULL,
        reasoning_tokens INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        children INTEGER NOT NULL,
        retries INTEGER NOT NULL,
        error_code TEXT NOT NULL,
        error_message TEXT NOT NULL,
        last_seq INTEGER NOT NULL,
        truncated INTEGER NOT NULL,
        is_over INTEGER NOT NULL,
        written_ns INTEGER NOT NULL
    )
    """,
    "CREATE INDEX runs_by_start ON runs (started_ns, run)",
    "CREATE INDEX runs_at_the_top ON runs (started_ns, run) WHERE parent = ''",
    "CREATE INDEX runs_by_status ON runs (status, started_ns, run)",
    "CREATE INDEX runs_by_agent ON runs (agent, started_ns, run)",
    "CREATE INDEX runs_by_root ON runs (root, started_ns)",
    "CREATE INDEX runs_under_way ON runs (written_ns) WHERE is_over = 0",
    """
    CREATE TABLE spans (
        trace_id TEXT NOT NULL,
        span_id TEXT NOT NULL,
        run TEXT NOT NULL,
        parent_id TEXT NOT NULL,
        name TEXT NOT NULL,
        operation TEXT NOT NULL,
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        model TEXT NOT NULL,
        tool TEXT NOT NULL,
        start_ns INTEGER NOT NULL,
        end_ns INTEGER NOT NULL,
        queued_ns INTEGER NOT NULL,
        error TEXT NOT NULL,
        error_message TEXT NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        retries INTEGER NOT NULL,
        last_seq INTEGER NOT NULL,
        is_handled INTEGER NOT NULL,
        rest BLOB NOT NULL,
        PRIMARY KEY (trace_id, span_id)
    )
    """,
    "CREATE INDEX spans_by_run ON spans (run, start_ns)",
    "CREATE INDEX spans_by_start ON spans (start_ns)",
    "CREATE INDEX spans_by_operation ON spans (operation, start_ns)",
    """
    CREATE TABLE outbox (
        n INTEGER PRIMARY KEY AUTOINCREMENT,
        trace_id TEXT NOT NULL,
        span_id TEXT NOT NULL,
        span BLOB NOT NULL
    )
    """,
)

_TAKEOVERS: Final = (
    "ALTER TABLE runs ADD COLUMN takeovers INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE spans ADD COLUMN attempts INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE spans ADD COLUMN takeovers INTEGER NOT NULL DEFAULT 0",
    # before this version, the retries of runs also counted redelivered messages
    "UPDATE runs SET retries = (SELECT coalesce(sum(retries), 0) FROM spans "
    "WHERE spans.run = runs.run AND operation = 'chat')",
)

MIGRATIONS: list[tuple[str, ...]] = [_FIRST, _TAKEOVERS]
"""Step n migrates a store from version n - 1 to n. Released steps never change."""


async def version_of(connection: aiosqlite.Connection) -> int:
    """The version of the store; 0 if it is empty."""
    tables = await connection.execute_fetchall(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    )
    if not list(tables):
        return 0
    found = await connection.execute_fetchall(
        "SELECT value FROM meta WHERE key = ?", (VERSION_KEY,)
    )
    return next((int(value) for (value,) in found), 0)


async def migrate(connection: aiosqlite.Connection) -> None:
    """Bring the tables to the current version, in the caller's transaction."""
    version = await version_of(connection)
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        for statement in statements:
            await connection.execute(statement)
        await connection.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (VERSION_KEY, number)
        )
