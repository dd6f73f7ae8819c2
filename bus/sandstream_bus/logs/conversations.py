"""The logs of conversations: their holder, the waiting runs, and the history.

A conversation is a fold over its log. The run that joined first holds it; the others get it in the
order of joining. Each run adds all of its items in one event when it leaves, so items of two runs
are never interleaved. Every change uses compare-and-set. From time to time a snapshot is written,
so that reading does not become slower with age, and no part of an old conversation expires while it
is used.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, assert_never

import msgspec
from msgspec import Raw

from sandstream_bus.errors import (
    BusError,
    ContentMissing,
    MessageError,
    UnknownMessage,
    WrongSequence,
)
from sandstream_bus.logs.codec import NOT_JSON, Codec
from sandstream_bus.nats.connection import PUBLISH_BUDGET_S, Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last, fresh_many
from sandstream_bus.nats.publication import Expect
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire.conversations import (
    ConversationAdded,
    ConversationCleared,
    ConversationCompacted,
    ConversationCut,
    ConversationEvent,
    ConversationJoined,
    ConversationLeft,
    ConversationPopped,
    JoinPolicy,
    WaitingRun,
)
from sandstream_bus.wire.subjects import session_token

logger = logging.getLogger(__name__)

COMPACT_AFTER = 200
"""Write a snapshot after this many events."""
COMPACT_AGE_S = 86_400.0
"""A change also writes a snapshot if a part of the conversation is this old. So all parts are
about as old as the last change, and expire together.
"""
LEFT_REMEMBERED = 1000
"""The number of left runs that a snapshot remembers."""
_item = msgspec.json.Decoder(dict[str, Any])


class ConversationBusy(BusError):
    """A run holds the conversation."""

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
    """The state of a conversation from its log up to ``last_sequence``."""

    def __init__(self, session: str, snapshot: ConversationCompacted | None = None) -> None:
        self.session = session
        self.last_sequence = snapshot.through if snapshot else 0
        self.history: list[Raw] = list(snapshot.history) if snapshot else []
        self.waiting: list[WaitingRun] = list(snapshot.waiting) if snapshot else []
        """Runs that have joined and not left, in order; the first holds the conversation."""
        counts = snapshot.left_items if snapshot else {}
        self.left: dict[str, int] = {
            run: counts.get(run, 0) for run in (snapshot.left if snapshot else ())
        }
        """Runs that have left, in order, and how many items each of them added."""
        self.back: dict[str, int] = {
            run: count for run, count in counts.items() if run not in self.left
        }
        """The same for runs that have left and queue again."""
        self.attempts: dict[str, int] = dict(snapshot.attempts) if snapshot else {}
        """The number of retries of each run when it last joined, if any."""
        self.events = 0
        """The number of events since the snapshot."""

    @property
    def holder(self) -> WaitingRun | None:
        """The run that holds the conversation."""
        return self.waiting[0] if self.waiting else None

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting)

    def is_held_by(self, run: str) -> bool:
        return bool(self.waiting) and self.waiting[0].run == run

    def place_of(self, run: str) -> int | None:
        """The number of runs that must leave before the run's turn; None: it does not wait."""
        return next((n for n, waiting in enumerate(self.waiting) if waiting.run == run), None)

    def apply(self, sequence: int, event: ConversationEvent) -> None:
        """Apply the next event."""
        self.last_sequence = sequence
        self.events += 1
        match event:
            case ConversationJoined():
                self._join(
                    WaitingRun(
                        run=event.run, pool=event.pool, policy=event.policy, attempt=event.attempt
                    )
                )
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
            case ConversationCut():
                del self.history[max(event.keep, 0) :]
            case _:
                assert_never(event)

    def skip(self, sequence: int) -> None:
        """Skip a message that is not an event."""
        self.last_sequence = sequence
        self.events += 1

    def _join(self, joining: WaitingRun) -> None:
        place = self.place_of(joining.run)
        if place is not None:
            self.waiting[place] = joining
        elif self.may_join(joining.run, joining.attempt):
            if joining.run in self.left:
                self.back[joining.run] = self.left.pop(joining.run)
            if joining.attempt:
                self.attempts[joining.run] = joining.attempt
            self.waiting.append(joining)

    def may_join(self, run: str, attempt: int) -> bool:
        """May a run that does not wait yet join? A run that has left may join only if it was
        retried since then.
        """
        return run not in self.left or attempt > self.attempts.get(run, 0)

    def _leave(self, run: str, items: list[Raw]) -> None:
        if run in self.left:
            return
        self.waiting = [waiting for waiting in self.waiting if waiting.run != run]
        self.left[run] = self.back.pop(run, 0) + len(items)
        self.history.extend(items)

    def snapshot(self) -> ConversationCompacted:
        left = dict(list(self.left.items())[-LEFT_REMEMBERED:])
        known = {**left, **self.back}
        return ConversationCompacted(
            through=self.last_sequence,
            history=self.history,
            waiting=self.waiting,
            left=list(left),
            left_items={run: count for run, count in known.items() if count},
            attempts={run: it for run, it in self.attempts.items() if run in known},
        )


Decide = Callable[[Conversation], ConversationEvent | None]


class _Basis(NamedTuple):
    """The basis of a reading."""

    snapshot: int
    """The sequence of the snapshot; 0: none."""
    oldest: str
    """When the oldest message of the reading was stored."""


class Conversations:
    """All conversations of one installation."""

    def __init__(self, connection: Connection, codec: Codec, topology: Topology) -> None:
        self.compact_after = COMPACT_AFTER
        self._connection = connection
        self._codec = codec
        self._topology = topology
        self._subjects = topology.subjects

    async def read(self, session: str) -> Conversation:
        """The current conversation; an empty one if the name is unknown."""
        conversation, _ = await self._read(session)
        return conversation

    async def names(self) -> list[str]:
        """All conversations; one whose id is too long for a subject is listed by its token."""
        logs = await self._topology.subjects_of(
            self._connection, self._topology.log, self._subjects.session_logs()
        )
        return sorted(map(self._subjects.parse_session, logs))

    # --- runs ----------------------------------------------------------------------------------

    async def join(
        self, session: str, run: str, pool: str, policy: JoinPolicy = "queue", *, attempt: int = 0
    ) -> Conversation:
        """Let the run wait for its turn; no effect if it already waits or has had its turn.

        With ``refuse`` a run that would have to wait raises :class:`ConversationBusy` instead.
        ``attempt``: how often the run was retried; it queues again after each retry.
        """

        def decide(conversation: Conversation) -> ConversationEvent | None:
            place = conversation.place_of(run)
            if not conversation.may_join(run, attempt):
                return None
            if place is not None and conversation.waiting[place].pool == pool:
                return None
            if place is None and policy == "refuse" and conversation.holder is not None:
                raise ConversationBusy(session, conversation.holder.run, f"run {run} is refused")
            return ConversationJoined(run=run, pool=pool, policy=policy, attempt=attempt)

        return await self._change(session, decide, budget_s=None)

    async def leave(
        self, session: str, run: str, items: Sequence[Raw] = (), status: str = ""
    ) -> Conversation:
        """Leave, and add all of the run's items to the history; has no effect if repeated.

        A run that continued after leaving (because of late input, or because it was reopened)
        leaves again with all of its items: those missing in the history are added, even if another
        run holds it now. The new holder is the ``holder`` of the returned conversation; the caller
        must wake it. A run that leaves before its turn has no items.
        """
        kept = checked_items(items)

        def decide(conversation: Conversation) -> ConversationEvent | None:
            if run in conversation.left:
                more = kept[conversation.left[run] :]
                return ConversationAdded(items=more, run=run) if more else None
            new = kept[conversation.back.get(run, 0) :]
            if new and conversation.holder is not None and not conversation.is_held_by(run):
                raise ConversationBusy(
                    session, conversation.holder.run, f"run {run} cannot add to it out of turn"
                )
            if not new and conversation.place_of(run) is None:
                return None
            return ConversationLeft(run=run, status=status, items=new)

        return await self._change(session, decide, budget_s=None)

    # --- other users ---------------------------------------------------------------------------

    async def add(self, session: str, items: Sequence[Raw], *, by: str = "") -> Conversation:
        """Append items to the history. Refused while a run holds the conversation."""
        kept = checked_items(items)

        def decide(conversation: Conversation) -> ConversationEvent | None:
            _check_free(conversation, "nothing can be added")
            return ConversationAdded(items=kept, by=by) if kept else None

        return await self._change(session, decide)

    async def pop(self, session: str, *, by: str = "") -> Raw | None:
        """Remove the last item and return it. Refused while a run holds the conversation."""
        popped: Raw | None = None

        def decide(conversation: Conversation) -> ConversationEvent | None:
            nonlocal popped
            _check_free(conversation, "nothing can be taken back")
            popped = conversation.history[-1] if conversation.history else None
            return None if popped is None else ConversationPopped(by=by)

        await self._change(session, decide)
        return popped

    async def clear(self, session: str, *, by: str = "") -> Conversation:
        """Clear the history. Refused while a run holds the conversation."""

        def decide(conversation: Conversation) -> ConversationEvent | None:
            _check_free(conversation, "it cannot be cleared")
            return ConversationCleared(by=by) if conversation.history else None

        return await self._change(session, decide)

    async def cut(self, session: str, keep: int, *, by: str = "") -> Conversation:
        """Keep only the first items. Refused while a run holds the conversation."""

        def decide(conversation: Conversation) -> ConversationEvent | None:
            _check_free(conversation, "it cannot be cut")
            is_longer = len(conversation.history) > keep
            return ConversationCut(keep=keep, by=by) if is_longer else None

        return await self._change(session, decide)

    async def copy(self, session: str, items: Sequence[Raw], *, by: str = "") -> Conversation:
        """Begin a conversation with these items, unless it has begun; safe to repeat."""
        kept = checked_items(items)

        def decide(conversation: Conversation) -> ConversationEvent | None:
            is_new = conversation.last_sequence == 0
            return ConversationAdded(items=kept, by=by) if kept and is_new else None

        return await self._change(session, decide, budget_s=None)

    async def renew(self, session: str, *, by: str = "") -> None:
        """Make an old conversation live as long as one that changes now.

        It gets an event without items, which writes a snapshot. A snapshot alone is not enough: the
        next writer expects the last event.
        """
        _, basis = await self._read(session)
        if _age_s(basis.oldest) >= COMPACT_AGE_S:
            await self._change(session, lambda _: ConversationAdded(items=[], by=by), budget_s=None)

    # --- the log -------------------------------------------------------------------------------

    async def _change(
        self, session: str, decide: Decide, *, budget_s: float | None = PUBLISH_BUDGET_S
    ) -> Conversation:
        """Read, decide, write with compare-and-set; on a conflict decide again."""
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
            # else another writer was faster, or it is our own event, whose acknowledgement was lost
            if is_stored or await self._catch_up(conversation, msg_id):
                await self._compact_if_due(conversation, basis)
                return conversation

    async def _read(self, session: str) -> tuple[Conversation, _Basis]:
        found = await fresh_last(
            self._connection, self._topology.log, self._subjects.session_snapshot(session)
        )
        snapshot = await self._snapshot(found) if found else None
        conversation = Conversation(session, snapshot)
        news = await self._apply_news(conversation)
        first = found or (news[0] if news else None)
        oldest = first.time if first else ""
        return conversation, _Basis(found.sequence if found else 0, oldest)

    async def _snapshot(self, last: Stored) -> ConversationCompacted | None:
        """The last readable snapshot: a message from outside must not hide it."""
        try:
            return await self._codec.conversation_snapshot(last.data)
        except MessageError:
            if last.msg_id:
                raise
        for stored in reversed(
            await fresh_many(self._connection, self._topology.log, last.subject, after=0)
        ):
            if stored.msg_id:
                return await self._codec.conversation_snapshot(stored.data)
        return None

    async def _catch_up(self, conversation: Conversation, msg_id: str) -> bool:
        """Fold new events; return whether the message with that id is among them."""
        news = await self._apply_news(conversation)
        return any(stored.msg_id == msg_id for stored in news)

    async def _apply_news(self, conversation: Conversation) -> list[Stored]:
        found = await fresh_many(
            self._connection,
            self._topology.log,
            self._subjects.session_log(conversation.session),
            after=conversation.last_sequence,
        )
        for stored in found:
            try:
                event = await self._codec.conversation_event(stored.data)
            except MessageError as error:
                # Written by an outsider: it must not break the conversation.
                if isinstance(error, UnknownMessage | ContentMissing) and stored.msg_id:
                    raise
                place = {"subject": stored.subject, "sequence": stored.sequence}
                logger.warning(
                    "skipped a message in a conversation's log that is not an event",
                    extra=place | {"why": str(error)},
                )
                conversation.skip(stored.sequence)
            else:
                conversation.apply(stored.sequence, event)
        return found

    async def _compact_if_due(self, conversation: Conversation, basis: _Basis) -> None:
        """Write a snapshot if due. It only makes the next read faster; the events are stored."""
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
            return  # another process wrote one
        except BusError as error:
            logger.warning(
                "no snapshot of a conversation could be written",
                extra={"session": conversation.session},
                exc_info=error,
            )


def checked_items(items: Sequence[Raw]) -> list[Raw]:
    """The items, checked to be JSON objects: an invalid one would break its whole event."""
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
    """The age of a stored message in seconds; 0 without a time."""
    if not time:
        return 0.0
    stored = datetime.fromisoformat(time[:19]).replace(tzinfo=UTC)
    return (datetime.now(UTC) - stored).total_seconds()
