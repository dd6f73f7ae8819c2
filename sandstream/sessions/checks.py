"""Checks of what people give, before anything is published."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.errors import InvalidSubject
from sandstream_bus.wire.sessions import MAX_TEXT_BYTES
from sandstream_bus.wire.spec_base import NO_JSON
from sandstream_bus.wire.subjects import check_session, is_token, session_of_user
from sandstream_providers.registry import names

from sandstream.exceptions import UserError

MAX_TITLE_CHARS = 200
"""The longest title of a session."""


def new_session_id(user: str, id: str | None) -> str:
    """The full id of a new session; without ``id`` a random one that sorts by time."""
    name = id if id is not None else f"s{int(time.time() * 1000):011x}{secrets.token_hex(3)}"
    return full_id(user, name)


def full_id(user: str, id: str) -> str:
    """The id of a session as the log has it: a user's own begins with the name of the user."""
    try:
        return check_session(id) if "=" in id else session_of_user(user, id)
    except InvalidSubject as error:
        raise UserError(str(error)) from None


def checked_text(text: str, what: str = "the message") -> str:
    """The text of a message, unless it is empty or too long."""
    if not isinstance(text, str):
        raise UserError(f"{what} must be text, not {type(text).__name__}")
    if not text.strip():
        raise UserError(f"{what} is empty: say something to the agent")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UserError(f"{what} has a lone surrogate, so it is not text") from None
    if size > MAX_TEXT_BYTES:
        raise UserError(
            f"{what} has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are allowed. Put long texts "
            "into a file of the workspace."
        )
    return text


def checked_title(title: str) -> str:
    """A title; it may be empty."""
    if len(title) > MAX_TITLE_CHARS:
        raise UserError(
            f"the title has {len(title)} characters; at most {MAX_TITLE_CHARS} are allowed"
        )
    return title


async def checked_provider(bus: Bus, provider: str) -> str:
    """The name of a provider that this package knows, or that an actor serves."""
    if not is_token(provider):
        raise UserError(f"{provider[:80]!r} cannot be the name of a provider")
    known = names()
    if provider not in known and not await bus.presence.is_served(f"sandbox-{provider}"):
        raise UserError(
            f"there is no provider {provider[:80]!r}: known are {', '.join(known)}, and no actor "
            "serves one with that name"
        )
    return provider


def checked_idle(idle_s: float | None) -> float | None:
    """The delay before a workspace sleeps."""
    is_number = isinstance(idle_s, int | float) and not isinstance(idle_s, bool)
    if idle_s is not None and (not is_number or not 0 < idle_s < float("inf")):
        raise UserError(f"idle_s must be a number above 0, or None for never, not {idle_s!r}")
    return idle_s


def checked_turn(turn: int) -> int:
    """The number of a turn."""
    if isinstance(turn, bool) or not isinstance(turn, int) or turn < 0:
        raise UserError(f"a turn is a whole number, 0 or more, not {turn!r}")
    return turn


def json_of(value: Mapping[str, Any] | None, what: str) -> Raw:
    """A value as JSON, to cross the bus."""
    if value is None:
        return NO_JSON
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} must be JSON to cross the bus: {error}") from None


def options_of(provider: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a provider, checked to be JSON."""
    if options and not provider:
        raise UserError("options belong to a provider: name the provider, too")
    json_of(options, "options")
    return dict(options or {})
