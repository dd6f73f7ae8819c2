"""The current state: what waits, what is running, what failed. The tracing actor reads it every few
seconds from the server and the store.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, Protocol

import msgspec
from sandstream_bus.bus import Bus

from sandstream_actors.tracing.export.line import DROPPED

_PRIVATE: Final = re.compile(r"(harness|starts|tasks|tools)-p-[0-9a-f]{16}")
"""The consumers of a program's private pool; there are as many as programs."""
_OURS: Final = ("harness-", "starts-", "tasks-", "tools-", "sandbox-", "tracing-", "actor-")


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    queue_depth: dict[str, int] = {}
    """Per consumer: messages that wait or are being processed."""
    redelivered: dict[str, int] = {}
    """Per consumer: messages in process that had been delivered before."""
    parked: int = 0
    """Messages that could not be processed."""
    active_runs: int = 0
    spans_dropped: int = 0


class RunStore(Protocol):
    """The part of the store that gauges need."""

    async def active_count(self) -> int: ...

    async def counters(self) -> dict[str, int]: ...


async def read_gauges(bus: Bus, store: RunStore) -> Gauges:
    """A snapshot of the installation; all private pools count as one."""
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
    """The consumer's name; all private pools share one label."""
    match = _PRIVATE.fullmatch(name)
    return name if match is None else f"{match[1]}-private"
