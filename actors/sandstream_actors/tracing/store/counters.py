"""Counters in the store: what was dropped or skipped, and how far the log was read."""

from __future__ import annotations

from typing import Final

import aiosqlite

POSITION: Final = "position"
"""The sequence of the log up to which every run is in the store."""


async def add_to_counter(connection: aiosqlite.Connection, name: str, by: int) -> None:
    await connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = value + excluded.value",
        (name, by),
    )


async def set_counter(connection: aiosqlite.Connection, name: str, value: int) -> None:
    await connection.execute(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (name, value)
    )
