"""A lagging replica, simulated on a single server.

A mirror with ``mirror_direct`` answers direct gets of its origin, like a follower in a cluster. A
mirror of a single subject never has any other message, so about every second direct get is answered
as if nothing had been stored.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.nats.direct import stale_last_each
from support.waiting import eventually


async def add_lagging_replicas(bus: Bus) -> None:
    """Add to each stream a replica that answers but holds no messages."""
    topology, p = bus.topology, bus.subjects.prefix
    probes = {
        topology.log: f"{p}.trace.probe.spans",
        topology.agents: f"{p}.agent.probe",
        topology.memory: f"{p}.memory.probe.state",
        topology.parked: f"{p}.parked.probe.1",
        f"OBJ_{topology.bucket}": f"$O.{topology.bucket}.M.probe",
        f"OBJ_{topology.memory_bucket}": f"$O.{topology.memory_bucket}.M.probe",
    }
    for stream, probe in probes.items():
        await _add(bus, stream, probe)


async def _add(bus: Bus, stream: str, probe: str) -> None:
    name = f"LAGGING_{stream}"
    config = {
        "name": name,
        "storage": "memory",
        "num_replicas": 1,
        "mirror": {"name": stream, "filter_subject": probe},
        "allow_direct": True,
        "mirror_direct": True,
    }
    await _api(bus, f"STREAM.CREATE.{name}", config)
    await bus.connection.request(probe, b"")  # a mirror answers once it has seen a message

    async def has_it() -> bool:
        return bool((await _api(bus, f"STREAM.INFO.{name}", {}))["state"]["messages"])

    await eventually(has_it, what=f"a message in {name}")
    for each in (stream, name):
        await _api(bus, f"STREAM.PURGE.{each}", {"filter": probe})


async def _api(bus: Bus, call: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = await bus.connection.request(f"$JS.API.{call}", msgspec.json.encode(body))
    answer: dict[str, Any] = msgspec.json.decode(reply.data)
    assert "error" not in answer, answer
    return answer


async def stale_answers(bus: Bus, stream: str, subject: str, *, tries: int = 60) -> int:
    """How many of ``tries`` direct gets miss a message that exists."""
    found = [await stale_last_each(bus.connection, stream, [subject]) for _ in range(tries)]
    return sum(not it for it in found)
