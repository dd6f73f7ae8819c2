"""Deletes the sandboxes that a session does not need any more."""

from __future__ import annotations

from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.sessions import SessionState

from sandstream_actors.sessions.changes import Change, replace
from sandstream_actors.sessions.workspaces import Workspaces


async def discard(workspaces: Workspaces, state: SessionState) -> Change:
    """Ask for their deletion. The requests stay in the log until an actor has done them, and the
    reaper of the sandbox actor removes what a request came too early for.
    """
    for leftover in state.leftovers:
        crashpoint("sessions.before_discard")
        await workspaces.discard(leftover)
    crashpoint("sessions.after_discard")
    gone = state.leftovers

    def change(now: SessionState) -> SessionState:
        return replace(now, leftovers=[it for it in now.leftovers if it not in gone])

    return change
