"""What goes wrong in the cluster while runs are going. A fault is over when its function ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from cluster.load import Load
from support.servers.nats_cluster import streams_of

FOLLOWER_STOPPED_S = 20.0
QUORUM_LOST_S = 15.0
LEADER_DEAD_S = 10.0
"""An election takes 4 to 8 s: the others have a leader of their own when the dead one returns."""

Fault = Callable[[Load], Awaitable[None]]


async def nothing(load: Load) -> None:
    """No fault."""


async def kill_leader(load: Load) -> None:
    """kill -9 of the node that leads the log; it is started again after the election."""
    cluster, leader = load.fleet.cluster, await _leader(load)
    with load.faulty():
        cluster.kill(leader)
        try:
            await asyncio.sleep(LEADER_DEAD_S)
        finally:
            await asyncio.to_thread(cluster.restart, leader)


async def stop_follower(load: Load) -> None:
    """SIGSTOP of a node that does not lead the log. Its connections stay open."""
    leader = await _leader(load)
    followers = [name for name in load.fleet.cluster.nodes if name != leader]
    await _stop(load, followers[:1], FOLLOWER_STOPPED_S)


async def lose_quorum(load: Load) -> None:
    """SIGSTOP of two of three nodes, the leader of the log among them."""
    leader = await _leader(load)
    other = next(name for name in load.fleet.cluster.nodes if name != leader)
    await _stop(load, [leader, other], QUORUM_LOST_S)


async def restart_each(load: Load) -> None:
    """SIGTERM of one node after the other; the next one goes when all copies are current."""
    nodes = load.fleet.cluster.nodes
    share, ended = len(load.jobs) // (len(nodes) + 2), load.ended
    for number, node in enumerate(nodes.values()):
        await load.until_ended(ended + share * number)
        with load.faulty():
            await asyncio.to_thread(node.stop)
            await asyncio.to_thread(node.start)
            await _until_current(load)


async def step_down(load: Load) -> None:
    """The leaders of the log and of its consumers leave the lead to others."""
    bus, cluster = load.fleet.client.bus, load.fleet.cluster
    with load.faulty():
        await cluster.step_down(bus.connection, bus.topology.log)
        for info in await bus.topology.consumers(bus.connection):
            await cluster.step_down(bus.connection, bus.topology.log, info["name"])


EACH = (kill_leader, stop_follower, lose_quorum, restart_each, step_down)


def at_random(chance: random.Random) -> Fault:
    """One fault after the other, until three quarters of the runs are over."""

    async def fault(load: Load) -> None:
        while load.ended < len(load.jobs) * 3 // 4:
            await asyncio.sleep(chance.uniform(0.5, 5.0))
            await chance.choice(EACH)(load)
            await _until_current(load)

    return fault


async def _leader(load: Load) -> str:
    bus = load.fleet.client.bus
    return await load.fleet.cluster.stream_leader(bus.connection, bus.topology.log)


async def _until_current(load: Load) -> None:
    bus = load.fleet.client.bus
    await load.fleet.cluster.until_current(bus.connection, streams_of(bus))


async def _stop(load: Load, names: list[str], seconds: float) -> None:
    cluster = load.fleet.cluster
    with load.faulty():
        for name in names:
            cluster.suspend(name)
        try:
            await asyncio.sleep(seconds)
        finally:
            for name in names:
                cluster.resume(name)
