"""A run's place in its conversation on the bus: one run at a time, the others queue or are refused.

The run reads the history when it is its turn, and leaves with all that it has said in one event.
"""

from __future__ import annotations

from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.conversations import Conversation
from sandstream_bus.conversations import ConversationBusy as ConversationBusy
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.messages import ConversationOpened, RunDone, TurnRequested
from sandstream_bus.specs import SessionUse
from sandstream_bus.subjects import RunId

from sandstream_actors.output_items import without_orphans
from sandstream_actors.run_state import RunState


class Membership:
    """Runs of this harness in conversations."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def open(self, state: RunState) -> ConversationOpened | None:
        """The history, if it is the run's turn; None while others are before it.

        Raises :class:`ConversationBusy` if the run does not want to wait.
        """
        session = _session_of(state)
        assert session is not None
        await self._relieve(session.id, state.run)
        conversation = await self._bus.conversations.join(
            session.id, state.run, state.pool, session.busy
        )
        crashpoint("harness.after_join")
        if not conversation.is_held_by(state.run):
            return None
        history = conversation.history
        if session.limit is not None:
            history = history[len(history) - min(session.limit, len(history)) :]
        return ConversationOpened(history=without_orphans(history))

    async def _relieve(self, session: str, run: RunId) -> None:
        """A run that has ended where no harness saw it still holds the conversation: let go."""
        while True:
            conversation = await self._bus.conversations.read(session)
            holder = conversation.holder
            if holder is None or holder.run == run:
                return
            ended = await self._bus.log.last(self._bus.subjects.done(holder.run))
            if ended is None or not isinstance(ended.event, RunDone):
                return
            other = RunState.of(RunId(holder.run), await self._bus.log.read(RunId(holder.run)))
            if other.done is None:
                return
            await self._leave(session, other, other.done)

    async def leave(self, state: RunState, done: RunDone) -> None:
        """Let go of the conversation; what the run has said becomes part of it."""
        session = _session_of(state)
        if session is not None:
            await self._leave(session.id, state, done)

    async def _leave(self, session: str, state: RunState, done: RunDone) -> Conversation:
        crashpoint("harness.before_leave")
        conversation = await self._bus.conversations.leave(
            session, state.run, _said(state), done.status
        )
        crashpoint("harness.after_leave")
        return conversation

    async def wake_next(self, state: RunState) -> None:
        """It is the next run's turn."""
        session = _session_of(state)
        if session is None:
            return
        holder = (await self._bus.conversations.read(session.id)).holder
        if holder is not None and holder.run != state.run:
            await self._bus.work_log.send(
                self._bus.subjects.turn(holder.run, holder.pool),
                TurnRequested(turn=1, agent="", reason="session"),
                msg_id=f"{holder.run}:conversation-free",
            )


def _session_of(state: RunState) -> SessionUse | None:
    session = state.options.session if state.started else None
    return session if session is not None and session.kind == "bus" else None


def _said(state: RunState) -> list[Raw]:
    """What joins the history. An input to which no model has answered does not: it may be the
    reason for that, and would spoil the conversation for good. It is in the run's own log.
    """
    return [] if state.turn == 0 else state.own_input + state.said
