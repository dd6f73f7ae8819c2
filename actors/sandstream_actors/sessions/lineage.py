"""The turns that the conversation of a session consists of."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.logs.sessions import counted_turns
from sandstream_bus.wire.sessions import SessionState, SessionTurn


class NoSuchTurn(Exception):
    """The session cannot go back to that turn."""


async def turn_of(bus: Bus, state: SessionState, number: int) -> SessionTurn:
    """The record of a turn that the conversation has; 0: how the session began.

    Raises :class:`NoSuchTurn`.
    """
    if number == 0:
        return await _beginning(bus, state)
    turns = counted_turns(await bus.sessions.turns(state.session), state.turn)
    found = next((it for it in turns if it.number == number), None)
    if found is None:
        known = ", ".join(str(it.number) for it in turns[-10:])
        raise NoSuchTurn(
            f"the conversation has no turn {number}"
            + (f"; its last turns are {known}" if known else "; it has none yet")
        )
    if state.workspace is not None and not found.tree and found.unsaved:
        raise NoSuchTurn(f"turn {number} has no checkpoint: {found.unsaved}")
    return found


async def _beginning(bus: Bus, state: SessionState) -> SessionTurn:
    """A fork has a record of its beginning; other sessions begin with nothing."""
    record = await bus.sessions.turn(state.session, 0)
    if record is not None:
        return record
    if state.origin is not None:
        raise NoSuchTurn("the beginning of this fork is not stored any more")
    return SessionTurn(number=0, after=0, run="", status="completed")
