"""Finds the session that a person means by what they typed."""

from __future__ import annotations

from sandstream_bus.errors import InvalidSubject

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import near_ids, readable
from sandstream.client import Client
from sandstream.exceptions import UserError
from sandstream.sessions.durable_session import DurableSession
from sandstream.sessions.errors import SessionNotFound

_FEWEST = 3
"""So many characters of an id are enough, if they fit only one session."""


async def session_named(client: Client, typed: str, *, whole: bool = False) -> DurableSession:
    """The session of that id, or the only one whose id begins so. ``whole``: only the former."""
    try:
        return await client.sessions.get(typed)
    except (SessionNotFound, InvalidSubject):
        pass
    except UserError as error:
        raise CliError(Exit.USAGE, str(error)) from None
    known = await readable(_names(client))
    fitting = [it for it in known if _begins(it, typed)]
    if len(fitting) == 1 and len(typed) >= _FEWEST and not whole:
        return await client.sessions.get(fitting[0])
    if len(fitting) > 1:
        raise CliError(
            Exit.USAGE,
            f"{typed!r} fits {len(fitting)} sessions: give more characters{near_ids(typed, known)}",
        )
    raise CliError(
        Exit.NOT_FOUND,
        f"there is no session {typed!r}{near_ids(typed, known)}; `sandstream sessions` lists all",
    )


async def _names(client: Client) -> list[str]:
    return [it.session for it in await client.bus.sessions.states()]


def _begins(session: str, typed: str) -> bool:
    return session.startswith(typed) or session.partition("=")[2].startswith(typed)
