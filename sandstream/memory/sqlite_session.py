"""A session in an SQLite database: a file, or in memory for the lifetime of the object.

The tables are those of the OpenAI Agents SDK, so each can use the other's data. Several tasks,
event loops, threads and processes may use one database: each change is one transaction, and
concurrent changes wait.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
from sandstream_actors.model.vendor_types import plain

from sandstream.items import TResponseInputItem
from sandstream.memory.session import SessionABC
from sandstream.memory.session_settings import SessionSettings, resolve_session_limit
from sandstream.memory.sqlite_links import Links, close_links, open_link

BUSY_S = 30.0
"""How long a change waits for other changes."""


class SQLiteSession(SessionABC):
    """A conversation in an SQLite database.

    Args:
        session_id: The name of the conversation.
        db_path: The file; ``:memory:`` lives as long as this object.
        sessions_table: The name of the table of conversations.
        messages_table: The name of the table of items.
        session_settings: Settings such as how many items a run reads.

    Example:
        session = SQLiteSession("weather-talk", "talks.db")
        result = await Runner.run(agent, "How is the weather?", session=session)
    """

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = SessionSettings.coerce(session_settings)
        self.db_path = db_path
        self.sessions_table = sessions_table
        self.messages_table = messages_table
        self._sessions = _quoted(sessions_table)
        self._messages = _quoted(messages_table)
        self._closed = False
        self._links: Links = {}
        in_memory = str(db_path) == ":memory:"
        # Connections share an in-memory database by its name, while at least one of them is open.
        name = f"file:/sandstream-{uuid.uuid4().hex}?vfs=memdb"
        self._target: dict[str, Any] = {
            "database": name if in_memory else str(db_path),
            "uri": in_memory,
            "timeout": BUSY_S,
            "isolation_level": None,
        }
        first = sqlite3.connect(**self._target, check_same_thread=False)
        self._end = weakref.finalize(self, _let_go, first, self._links)
        try:
            _create_tables(first, self._sessions, self._messages, messages_table)
        except BaseException:
            self._end()
            raise
        if not in_memory:
            first.close()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Read the history. Rows that are not JSON are skipped.

        Args:
            limit: Read only so many of the latest items; ``None`` reads as many as the settings
                say, or all.

        Returns:
            The items, oldest first.
        """
        wanted = resolve_session_limit(limit, self.session_settings)
        found: list[TResponseInputItem] = []
        if wanted == 0:
            return found
        query = f"SELECT message_data FROM {self._messages} WHERE session_id = ? ORDER BY id DESC"
        async with self._connection() as db, db.execute(query, (self.session_id,)) as rows:
            async for (text,) in rows:
                try:
                    found.append(json.loads(text))
                except (ValueError, TypeError):
                    continue
                if len(found) == wanted:
                    break
        return found[::-1]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items, all or none.

        Args:
            items: The items, oldest first.
        """
        self._check_open()
        if not items:
            return
        rows = [(self.session_id, json.dumps(plain(item))) for item in items]
        async with self._transaction() as db:
            await db.execute(
                f"INSERT INTO {self._sessions} (session_id) VALUES (?) "
                "ON CONFLICT (session_id) DO UPDATE SET updated_at = CURRENT_TIMESTAMP",
                (self.session_id,),
            )
            await db.executemany(
                f"INSERT INTO {self._messages} (session_id, message_data) VALUES (?, ?)", rows
            )

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item and return it. Rows that are not JSON go with it."""
        delete = (
            f"DELETE FROM {self._messages} WHERE id = (SELECT id FROM {self._messages} "
            "WHERE session_id = ? ORDER BY id DESC LIMIT 1) RETURNING message_data"
        )
        async with self._transaction() as db:
            while True:
                removed = list(await db.execute_fetchall(delete, (self.session_id,)))
                if not removed:
                    return None
                try:
                    item: TResponseInputItem = json.loads(removed[0][0])
                except (ValueError, TypeError):
                    continue
                return item

    async def clear_session(self) -> None:
        """Forget all items."""
        async with self._transaction() as db:
            for table in (self._messages, self._sessions):
                await db.execute(f"DELETE FROM {table} WHERE session_id = ?", (self.session_id,))

    def close(self) -> None:
        """Close the database. A database in memory is deleted."""
        self._closed = True
        self._end()

    # --- connections ---------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the SQLiteSession {self.session_id!r} is closed")

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[aiosqlite.Connection]:
        """This loop's connection, for one task at a time."""
        self._check_open()
        loop = asyncio.get_running_loop()
        opening = self._links.get(loop)
        if opening is None:
            opening = asyncio.ensure_future(open_link(self._target, self._links))
            self._links[loop] = opening
        link = await asyncio.shield(opening)
        async with link.lock:
            yield link.connection

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[aiosqlite.Connection]:
        """All or nothing, even if the task is cancelled midway."""
        async with self._connection() as db:
            try:
                await db.execute("BEGIN IMMEDIATE")
                yield db
                await db.commit()
            except BaseException:
                await db.rollback()
                raise


def _let_go(first: sqlite3.Connection, links: Links) -> None:
    first.close()
    close_links(links)


def _create_tables(
    connection: sqlite3.Connection, sessions: str, messages: str, messages_name: str
) -> None:
    _use_write_ahead_log(connection)
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {sessions} (session_id TEXT PRIMARY KEY, "
        "created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, "
        "updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
    )
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {messages} (id INTEGER PRIMARY KEY AUTOINCREMENT, "
        "session_id TEXT NOT NULL, message_data TEXT NOT NULL, "
        "created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, "
        f"FOREIGN KEY (session_id) REFERENCES {sessions} (session_id) ON DELETE CASCADE)"
    )
    index = _quoted(f"idx_{messages_name}_session_id")
    connection.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {messages} (session_id, id)")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let readers not wait for writers. SQLite's busy timeout does not cover this change."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
