"""The workspace without work: the timer, the sleep, and opening it ahead of a message."""

from __future__ import annotations

import uuid

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.sessions import IDLE_S, SessionDue, SessionState, SessionWorkspace

from sandstream_actors.run.deployed import UnknownAgent
from sandstream_actors.sessions.changes import Change, replace
from sandstream_actors.sessions.state import refuse
from sandstream_actors.sessions.workspaces import WorkspaceFailed, Workspaces, deployed, use_of

TIMER = "session"
"""The name of the timer. A run with the same id as the session has timers of other names."""


class Sleep:
    """Puts workspaces to sleep and wakes them up."""

    def __init__(self, bus: Bus, workspaces: Workspaces) -> None:
        self._bus = bus
        self._workspaces = workspaces

    async def arm(self, state: SessionState) -> None:
        """Arm the timer, or move it: a request counts as work, too. One that fired while the
        workspace could not sleep must not be taken for a duplicate of this one.
        """
        crashpoint("sessions.before_timer")
        await self._bus.timers.arm(
            state.session,
            TIMER,
            self._bus.subjects.session_idle(state.session),
            SessionDue(session=state.session, begun=state.begun),
            delay_s=IDLE_S if state.idle_s is None else state.idle_s,
            msg_id=f"{state.session}:idle:{uuid.uuid4().hex}",
        )
        crashpoint("sessions.after_timer")

    async def sleep(self, state: SessionState) -> Change:
        """Store the files and end the box."""
        space = state.workspace
        assert space is not None
        crashpoint("sessions.before_sleep")
        tree, trouble = "", ""
        try:
            op = f"sleep-{space.sleeps}"
            tree = await self._workspaces.close(state.session, space, op)
        except WorkspaceFailed as failed:
            trouble = f"the workspace cannot sleep: {failed}"
        crashpoint("sessions.after_sleep")

        def change(now: SessionState) -> SessionState | None:
            there = now.workspace
            if there is None or not _is_same(there, space):
                return None
            if trouble:
                return replace(now, workspace=replace(there, box="open"), trouble=trouble)
            there = replace(there, box="asleep", tree=tree or there.tree)
            return replace(now, workspace=there, trouble="")

        return change

    async def open(self, state: SessionState) -> Change:
        """Open the workspace ahead of the next message."""
        space, request = state.workspace, state.opening
        assert space is not None
        crashpoint("sessions.before_wake")
        code, trouble = "", ""
        try:
            _, graph = await deployed(self._bus, state.agent)
            use = use_of(graph, state, space)
            if use is not None:
                op = f"wake-{space.sleeps}-{request}"
                await self._workspaces.open(state.session, space, op, use.spec)
        except (WorkspaceFailed, UnknownAgent) as failed:
            code, trouble = failed.code, str(failed)
        crashpoint("sessions.after_wake")

        def change(now: SessionState) -> SessionState | None:
            there = now.workspace
            if now.opening != request or there is None or there.generation != space.generation:
                return None
            now = replace(now, opening=0)
            if trouble:
                refused = refuse(now, request, "wake", trouble, f"session.{code}")
                return replace(refused, trouble=trouble)
            return replace(now, workspace=replace(there, box="open"))

        return change


def _is_same(one: SessionWorkspace, other: SessionWorkspace) -> bool:
    return (one.generation, one.sleeps, one.box) == (other.generation, other.sleeps, other.box)
