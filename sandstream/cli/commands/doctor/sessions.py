"""What ``doctor`` says about sessions: whether an actor is live, and what waits for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandstream_actors.sessions.actor import CONSUMER
from sandstream_bus.counts import numbered

from sandstream.cli.commands.doctor.actors import Look
from sandstream.cli.commands.doctor.checks import Check, ok, warning

_ASKS = f"{CONSUMER}-asks"


async def check_sessions(look: Look) -> AsyncIterator[Check]:
    """Whether a replica is live, and how many requests wait."""
    is_served = _ASKS in look.served
    consumer = next((it for it in look.consumers if it.get("name") == _ASKS), {})
    waiting = consumer.get("num_pending", 0) + consumer.get("num_ack_pending", 0)
    live = "an actor is live" if is_served else "no actor is live"
    text = f"{live}; {numbered(waiting, 'request')} waiting" if waiting else live
    if waiting and not is_served:
        yield warning("sessions", text, "start one: `sandstream actor sessions`")
    else:
        yield ok("sessions", text)
