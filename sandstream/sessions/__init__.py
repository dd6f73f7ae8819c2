"""Durable sessions: long-lived work with one agent, which costs nothing while it rests.

``client.sessions`` is a :class:`Sessions`; it gives :class:`DurableSession` objects. A session
lives in the log and is served by the sessions actor. The objects here only refer to it: any number
of programs can hold the same session, and none of them keeps it alive. docs/sessions.md explains
sessions, docs/wire.md shows their messages.

Not to be confused with the *session objects* of :mod:`sandstream.memory`, which give single runs a
conversation.
"""

from __future__ import annotations

from sandstream_bus.wire.sessions import (
    ActiveTurn,
    ForkOrigin,
    QueuedMessage,
    Refusal,
    SessionTurn,
)

from sandstream.sessions.directory import Sessions
from sandstream.sessions.durable_session import DurableSession
from sandstream.sessions.errors import (
    MessageGone,
    SessionNotFound,
    SessionRefused,
    SessionUnanswered,
    TurnFailed,
)
from sandstream.sessions.events import (
    CommandOutput,
    RunStep,
    SessionChanged,
    SessionEvent,
    TextDelta,
    TurnBegan,
    TurnEnded,
)
from sandstream.sessions.sent_message import SentMessage
from sandstream.sessions.switch_preview import SwitchLoss, SwitchPreview
from sandstream.sessions.views import SessionActivity, SessionInfo

__all__ = [
    "ActiveTurn",
    "CommandOutput",
    "DurableSession",
    "ForkOrigin",
    "MessageGone",
    "QueuedMessage",
    "Refusal",
    "RunStep",
    "SentMessage",
    "SessionActivity",
    "SessionChanged",
    "SessionEvent",
    "SessionInfo",
    "SessionNotFound",
    "SessionRefused",
    "SessionTurn",
    "SessionUnanswered",
    "Sessions",
    "SwitchLoss",
    "SwitchPreview",
    "TextDelta",
    "TurnBegan",
    "TurnEnded",
    "TurnFailed",
]
