"""The rows about sessions in the table of channels (`wire_channels.py`)."""

from __future__ import annotations

from typing import Any

from sandstream_bus.wire import messages as m
from sandstream_bus.wire import sessions as n
from sandstream_bus.wire.subjects import Subjects

Row = tuple[Any, ...]
"""The fields of a channel, in order."""


def session_requests(s: Subjects, stream: str) -> list[Row]:
    """One channel for all kinds of requests."""
    return [
        (
            "ask_session",
            _named(s.ask_session("user", "SESSION", "=kind=")).replace("user.", "=user=."),
            "What the user wants of a session; the kind says which message it is",
            tuple(n.REQUEST_KINDS.values()),
            "that user",
            "sessions actor, which writes session.{session}.state",
            stream,
            True,
        )
    ]


def session_records(s: Subjects, stream: str) -> list[Row]:
    """The state and the turns."""
    readers = "sessions actor, clients"
    return [
        (
            "session_state",
            _named(s.session_state("SESSION")),
            "The whole state of a session; the last one counts, written under compare-and-set",
            (n.SessionState, m.Claim),
            "sessions actor",
            readers,
            stream,
        ),
        (
            "session_turn",
            _named(s.session_turn("SESSION", "=number=")),
            "A finished turn of a session",
            (n.SessionTurn, m.Claim),
            "sessions actor",
            readers,
            stream,
        ),
    ]


def session_hints(s: Subjects) -> list[Row]:
    """What is never stored."""
    return [
        (
            "session_changed",
            _named(s.session_changed("SESSION")),
            "An empty hint that the state of a session has changed, never stored",
            (),
            "sessions actor",
            "every user with the permission",
            "",
        )
    ]


def _named(subject: str) -> str:
    return subject.replace("SESSION", "=session=")
