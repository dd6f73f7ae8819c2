"""Gives up a fork, a switch or a rewind that no replica can finish. Other work waits for it."""

from __future__ import annotations

from sandstream_bus.wire.sessions import SessionState

from sandstream_actors.sessions import forks, rewinds, switches
from sandstream_actors.sessions.changes import Change


def give_up(state: SessionState, request: int, reason: str) -> Change | None:
    """Refuse a request whose message was parked. None: nothing waits for that request.

    Args:
        state: The state of the session.
        request: The sequence of the request.
        reason: Why it was parked.
    """
    why = f"every attempt failed: {reason}"
    if state.fork is not None and state.fork.request == request:
        return forks.given_up(state.fork, why, "failed", is_used=True)
    if state.switch is not None and state.switch.request == request:
        return switches.given_up(state.switch, why, "failed")
    if state.rewind is not None and state.rewind.request == request:
        return rewinds.given_up(state.rewind, why, "failed")
    return None
