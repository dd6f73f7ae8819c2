"""What crosses the bus about conversations: the events of one, and its snapshot.

A conversation has a log of its own, ``<p>.session.<session>.log``. A run joins it, waits for its
turn, and leaves with all of its items in one event, so that two runs never interleave. Items are
input items of the Responses API, kept as the JSON they came as.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw

from sandstream_bus.wire.spec_base import Spec

JoinPolicy = Literal["queue", "refuse"]
"""What a run does that finds the conversation busy."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of the tagged messages here."""


class ConversationJoined(Message, frozen=True, kw_only=True, tag="conversation.joined"):
    """A run wants the conversation; it has it as soon as all who came before have left.

    Once more for a run that waits: it has moved to another pool and keeps its place. Once more for
    a run that has left: it failed and is retried, and queues anew.
    """

    run: str
    pool: str
    policy: JoinPolicy = "queue"
    attempt: int = 0
    """How often the run was retried before."""


class ConversationLeft(Message, frozen=True, kw_only=True, tag="conversation.left"):
    """A run lets go; its items join the history."""

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
    """The last item is taken back."""

    by: str = ""


class ConversationCleared(Message, frozen=True, kw_only=True, tag="conversation.cleared"):
    """The history begins anew."""

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
    """How many items each of them has added, if any; also those that have come back."""
    attempts: dict[str, int] = {}
    """How often they were retried when they last joined, if ever."""


ConversationEvent = (
    ConversationJoined
    | ConversationLeft
    | ConversationAdded
    | ConversationPopped
    | ConversationCleared
)
