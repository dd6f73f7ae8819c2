"""The messages about conversations: their events and snapshots.

Each conversation has its own log, ``<p>.session.<session>.log``. A run joins it, waits for its
turn, and leaves with all of its items in one event, so that items of two runs never interleave.
Items are input items of the Responses API, stored as the JSON in which they arrived.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw

from sandstream_bus.wire.spec_base import Spec

JoinPolicy = Literal["queue", "refuse"]
"""What a run does if another run holds the conversation."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of the tagged messages here."""


class ConversationJoined(Message, frozen=True, kw_only=True, tag="conversation.joined"):
    """A run joins the conversation; it gets its turn when all earlier runs have left.

    A waiting run that joins again has moved to another pool and keeps its place. A run that joins
    again after it left was retried, and queues again.
    """

    run: str
    pool: str
    policy: JoinPolicy = "queue"
    attempt: int = 0
    """How often the run was retried before."""


class ConversationLeft(Message, frozen=True, kw_only=True, tag="conversation.left"):
    """A run leaves; its items join the history."""

    run: str
    status: str = ""
    """How the run ended."""
    items: list[Raw] = []


class ConversationAdded(Message, frozen=True, kw_only=True, tag="conversation.added"):
    """Items that join the history while no run does."""

    items: list[Raw]
    by: str = ""
    run: str = ""
    """Where a run did make them: one that had left, and had more to say after all."""


class ConversationPopped(Message, frozen=True, kw_only=True, tag="conversation.popped"):
    """The last item is removed."""

    by: str = ""


class ConversationCleared(Message, frozen=True, kw_only=True, tag="conversation.cleared"):
    """The history is cleared."""

    by: str = ""


class ConversationCut(Message, frozen=True, kw_only=True, tag="conversation.cut"):
    """Only the first items stay: the session that has this conversation was rewound."""

    keep: int
    """How many items stay."""
    by: str = ""


class WaitingRun(Spec, frozen=True, kw_only=True):
    """A run that has joined and not left."""

    run: str
    pool: str
    policy: JoinPolicy = "queue"
    attempt: int = 0


class ConversationCompacted(Message, frozen=True, kw_only=True, tag="conversation.compacted"):
    """All that the log says up to a sequence; on the snapshot subject, not in the log itself."""

    through: int
    """The sequence of the last event of the log that is part of this."""
    history: list[Raw] = []
    waiting: list[WaitingRun] = []
    left: list[str] = []
    """The last runs that left, so that a repeated call of one is known as such."""
    left_items: dict[str, int] = {}
    """How many items each run has added, if any, including runs that joined again."""
    attempts: dict[str, int] = {}
    """How often they were retried when they last joined, if ever."""


ConversationEvent = (
    ConversationJoined
    | ConversationLeft
    | ConversationAdded
    | ConversationPopped
    | ConversationCleared
    | ConversationCut
)
