"""The events of a run, for your own actors: ``from sandstream.events import RunDone``.

Messages are described in docs/wire.md. Handlers get the event and a :class:`Received`, and may
raise :class:`Retry` to get the event again later. ``Client.events`` and ``Client.follow`` return
:class:`LogEvent` (stored) and :class:`LiveEvent` (only live).
"""

from __future__ import annotations

from sandstream_actors.base import Received
from sandstream_bus.errors import Retry
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    ErrorInfo,
    InputStaged,
    LiveEvent,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunEvent,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    TokenUsage,
    TurnRequested,
)

__all__ = [
    "ApprovalDecided",
    "ApprovalRequested",
    "CallFinished",
    "CallRequested",
    "CallStarted",
    "CancelRequested",
    "ChildWaiting",
    "ConversationOpened",
    "ErrorInfo",
    "InputStaged",
    "LiveEvent",
    "LogEvent",
    "ModelAnswered",
    "ModelDeferred",
    "Received",
    "Retry",
    "RunDone",
    "RunEvent",
    "RunMoved",
    "RunReopened",
    "RunRestored",
    "RunStarted",
    "RunWaiting",
    "TokenUsage",
    "TurnRequested",
]
