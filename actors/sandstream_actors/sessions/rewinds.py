"""Restores the conversation and the files as they were after a turn."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.conversations import ConversationBusy
from sandstream_bus.wire.sessions import PendingRewind, SessionState, SessionTurn
from sandstream_bus.wire.subjects import session_conversation

from sandstream_actors.sessions.changes import Change, replace
from sandstream_actors.sessions.lineage import NoSuchTurn, turn_of
from sandstream_actors.sessions.state import leftover, refuse


async def rewind(bus: Bus, state: SessionState) -> Change:
    """Do the pending rewind, or give it up with the reason."""
    pending = state.rewind
    assert pending is not None
    name = session_conversation(state.session)
    try:
        record = await turn_of(bus, state, pending.turn)
        conversation = await bus.conversations.read(name)
        if len(conversation.history) < record.items:
            return given_up(pending, "a part of its conversation was removed", "unknown_turn")
        crashpoint("sessions.before_rewind")
        await bus.conversations.cut(name, record.items, by="sessions")
        crashpoint("sessions.after_rewind")
    except NoSuchTurn as no:
        return given_up(pending, str(no), "unknown_turn")
    except ConversationBusy as busy:
        return given_up(pending, str(busy), "busy")
    return _rewound(pending, record)


def _rewound(pending: PendingRewind, record: SessionTurn) -> Change:
    def change(now: SessionState) -> SessionState | None:
        if now.rewind != pending:
            return None
        leftovers = list(now.leftovers)
        space = now.workspace
        if space is not None:
            leftovers.append(leftover(now, space))
            space = replace(
                space,
                generation=pending.generation,
                base=record.tree,
                tree=record.tree,
                box="asleep" if record.tree else "none",
            )
        return replace(
            now,
            rewind=None,
            turn=record.number,
            status=record.status if record.number else "",
            said=record.said,
            workspace=space,
            leftovers=leftovers,
        )

    return change


def given_up(pending: PendingRewind, why: str, code: str) -> Change:
    """Refuse the request of a rewind, with the reason and the end of the error code."""

    def change(now: SessionState) -> SessionState | None:
        if now.rewind != pending:
            return None
        back = replace(now, rewind=None)
        return refuse(back, pending.request, "rewind", why, f"session.{code}")

    return change
