"""Moves the workspace to another provider. The session stays where it was if a step fails."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.sessions import (
    LeftoverSandbox,
    PendingSwitch,
    SessionState,
    SessionWorkspace,
)
from sandstream_bus.wire.subjects import session_sandbox
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.run.deployed import UnknownAgent
from sandstream_actors.sessions.changes import Change, replace
from sandstream_actors.sessions.state import leftover, refuse
from sandstream_actors.sessions.workspaces import (
    WorkspaceFailed,
    Workspaces,
    deployed,
    instead,
    use_of,
)


class Switches:
    """Switches of providers."""

    def __init__(self, bus: Bus, workspaces: Workspaces, store: WorkspaceStore) -> None:
        self._bus = bus
        self._workspaces = workspaces
        self._store = store

    async def switch(self, state: SessionState) -> Change:
        """Do the pending switch, or give it up with the reason."""
        pending, space = state.switch, state.workspace
        assert pending is not None
        if space is None:
            return given_up(pending, "the agent has no sandbox", "no_workspace")
        new = SessionWorkspace(
            provider=pending.provider,
            options=pending.options,
            generation=pending.generation,
        )
        try:
            new = await self._moved(state, space, new, f"switch-{pending.request}")
        except (WorkspaceFailed, UnknownAgent) as failed:
            return given_up(pending, str(failed), failed.code)
        return _moved_to(pending, new)

    async def _moved(
        self, state: SessionState, old: SessionWorkspace, new: SessionWorkspace, op: str
    ) -> SessionWorkspace:
        crashpoint("sessions.before_switch")
        try:
            tree = await self._workspaces.checkpoint(state.session, old, op)
        except WorkspaceFailed as failed:
            raise instead(failed, state.turn) from failed
        new = replace(new, base=tree)
        if not tree:
            return new  # nothing was made yet: the next turn makes it at the new provider
        crashpoint("sessions.switch_saved")
        _, graph = await deployed(self._bus, state.agent)
        use = use_of(graph, state, new)
        if use is None:
            return new
        await self._workspaces.open(state.session, new, f"{op}-open", use.spec)
        crashpoint("sessions.switch_opened")
        there = await self._workspaces.checkpoint(state.session, new, f"{op}-verify")
        await self._check_equal(tree, there)
        crashpoint("sessions.switch_verified")
        return replace(new, tree=there, box="open")

    async def _check_equal(self, tree: str, there: str) -> None:
        """Equal digests mean equal files. Snapshots that are packed differently are compared."""
        if tree == there:
            return
        found = await self._store.diff(tree, there)
        changes = len(found.added) + len(found.removed) + len(found.changed)
        if changes:
            raise WorkspaceFailed(
                "not_equal",
                f"{numbered(changes, 'path')} would be different at the new provider, such as "
                f"{next(iter([*found.changed, *found.removed, *found.added]))}",
            )


def _moved_to(pending: PendingSwitch, new: SessionWorkspace) -> Change:
    def change(now: SessionState) -> SessionState | None:
        if now.switch != pending or now.workspace is None:
            return None
        old = leftover(now, now.workspace)
        return replace(now, workspace=new, switch=None, leftovers=[*now.leftovers, old])

    return change


def given_up(pending: PendingSwitch, why: str, code: str) -> Change:
    """Refuse the request of a switch, with the reason and the end of the error code."""

    def change(now: SessionState) -> SessionState | None:
        if now.switch != pending:
            return None
        name = session_sandbox(now.session, pending.generation)
        new = LeftoverSandbox(sandbox=name, provider=pending.provider)
        back = replace(now, switch=None, leftovers=[*now.leftovers, new])
        return refuse(back, pending.request, "switch", why, f"session.{code}")

    return change
