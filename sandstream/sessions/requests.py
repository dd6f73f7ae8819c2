"""Requests to sessions: publish one, and wait until the state of the session includes it."""

from __future__ import annotations

import time

from sandstream_bus.bus import Bus
from sandstream_bus.errors import PermissionDenied
from sandstream_bus.logs.sessions import is_settled
from sandstream_bus.wire.sessions import SessionRequest, SessionState
from sandstream_bus.wire.subjects import SHARED, user_of

from sandstream.exceptions import UserError
from sandstream.sessions.changes import watched
from sandstream.sessions.errors import SessionNotFound, SessionRefused, SessionUnanswered
from sandstream.tracing.trace_parent import trace_headers

CONSUMER = "sessions-asks"
"""The consumer by which the sessions actor gets requests."""
PATIENCE_S = 10.0
"""How long to wait until a sessions actor has taken a request."""
_LOOK_AROUND_S = 0.5
"""After this time, read the state again, and check whether a sessions actor is running."""


class Requests:
    """Publishes the requests of one client."""

    def __init__(self, bus: Bus, user: str) -> None:
        self._bus = bus
        self.user = user
        self.patience_s = PATIENCE_S

    async def state(self, session: str) -> SessionState:
        """The state of a session that exists."""
        state = (await self._bus.sessions.read(session)).state
        if state is None or not has_begun(state):
            raise SessionNotFound(session)
        return state

    async def to_known(self, session: str, request: SessionRequest) -> SessionState:
        """Ask something of a session that exists; return its state with the effect."""
        await self.state(session)
        return await self.to(session, request)

    async def to(self, session: str, request: SessionRequest) -> SessionState:
        """Publish a request in the name of the session's owner, and wait for its effect. A fork, a
        switch and a rewind have their effect when they are done.

        Raises:
            SessionRefused: The actor refused the request, or gave it up.
            SessionUnanswered: No actor has taken the request yet. It is stored.
        """
        async with watched(self._bus, session) as changes:
            sequence = await self._publish(session, request)
            began = time.monotonic()
            while True:
                state = (await self._bus.sessions.read(session)).state
                if state is not None and is_settled(state, sequence):
                    _raise_if_refused(state, sequence)
                    return state
                if state is None or state.through < sequence:
                    await self._raise_if_unanswered(session, sequence, time.monotonic() - began)
                await changes.next(within_s=_LOOK_AROUND_S)

    async def _publish(self, session: str, request: SessionRequest) -> int:
        try:
            return await self._bus.sessions.request(session, request, headers=trace_headers())
        except PermissionDenied as error:
            owner = user_of(session)
            if owner == self.user:
                raise
            whose = "no user" if owner == SHARED else f"the user {owner}"
            raise UserError(
                f"session {session} belongs to {whose}, so {self.user} may not change it: {error}"
            ) from error

    async def _raise_if_unanswered(self, session: str, sequence: int, waited_s: float) -> None:
        stored = f"the request {sequence} to session {session} is stored"
        if waited_s > _LOOK_AROUND_S and not await self._is_served():
            raise SessionUnanswered(
                f"no sessions actor is running: {stored} and takes effect when one starts "
                "(`sandstream up`)"
            )
        if waited_s > self.patience_s:
            raise SessionUnanswered(
                f"{stored}, but no sessions actor has taken it within {self.patience_s:g} s; it "
                "takes effect later"
            )

    async def _is_served(self) -> bool:
        try:
            return await self._bus.presence.is_served(CONSUMER)
        except PermissionDenied:  # of a user who may not ask
            return True


def has_begun(state: SessionState) -> bool:
    """Is there a session? The state of one that could not begin has only refused requests."""
    return bool(state.agent) or state.fork is not None


def _raise_if_refused(state: SessionState, sequence: int) -> None:
    for it in state.refused:
        if it.request == sequence:
            raise SessionRefused(state.session, it.kind, it.error)
