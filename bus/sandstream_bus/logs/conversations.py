"""The logs of conversations: who has one, who waits for it, and what was said.

A conversation is a fold over its log. The run that joined first has it, the others get it in the
order of their joining, and each leaves all of its items in one event: what two runs say is never
interleaved. Every change is made under compare-and-set. Now and then a snapshot is written, so that
reading does not grow with age and an old conversation that is still used never expires in parts.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, assert_never

import msgspec
from msgspec import Raw

from sandstream_bus.codec import NOT_JSON, Codec
from sandstream_bus.connection import PUBLISH_BUDGET_S, Connection
from sandstream_bus.conversation_messages import (
    ConversationAdded,
    ConversationCleared,
    ConversationCompacted,
    ConversationEvent,
    ConversationJoined,
    ConversationLeft,
    ConversationPopped,
    JoinPolicy,
    WaitingRun,
)
from sandstream_bus.direct import Stored, direct_get_last, direct_get_many
from sandstream_bus.errors import (
    BusError,
    MessageError,
    UndecodableMessage,
    WrongSequence,
)
from sandstream_bus.publishing import Expect
from sandstream_bus.subjects import session_token
from sandstream_bus.topology import Topology

logger = logging.getLogger(__name__)

COMPACT_AFTER = 200
"""So many events after a snapshot there is another one."""
COMPACT_AGE_S = 86_400.0
"""A change also writes one if anything of the conversation is this old. So all of it is about as
old as its last change, and expires as one.
"""
LEFT_REMEMBERED = 1000
"""Of so many runs a snapshot remembers that they have left."""
_item = msgspec.json.Decoder(dict[str, Any])


class ConversationBusy(BusError):
    """A run has the conversation."""

    code = "conversation.busy"

    def __init__(self, session: str, holder: str, what: str) -> None:
        super().__init__(
            f"the conversation {session!r} is busy with run {holder}: {what}. Wait for that run or "
            "cancel it, or let runs queue."
        )
        self.session = session
        self.holder = holder


class InvalidItem(MessageError):
    """An item is not a JSON object."""

    code = "conversation.invalid_item"


class Conversation:
    """Everything that can be known of a conversation from its log up to ``last_sequence``."""

    def __init__(self, session: str, snapshot: ConversationCompacted | None = None) -> None:
        self.session = session
        self.last_sequence = snapshot.through if snapshot else 0
        self.history: list[Raw] = list(snapshot.history) if snapshot else []
        self.waiting: list[WaitingRun] = list(snapshot.waiting) if snapshot else []
        """Runs that have joined and not left, in order; the first has the conversation."""
        counts = snapshot.left_items if snapshot else {}
        self.left: dict[str, int] = {
            run: counts.get(run, 0) for run in (snapshot.left if snapshot else ())
        }
        """Runs that have left, in order, and how many items each has added."""
        self.events = 0
        """How many came after the snapshot."""

    @property
    def holder(self) -> WaitingRun | None:
        """The run whose turn it is."""
        return self.waiting[0] if self.waiting else None

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting)

    def is_held_by(self, run: str) -> bool:
        return bool(self.waiting) and self.waiting[0].run == run

    def place_of(self, run: str) -> int | None:
        """How many have to leave before it is the run's turn; None: it does not wait."""
        return next((n for n, waiting in enumerate(self.waiting) if waiting.run == run), None)

    def apply(self, sequence: int, event: ConversationEvent) -> None:
        """Take the next event into account."""
        self.last_sequence = sequence
        self.events += 1
        match event:
            case ConversationJoined():
                self._join(WaitingRun(run=event.run, pool=event.pool, policy=event.policy))
            case ConversationLeft():
                self._leave(event.run, event.items)
            case ConversationAdded():
                self.history.extend(event.items)
                if event.run in self.left:
                    self.left[event.run] += len(event.items)
            case ConversationPopped():
                del self.history[-1:]
            case ConversationCleared():
                self.history.clear()
            case _:
                assert_never(event)

    def skip(self, sequence: int) -> None:
        """Pass over a message that is no event."""
        self.last_sequence = sequence
        self.events += 1

    def _join(self, joining: WaitingRun) -> None:
        place = self.place_of(joining.run)
        if place is not None:
            self.waiting[place] = joining
        elif joining.run not in self.left:
            self.waiting.append(joining)

    def _leave(self, run: str, items: list[Raw]) -> None:
        if run in self.left:
            return
        self.waiting = [waiting for waiting in self.waiting if waiting.run != run]
        self.left[run] = len(items)
        self.history.extend(items)

    def snapshot(self) -> ConversationCompacted:
        left = dict(list(self.left.items())[-LEFT_REMEMBERED:])
        return ConversationCompacted(
            through=self.last_sequence,
            history=self.history,
            waiting=self.waiting,
            left=list(left),
            left_items={run: count for run, count in left.items() if count},
        )


Decide = Callable[[Conversation], ConversationEvent | None]


class _Basis(NamedTuple):
    """What a reading is made of."""

    snapshot: int
    """The sequence of the snapshot; 0: none."""
    oldest: str
    """When the oldest message of it was stored."""


class Conversations:
    """All conversations of one installation."""

    def __init__(self, connection: Connection, codec: Codec, topology: Topology) -> None:
        self.compact_after = COMPACT_AFTER
        self._connection = connection
        self._codec = codec
        self._topology = topology
        self._subjects = topology.subjects

    async def read(self, session: str) -> Conversation:
        """The conversation as it is now; an empty one if there is none of that name."""
        conversation, _ = await self._read(session)
        return conversation

    async def names(self) -> list[str]:
        """All conversations; one whose id is too long for a subject by a name that stands for it
        everywhere.
        """
        logs = await self._topology.subjects_of(
            self._connection, self._topology.log, self._subjects.session_logs()
        )
        return sorted(map(self._subjects.parse_session, logs))

    # --- runs ----------------------------------------------------------------------------------

    async def join(
        self, session: str, run: str, pool: str, policy: JoinPolicy = "queue"
    ) -> Conversation:
        """Have the run wait for its turn, or find that it does so already, or has had it.

        With ``refuse`` a run that would have to wait does not join: :class:`ConversationBusy`.
        """

        def decide(conversation: Conversation) -> ConversationEvent | None:
            place = conversation.place_of(run)
            if run in conversation.left:
                return None
            if place is not None and conversation.waiting[place].pool == pool:
                return None
            if place is None and policy == "refuse" and conversation.holder is not None:
                raise ConversationBusy(session, conversation.holder.run, f"run {run} is refused")
            return ConversationJoined(run=run, pool=pool, policy=policy)

        return await self._change(session, decide, budget_s=None)

    async def leave(
        self, session: str, run: str, items: Sequence[Raw] = (), status: str = ""
    ) -> Conversation:
        """Let go, with all items that the run adds to the history; again does nothing.

        A run that has left and went on after all (somebody said more in that moment, or it was
        reopened) leaves again, with all of its items: those that are not in the history are added
        to it, whoever has it now. The run that has the conversation now is the ``holder`` of what
        is returned: it waits for somebody to tell it. A run that leaves before its turn has no
        items.
        """
        kept = checked_items(items)

        def decide(conversation: Conversation) -> ConversationEvent | None:
            if run in conversation.left:
                more = kept[conversation.left[run] :]
                return ConversationAdded(items=more, run=run) if more else None
            if kept and conversation.holder is not None and not conversation.is_held_by(run):
                raise ConversationBusy(
                    session, conversation.holder.run, f"run {run} cannot add to it out of turn"
                )
            if not kept and conversation.place_of(run) is None:
                return None
            return ConversationLeft(run=run, status=status, items=kept)

        return await self._change(session, decide, budget_s=None)

    # --- everybody else ------------------------------------------------------------------------

    async def add(self, session: str, items: Sequence[Raw], *, by: str = "") -> Conversation:
        """Append items to the history. Refused while a run has the conversation."""
        kept = checked_items(items)

        def decide(conversation: Conversation) -> ConversationEvent | None:
            _check_free(conversation, "nothing can be added")
            return ConversationAdded(items=kept, by=by) if kept else None

        return await self._change(session, decide)

    async def pop(self, session: str, *, by: str = "") -> Raw | None:
        """Remove the last item and return it. Refused while a run has the conversation."""
        popped: Raw | None = None

        def decide(conversation: Conversation) -> ConversationEvent | None:
            nonlocal popped
            _check_free(conversation, "nothing can be taken back")
            popped = conversation.history[-1] if conversation.history else None
            return None if popped is None else ConversationPopped(by=by)

        await self._change(session, decide)
        return popped

    async def clear(self, session: str, *, by: str = "") -> Conversation:
        """Begin the history anew. Refused while a run has the conversation."""

        def decide(conversation: Conversation) -> ConversationEvent | None:
            _check_free(conversation, "it cannot be cleared")
            return ConversationCleared(by=by) if conversation.history else None

        return await self._change(session, decide)

    # --- the log -------------------------------------------------------------------------------

    async def _change(
        self, session: str, decide: Decide, *, budget_s: float | None = PUBLISH_BUDGET_S
    ) -> Conversation:
        """Read, decide, write if nobody else did meanwhile; else decide again."""
        conversation, basis = await self._read(session)
        subject = self._subjects.session_log(session)
        msg_id = f"{session_token(session)}:{uuid.uuid4().hex}"
        while True:
            event = decide(conversation)
            if event is None:
                return conversation
            data = await self._codec.encode(event)
            expect = Expect(conversation.last_sequence, subject)
            try:
                ack = await self._connection.publish(
                    subject, data, msg_id=msg_id, expect=expect, budget_s=budget_s
                )
            except WrongSequence:
                is_stored = False
            else:
                is_stored = not ack.duplicate
                if is_stored:
                    conversation.apply(ack.seq, event)
            # else somebody was faster, or it is our own, whose acknowledgement was lost
            if is_stored or await self._catch_up(conversation, msg_id):
                await self._compact_if_due(conversation, basis)
                return conversation

    async def _read(self, session: str) -> tuple[Conversation, _Basis]:
        found = await direct_get_last(
            self._connection, self._topology.log, self._subjects.session_snapshot(session)
        )
        snapshot = await self._codec.conversation_snapshot(found.data) if found else None
        conversation = Conversation(session, snapshot)
        news = await self._apply_news(conversation)
        first = found or (news[0] if news else None)
        oldest = first.time if first else ""
        return conversation, _Basis(found.sequence if found else 0, oldest)

    async def _catch_up(self, conversation: Conversation, msg_id: str) -> bool:
        """Fold what is new; is the message with that id part of it?"""
        news = await self._apply_news(conversation)
        if not news:
            await asyncio.sleep(0.05)  # a replica that is behind
        return any(stored.msg_id == msg_id for stored in news)

    async def _apply_news(self, conversation: Conversation) -> list[Stored]:
        found = await direct_get_many(
            self._connection,
            self._topology.log,
            self._subjects.session_log(conversation.session),
            after=conversation.last_sequence,
        )
        for stored in found:
            try:
                event = await self._codec.conversation_event(stored.data)
            except UndecodableMessage as error:
                # Written by a stranger: it must not cost the conversation.
                logger.warning(
                    "a message in a conversation's log is no event and is passed over",
                    extra={"subject": stored.subject, "sequence": stored.sequence},
                    exc_info=error,
                )
                conversation.skip(stored.sequence)
            else:
                conversation.apply(stored.sequence, event)
        return found

    async def _compact_if_due(self, conversation: Conversation, basis: _Basis) -> None:
        """What is written stands; a snapshot only makes the next reading faster."""
        if conversation.events < self.compact_after and _age_s(basis.oldest) < COMPACT_AGE_S:
            return
        snapshot = conversation.snapshot()
        subject = self._subjects.session_snapshot(conversation.session)
        try:
            await self._connection.publish(
                subject,
                await self._codec.encode(snapshot),
                msg_id=f"{session_token(conversation.session)}:snapshot:{snapshot.through}",
                expect=Expect(basis.snapshot, subject),
            )
        except WrongSequence:
            return  # somebody else wrote one
        except BusError as error:
            logger.warning(
                "no snapshot of a conversation could be written",
                extra={"session": conversation.session},
                exc_info=error,
            )


def checked_items(items: Sequence[Raw]) -> list[Raw]:
    """The items, each of which is a JSON object: one that is not would spoil its whole event."""
    for number, item in enumerate(items):
        try:
            _item.decode(item)
        except NOT_JSON as error:
            raise InvalidItem(
                f"item {number} cannot be part of a conversation, it must be a JSON object: {error}"
            ) from None
    return list(items)


def _check_free(conversation: Conversation, what: str) -> None:
    if conversation.holder is not None:
        raise ConversationBusy(conversation.session, conversation.holder.run, what)


def _age_s(time: str) -> float:
    """How long ago the server stored something; 0 if nothing was."""
    if not time:
        return 0.0
    stored = datetime.fromisoformat(time[:19]).replace(tzinfo=UTC)
    return (datetime.now(UTC) - stored).total_seconds()
