"""All sessions that a client may see: create, find, list."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from sandstream_bus.wire.sessions import IDLE_S, CreateSession, SessionState, TakePolicy

from sandstream.exceptions import UserError
from sandstream.sessions.checks import (
    checked_idle,
    checked_provider,
    checked_text,
    checked_title,
    full_id,
    json_of,
    new_session_id,
    options_of,
)
from sandstream.sessions.durable_session import DurableSession
from sandstream.sessions.errors import SessionRefused
from sandstream.sessions.link import SessionLink
from sandstream.sessions.requests import has_begun
from sandstream.sessions.views import ACTIVITIES, SessionInfo

_EXISTS = "session.exists"


class Sessions:
    """The sessions of an installation, as ``client.sessions``.

    Args:
        link: The client's connection to sessions.

    Example:
        session = await client.sessions.create("coder", title="Blog")
        for info in await client.sessions.list():
            print(info.id, info.activity, info.title)
    """

    def __init__(self, link: SessionLink) -> None:
        self._link = link

    async def create(
        self,
        agent: str,
        *,
        id: str | None = None,
        title: str = "",
        input: str = "",
        provider: str | None = None,
        options: Mapping[str, Any] | None = None,
        idle_s: float | None = IDLE_S,
        take: TakePolicy = "all",
        context: Mapping[str, Any] | None = None,
    ) -> DurableSession:
        """Begin a session with a deployed agent.

        Args:
            agent: The name of the agent.
            id: Your own id: the same id again is the same session. ``None`` makes one. The
                sessions of a user begin with the user's name and ``=``, which is added.
            title: A title for people; empty: the beginning of the first message.
            input: The first message; empty: none yet.
            provider: The provider of the workspace; ``None``: the agent's own.
            options: Options of that provider, such as ``image``.
            idle_s: Seconds without work after which the workspace is put to sleep; ``None``:
                never.
            take: ``all``: a turn takes all waiting messages together; ``one``: only the first.
            context: A JSON object for the agent's tools, hooks and guardrails.

        Returns:
            The session. With ``async with`` it only detaches at the end: the work goes on.

        Raises:
            UserError: A value makes no sense. Nothing was published then.
            SessionRefused: The session could not be created: the agent is unknown, or the id
                belongs to a session with another agent or to one that was destroyed.
            SessionUnanswered: No sessions actor is running. The session begins when one starts.

        Example:
            session = await client.sessions.create("coder", id="blog", title="Blog")
        """
        if not agent:
            raise UserError("the agent's name must not be empty")
        if take not in ("all", "one"):
            raise UserError(f"take must be 'all' or 'one', not {take!r}")
        request = CreateSession(
            agent=agent,
            title=checked_title(title),
            input=checked_text(input, "the first message") if input else "",
            provider=await checked_provider(self._link.bus, provider) if provider else "",
            options=options_of(provider, options),
            idle_s=checked_idle(idle_s),
            take=take,
            context=json_of(context, "context"),
        )
        session = new_session_id(self._link.requests.user, id)
        known = (await self._link.bus.sessions.read(session)).state if id is not None else None
        if known is None or not _is_same(known, request):
            try:
                await self._link.requests.to(session, request)
            except SessionRefused as refused:
                if refused.code != _EXISTS or not _is_same(await self._state(session), request):
                    raise
        return DurableSession(self._link, session)

    async def _state(self, session: str) -> SessionState:
        return await self._link.requests.state(session)

    async def get(self, id: str) -> DurableSession:
        """Find a session.

        Args:
            id: The id of the session; a user may leave out their own name before it.

        Returns:
            The session.

        Raises:
            SessionNotFound: The log has no such session.
        """
        session = full_id(self._link.requests.user, id)
        await self._state(session)
        return DurableSession(self._link, session)

    async def list(
        self, *, archived: bool = False, destroyed: bool = False
    ) -> builtins.list[SessionInfo]:
        """List the sessions.

        Args:
            archived: Also list archived sessions.
            destroyed: Also list destroyed sessions that the log still has.

        Returns:
            The sessions: first those that need a person, then those at work, and so on; of each
            kind those that changed last first.

        Example:
            for info in await client.sessions.list():
                print(info.activity, info.title)
        """
        hidden = {"archived": archived, "destroying": destroyed, "destroyed": destroyed}
        known = [it for it in await self._link.bus.sessions.states() if has_begun(it)]
        shown = [it for it in known if hidden.get(it.life, True)]
        found = sorted(await self._link.infos(shown), key=lambda it: it.changed, reverse=True)
        return sorted(found, key=lambda it: ACTIVITIES.index(it.activity))


def _is_same(state: SessionState, request: CreateSession) -> bool:
    """Was the session created by the same request before?"""
    is_open = state.life not in ("destroying", "destroyed")
    return is_open and state.agent == request.agent and state.origin is None
