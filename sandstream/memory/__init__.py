"""Conversations: sessions from which a run reads its history and to which it appends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandstream.memory.bus_session import BusSession
from sandstream.memory.openai_conversations_session import OpenAIConversationsSession
from sandstream.memory.session import Session, SessionABC, SessionInputCallback
from sandstream.memory.session_settings import SessionSettings

if TYPE_CHECKING:
    from sandstream.memory.sqlite_session import SQLiteSession

__all__ = [
    "BusSession",
    "OpenAIConversationsSession",
    "SQLiteSession",
    "Session",
    "SessionABC",
    "SessionInputCallback",
    "SessionSettings",
]


def __getattr__(name: str) -> Any:
    """Imports SQLite on demand."""
    if name == "SQLiteSession":
        from sandstream.memory.sqlite_session import SQLiteSession

        return SQLiteSession
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
