"""Begins a session as a copy of another one. The source is only read."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import PayloadTooLarge
from sandstream_bus.wire.sessions import (
    ForkOrigin,
    PendingFork,
    SessionState,
    SessionTurn,
    SessionWorkspace,
)
from sandstream_bus.wire.subjects import session_conversation

from sandstream_actors.sessions.changes import Change, replace
from sandstream_actors.sessions.lineage import NoSuchTurn, turn_of
from sandstream_actors.sessions.state import has_begun, refuse
from sandstream_actors.sessions.workspaces import WorkspaceFailed, Workspaces, instead


class Forks:
    """Copies of sessions."""

    def __init__(self, bus: Bus, workspaces: Workspaces) -> None:
        self._bus = bus
        self._workspaces = workspaces

    async def fork(self, state: SessionState) -> Change:
        """Do the pending fork, or give it up with the reason."""
        pending = state.fork
        assert pending is not None
        source = (await self._bus.sessions.read(pending.source)).state
        if source is None or not has_begun(source) or source.fork is not None:
            return given_up(pending, f"there is no session {pending.source}", "unknown")
        if pending.provider and source.workspace is None:
            return given_up(pending, f"the agent {source.agent!r} has no sandbox", "no_workspace")
        try:
            record = await self._beginning(state, pending, source)
            crashpoint("sessions.fork_recorded")
            await self._copy_history(state, source, record)
        except (NoSuchTurn, WorkspaceFailed, PayloadTooLarge) as error:
            is_used = await self._bus.sessions.turn(state.session, 0) is not None
            code = getattr(error, "code", "unknown_turn")
            return given_up(pending, str(error), code, is_used=is_used)
        crashpoint("sessions.fork_copied")
        return _forked(pending, source, record)

    async def _beginning(
        self, state: SessionState, pending: PendingFork, source: SessionState
    ) -> SessionTurn:
        """The record of the fork's beginning. The one that was written first counts."""
        known = await self._bus.sessions.turn(state.session, 0)
        if known is not None:
            return known
        found = await self._place(pending, source)
        record = SessionTurn(
            number=0,
            after=found.number,
            run=found.run,
            status=found.status,
            said=found.said,
            items=found.items,
            tree=found.tree,
            provider=found.provider,
            ended=found.ended,
        )
        crashpoint("sessions.before_fork")
        await self._bus.sessions.record(state.session, record)
        return await self._bus.sessions.turn(state.session, 0) or record

    async def _place(self, pending: PendingFork, source: SessionState) -> SessionTurn:
        """The turn to copy, and the files after it."""
        if pending.turn is not None:
            return await turn_of(self._bus, source, pending.turn)
        last = await turn_of(self._bus, source, source.turn)
        space = source.workspace
        if space is None or source.active is not None:
            return last
        if space.box != "open":
            return replace(last, tree=space.tree or space.base or last.tree)
        op = f"fork-{pending.request}"
        try:
            tree = await self._workspaces.checkpoint(source.session, space, op)
        except WorkspaceFailed as failed:
            raise instead(failed, source.turn) from failed
        now = (await self._bus.sessions.read(source.session)).state
        if now is None or now.begun != source.begun or now.workspace != space:
            return last  # a turn began meanwhile: the checkpoint may have a part of its work
        return replace(last, tree=tree)

    async def _copy_history(
        self, state: SessionState, source: SessionState, record: SessionTurn
    ) -> None:
        history = (await self._bus.conversations.read(session_conversation(source.session))).history
        if len(history) < record.items:
            raise NoSuchTurn("a part of the conversation was removed meanwhile")
        await self._check_counts(source, record)
        name = session_conversation(state.session)
        await self._bus.conversations.copy(name, history[: record.items], by="sessions")

    async def _check_counts(self, source: SessionState, record: SessionTurn) -> None:
        """The history that was read must be that of the turn: a rewind since the turn was chosen
        may have cut it, and later turns may have filled it up again.
        """
        now = (await self._bus.sessions.read(source.session)).state
        if now is None or (now.rewind is not None and now.rewind.turn < record.after):
            raise NoSuchTurn(f"the session {source.session} is being rewound: try again")
        if record.after:
            await turn_of(self._bus, now, record.after)


def _forked(pending: PendingFork, source: SessionState, record: SessionTurn) -> Change:
    def change(now: SessionState) -> SessionState | None:
        if now.fork != pending:
            return None
        space = None
        old = source.workspace
        if old is not None:
            provider = pending.provider or old.provider
            is_same = old.provider == provider and not pending.options
            space = SessionWorkspace(
                provider=provider,
                options=old.options if is_same else pending.options,
                base=record.tree,
                tree=record.tree,
                box="asleep" if record.tree else "none",
            )
        return replace(
            now,
            fork=None,
            agent=source.agent,
            title=now.title or f"{source.title} (fork)",
            context=source.context,
            idle_s=source.idle_s,
            take=source.take,
            origin=ForkOrigin(session=source.session, turn=record.after),
            status=record.status if record.after else "",
            said=record.said,
            workspace=space,
        )

    return change


def given_up(pending: PendingFork, why: str, code: str, *, is_used: bool = False) -> Change:
    """Refuse the request of a fork.

    Args:
        pending: The fork.
        why: Why it cannot be made.
        code: The end of the error code.
        is_used: The log has a beginning, which must not become that of another session.
    """

    def change(now: SessionState) -> SessionState | None:
        if now.fork != pending:
            return None
        none = replace(now, fork=None, life="destroyed", queue=[], switch=None, rewind=None)
        if is_used:
            none = replace(none, agent="?")
        return refuse(none, pending.request, "fork", why, f"session.{code}")

    return change
