"""What ``doctor`` says about memories: what is to be done, who does it, what failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence, Set
from typing import Any

from sandstream_actors.memory.actor import CONSUMER
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.logs.parked import ParkedEntry
from sandstream_bus.wire.subjects import session_of

from sandstream.cli.commands.doctor.actors import Look
from sandstream.cli.commands.doctor.checks import Check, ok, warning
from sandstream.cli.commands.memory.scopes import all_memories, summary_of
from sandstream.cli.terminal.render import one_line, shorten

_MOST_NAMED = 3
_MOST_PARKED = 1000
"""Of the parked messages, so many are looked at: there may be very many, for other reasons."""
_LONGEST_NAME = 40


async def check_memory(look: Look) -> AsyncIterator[Check]:
    """What there is to do, and whether an actor does it."""
    yield await _check(look.bus, look.consumers, look.served)


async def _check(bus: Bus, consumers: list[dict[str, Any]], served: Set[str]) -> Check:
    consumer = next((it for it in consumers if it.get("name") == CONSUMER), {})
    is_served = CONSUMER in served
    states = await all_memories(bus)
    waiting = [it.scope for it in states if summary_of(it).is_pending]
    unread = consumer.get("num_pending", 0) + consumer.get("num_ack_pending", 0)
    newest = await bus.parking.list(_MOST_PARKED)
    parked = [it for it in newest if it.parked.consumer == CONSUMER]
    live = "an actor is live" if is_served else "no actor is live"
    if waiting and not is_served:
        return warning(
            "memory",
            f"{live}; there is work on {_named(waiting)}",
            "start one: `sandstream actor memory`",
        )
    if unread and not is_served:
        return warning(
            "memory",
            f"{live}; {numbered(unread, 'message')} not read yet: ends of runs with possible "
            "memories",
            "start one: `sandstream actor memory`",
        )
    if parked:
        scopes = list(dict.fromkeys(_scope_of(bus, it) for it in parked))
        return warning(
            "memory",
            f"{live}; {numbered(len(parked), 'message')} parked, of {_named(scopes)}",
            f"look: sandstream parked show {parked[0].id}; then redrive",
        )
    text = f"{numbered(len(states), 'scope')}, " if states else ""
    pending = f"work on {_named(waiting)}" if waiting else "nothing waits"
    return ok("memory", f"{live}; {text}{pending}")


def _scope_of(bus: Bus, entry: ParkedEntry) -> str:
    """The memory that a parked message is about; of a run's end: the run."""
    subject = entry.parked.subject
    if bus.subjects.split(subject).family == "memory":
        return session_of(bus.subjects.parse_memory(subject))
    return subject


def _named(scopes: Sequence[str]) -> str:
    names = [shorten(one_line(it), _LONGEST_NAME) for it in scopes[:_MOST_NAMED]]
    more = f" and {len(scopes) - _MOST_NAMED} more" if len(scopes) > _MOST_NAMED else ""
    return ", ".join(names) + more
