"""Errors of the trace store, with messages that say what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from sandstream_bus.errors import SandstreamError

_PRIMARY: Final = 0xFF
"""Masks the part of SQLite's result codes that does not depend on its version."""


class StoreError(SandstreamError):
    """Something is wrong with the store at ``path``."""

    code = "trace_store"

    def __init__(self, path: Path, what: str, advice: str) -> None:
        super().__init__(f"the trace store {path} {what}: {advice}")
        self.path = path
        self.what = what


class StoreUnavailable(StoreError):
    """The store cannot be read or written now. The requested operation had no effect."""

    code = "trace_store.unavailable"
    retryable = True


class StoreCorrupt(StoreUnavailable):
    """The file is damaged or not a store. The next time it is opened for writing, it is moved aside
    and a new store is created.
    """

    code = "trace_store.corrupt"


class StoreTooNew(StoreError):
    """A newer version of Sandstream wrote the store."""

    code = "trace_store.too_new"

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            path,
            f"has version {found}, and this Sandstream knows only up to {known}",
            "use the newer Sandstream, or move the file away to begin a new store",
        )


_ADVICE = {
    sqlite3.SQLITE_FULL: ("cannot grow, the disk is full", "free some space on its disk"),
    sqlite3.SQLITE_BUSY: (
        "is locked by another process",
        "try again; if it persists, find the process that has the file open",
    ),
    sqlite3.SQLITE_READONLY: (
        "cannot be written",
        "let this user write to the file and to its directory, or set SANDSTREAM_HOME",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        "let this user read and write the file and its directory, or set SANDSTREAM_HOME",
    ),
    sqlite3.SQLITE_PERM: (
        "cannot be used",
        "let this user read and write the file and its directory, or set SANDSTREAM_HOME",
    ),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "check its disk and the space on it"),
}


def is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file itself is damaged."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def store_error(path: Path, error: sqlite3.Error) -> StoreUnavailable:
    """Translate SQLite's error into ours."""
    if is_corrupt(error):
        return StoreCorrupt(
            path,
            f"is damaged ({error})",
            "the tracing actor puts it aside and builds a new one from the log",
        )
    what, advice = _ADVICE.get(
        _code(error), ("failed", "see what SQLite says; it is tried again when asked again")
    )
    return StoreUnavailable(path, f"{what} ({error})", advice)


def _code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY
