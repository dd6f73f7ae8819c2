"""How things stand right now: what waits, what is under way, what went wrong. Read by the tracing
actor every few seconds, from the server and from the store.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, Protocol

import msgspec
from sandstream_bus.bus import Bus

from sandstream_actors.tracing.export.line import DROPPED

_PRIVATE: Final = re.compile(r"(harness|tools)-p-[0-9a-f]{16}")
"""The consumers of a program's own pool: as many as there are programs."""
_OURS: Final = ("harness-", "tools-", "sandbox-", "tracing-", "actor-")


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    queue_depth: dict[str, int] = {}
    """Per consumer: messages that wait, or are being worked on."""
    redelivered: dict[str, int] = {}
    """Per consumer: messages being worked on that had been given to somebody before."""
    parked: int = 0
    """Messages that nobody could handle."""
    active_runs: int = 0
    spans_dropped: int = 0


class RunStore(Protocol):
    """The part of the store that this is about."""

    async def active_count(self) -> int: ...

    async def counters(self) -> dict[str, int]: ...


async def read_gauges(bus: Bus, store: RunStore) -> Gauges:
    """A snapshot of the installation; private pools count as one."""
    depth: Counter[str] = Counter()
    redelivered: Counter[str] = Counter()
    for info in await bus.topology.consumers(bus.connection):
        if info["name"].startswith(_OURS):
            name = consumer_label(info["name"])
            depth[name] += info["num_pending"] + info["num_ack_pending"]
            redelivered[name] += info["num_redelivered"]
    parked = await bus.topology.stream_state(bus.connection, bus.topology.parked)
    return Gauges(
        queue_depth=dict(depth),
        redelivered=dict(redelivered),
        parked=parked["messages"],
        active_runs=await store.active_count(),
        spans_dropped=(await store.counters()).get(DROPPED, 0),
    )


def consumer_label(name: str) -> str:
    """A consumer's name, or what it has in common with those of other programs."""
    match = _PRIVATE.fullmatch(name)
    return name if match is None else f"{match[1]}-private"
