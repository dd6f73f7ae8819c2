"""Keeps what a state refers to alive: its files, its conversation and the record of its last turn.

Everything in the log and in the object store expires some time after it was stored. Each new state
gives a session a new lease of life. So before a state is written, what it refers to is stored anew
if it is old. It does not matter why the state is written.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict

from sandstream_bus.bus import Bus
from sandstream_bus.wire.sessions import SessionState
from sandstream_bus.wire.subjects import session_conversation
from sandstream_workspaces.errors import WorkspaceDamaged
from sandstream_workspaces.freshness import RECHECK_AFTER_S
from sandstream_workspaces.store import WorkspaceStore

logger = logging.getLogger(__name__)

_REMEMBERED = 256
"""Sessions whose last check is remembered. A sleeping session must not cost memory."""


class Renewals:
    """Renews what states refer to, at most once in ``RECHECK_AFTER_S`` for the same files."""

    def __init__(self, bus: Bus, store: WorkspaceStore) -> None:
        self._bus = bus
        self._store = store
        self._seen: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """Of each session: the snapshot and the time of its last check."""

    async def renew(self, state: SessionState) -> None:
        """Make everything live as long as this state, which is about to be written."""
        space = state.workspace
        tree = (space.tree or space.base) if space is not None else ""
        if not (state.turn or state.origin or tree):
            return  # it has nothing yet
        seen, at = self._seen.get(state.session, ("", 0.0))
        is_checked = time.time() - at < RECHECK_AFTER_S
        if is_checked and seen == tree:
            return
        if tree:
            await self._renew_files(state.session, tree)
        if not is_checked:
            await self._bus.conversations.renew(session_conversation(state.session), by="sessions")
            await self._bus.sessions.renew_turn(state.session, state.turn)
            at = time.time()
        self._seen[state.session] = (tree, at)
        self._seen.move_to_end(state.session)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    async def _renew_files(self, session: str, tree: str) -> None:
        """Lost files do not stop the session: opening the workspace tells people about them."""
        try:
            await self._store.renew(tree)
        except WorkspaceDamaged as lost:
            logger.warning("files of session %s cannot be renewed: %s", session, lost)
