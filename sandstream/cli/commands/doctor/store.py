"""What ``doctor`` finds out about the store: can it be written, is it still the actors' log."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

from sandstream_bus.bus import Bus
from sandstream_bus.errors import SandstreamError
from sandstream_bus.logs.presence import Seen
from sandstream_bus.wire.headers import TTL

from sandstream.cli.commands.doctor.checks import Check, ok, problem, warning
from sandstream.cli.terminal.render import size

_NEARLY_FULL = 0.9
_PATIENCE_S = 2.5
"""Long enough for a second try, before the cause of the silence is examined."""
_HARNESS = "harness-main"


async def check_limits(account: dict[str, Any]) -> AsyncIterator[Check]:
    """How near the account is to its limit."""
    limits: dict[str, Any] = account.get("limits") or {}
    used, most = int(account.get("storage", 0)), int(limits.get("max_storage", -1))
    if most > 0 and used > _NEARLY_FULL * most:
        yield warning(
            "limit",
            f"{size(used)} of {size(most)} stored",
            "raise the account's max_file, or keep runs for a shorter time",
        )


async def check_gone(bus: Bus) -> Check | None:
    """The streams cannot be used. If an actor is at work, they were there before."""
    if not await bus.presence.is_served(_HARNESS):
        return None
    return problem(
        "log",
        "a harness is at work, so the streams were there: the NATS store was emptied or replaced",
        "restore it from a backup, or run `sandstream setup` to start over",
    )


async def check_writable(bus: Bus) -> Check:
    """Store a small message that expires at once: a full disk shows only in a write. No stream of
    runs or requests lets a message expire.
    """
    subject = bus.subjects.timer("doctor", "probe")
    try:
        await bus.connection.publish(
            subject, b"{}", msg_id=uuid.uuid4().hex, headers={TTL: "1s"}, budget_s=_PATIENCE_S
        )
    except SandstreamError as error:
        said, _, todo = str(error).partition(". ")
        return problem("store", said, todo or "see the log of the server")
    return ok("store", "can be written")


async def check_same_log(bus: Bus, seen: dict[str, Seen]) -> AsyncIterator[Check]:
    """Do the live actors know of newer events than the log has, or of a log that was lost?"""
    state = await bus.topology.stream_state(bus.connection, bus.topology.log)
    ends = int(state["last_seq"])
    ahead = {name: it.highest for name, it in seen.items() if it.highest > ends}
    if ahead:
        name = max(ahead, key=lambda it: ahead[it])
        yield problem(
            "log",
            f"it ends at {ends}, but {name} has seen event {ahead[name]}: the store was replaced "
            "by an older copy, or it lost its newest events",
            "restore a newer copy if there is one; see docs/operations.md",
        )
    lost = {name: it for name, it in seen.items() if it.lost}
    if lost:
        name = max(lost, key=lambda it: lost[it].lost_at)
        yield warning(
            "log",
            f"at {lost[name].lost_at} {name} found: {lost[name].lost}",
            "check the runs and sandboxes of that time; restarting the actors ends this warning",
        )


async def seen_by(bus: Bus, consumers: list[str]) -> dict[str, Seen]:
    """What the live actors have seen of the log, by consumer."""
    answers = await asyncio.gather(*map(bus.presence.ask, consumers))
    return {name: it for name, it in zip(consumers, answers, strict=True) if it is not None}
