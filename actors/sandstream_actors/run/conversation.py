"""A run's place in its conversation on the bus: one run holds it, the others queue or are refused.

The run reads the history when its turn comes, and leaves with all of its items in one event. It
leaves before its end is written, so that readers of the end find the conversation complete.
"""

from __future__ import annotations

import logging

from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import MessageError, PayloadTooLarge
from sandstream_bus.logs.conversations import ConversationBusy as ConversationBusy
from sandstream_bus.logs.conversations import InvalidItem
from sandstream_bus.wire.messages import ConversationOpened, ErrorInfo, RunDone, TurnRequested
from sandstream_bus.wire.specs import SessionUse
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.run.output_items import since_compaction, without_orphans
from sandstream_actors.run.state import RunState

logger = logging.getLogger(__name__)


class Membership:
    """Runs of this harness in conversations."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def open(self, state: RunState) -> ConversationOpened | None:
        """The history, if it is the run's turn; None while earlier runs hold it.

        Raises :class:`ConversationBusy` if the run does not want to wait.
        """
        session = _session_of(state)
        assert session is not None
        await self._relieve(session.id, state.run)
        conversation = await self._bus.conversations.join(
            session.id, state.run, state.pool, session.busy, attempt=state.past.retries
        )
        crashpoint("harness.after_join")
        # a run that has left was reopened: it has had its turn, and must not wait for another one
        if not conversation.is_held_by(state.run) and state.run not in conversation.left:
            return None
        history = since_compaction(state.agent, conversation.history)
        return ConversationOpened(history=readable(history, session.limit))

    async def _relieve(self, session: str, run: RunId) -> None:
        """Release the conversation if its holder has ended without a harness, or is not in the log
        because it expired or never existed.
        """
        while True:
            conversation = await self._bus.conversations.read(session)
            holder = conversation.holder
            if holder is None or holder.run == run:
                return
            start = self._bus.subjects.start(RunId(holder.run), "*")
            if await self._bus.log.first_subject(start) is None:
                await self._bus.conversations.leave(session, RunId(holder.run), status="failed")
                await self._wake(session)
                continue
            ended = await self._bus.log.last(self._bus.subjects.done(holder.run))
            if ended is None or not isinstance(ended.event, RunDone):
                return
            try:
                other = RunState.of(RunId(holder.run), await self._bus.log.read(RunId(holder.run)))
            # its log is unreadable, so it can be neither reopened nor added to the history
            except MessageError:
                other = RunState(RunId(holder.run))
                other.done = ended.event
            if other.done is None:
                return
            await self._leave(session, other, other.done)
            await self._wake(session)

    async def leave(self, state: RunState, done: RunDone) -> None:
        """Leave the conversation; the run's items become part of it."""
        session = _session_of(state)
        if session is not None:
            await self._leave(session.id, state, done)

    async def _leave(self, session: str, state: RunState, done: RunDone) -> None:
        leave = self._bus.conversations.leave
        crashpoint("harness.before_leave")
        try:
            await leave(session, state.run, said_in(state), done.status)
        except (PayloadTooLarge, InvalidItem) as error:
            # the other runs must be able to continue, and the run's own log has the items
            logger.error(
                "the items of a run cannot be added to its conversation",
                extra={"session": session, "run_id": state.run},
                exc_info=error,
            )
            await leave(session, state.run, status=done.status)
        crashpoint("harness.after_leave")

    async def wake_next(self, state: RunState) -> None:
        """Give the next run its turn."""
        session = _session_of(state)
        if session is not None:
            await self._wake(session.id)

    async def _wake(self, session: str) -> None:
        """Wake the run that holds the conversation, unless it knows."""
        holder = (await self._bus.conversations.read(session)).holder
        if holder is None:
            return
        knows = await self._bus.log.first_subject(self._bus.subjects.history(RunId(holder.run)))
        if knows is None or holder.attempt:  # a retried run has known it before
            again = f":{holder.attempt}" if holder.attempt else ""
            crashpoint("harness.before_wake")
            await self._bus.work_log.send(
                self._bus.subjects.turn(holder.run, holder.pool),
                TurnRequested(turn=1, agent="", reason="session"),
                msg_id=f"{holder.run}:conversation-free{again}",
            )
            crashpoint("harness.after_wake")


async def let_go(bus: Bus, state: RunState, done: RunDone) -> None:
    """Release the conversation of a run that was ended by a process other than a harness."""
    membership = Membership(bus)
    await membership.leave(state, done)
    await membership.wake_next(state)


def why_closed(error: ConversationBusy | PayloadTooLarge) -> ErrorInfo:
    """Why a run cannot join its conversation."""
    if isinstance(error, ConversationBusy):
        return ErrorInfo(code="conversation_busy", message=str(error))
    message = f"the conversation cannot be read: {error}. Read less of it (limit), or clear it."
    return ErrorInfo(code="conversation_too_large", message=message)


def _session_of(state: RunState) -> SessionUse | None:
    session = state.options.session if state.started else None
    return session if session is not None and session.kind == "bus" else None


def readable(history: list[Raw], limit: int | None) -> list[Raw]:
    """The part of a history that a run reads, as an endpoint accepts it. As in SQL, a negative
    limit means no limit.
    """
    if limit is not None and limit >= 0:
        history = history[max(0, len(history) - limit) :]
    return without_orphans(history)


def said_in(state: RunState) -> list[Raw]:
    """The items that join the history. An input without an answer of the model does not: it may be
    the reason for the failure, and would break the conversation permanently. The run's own log has
    it.
    """
    if state.turn == 0 and not state.past.dropped:
        return []
    return state.own_input + state.past.all_said(state.said)
