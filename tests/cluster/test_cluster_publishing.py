"""Publishing while the leader of a stream is alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.nats import connection as connection_module
from support.servers.nats_cluster import RETENTION, NatsCluster


@asynccontextmanager
async def open_bus(cluster: NatsCluster, prefix: str) -> AsyncIterator[Bus]:
    await cluster.create_streams(prefix)
    bus = await Bus.open(cluster.options(), prefix=prefix, retention=RETENTION)
    try:
        yield bus
    finally:
        cluster.heal()
        await cluster.delete_streams(bus)
        await bus.close()


@pytest.mark.timeout(120)
def test_a_publish_that_the_cluster_has_not_decided_on_is_tried_again(
    nats_cluster: NatsCluster,
) -> None:
    """The leader alone takes a message and cannot store it. It answers the second try with "is in
    process", which is no reason to give up.
    """

    async def main() -> None:
        async with open_bus(nats_cluster, "undecided") as bus:
            leader = await nats_cluster.stream_leader(bus.connection, bus.topology.log)
            subject = bus.subjects.task("nobody")
            for name in nats_cluster.nodes:
                if name != leader:
                    nats_cluster.suspend(name)
            publishing = asyncio.ensure_future(
                bus.connection.publish(subject, b"{}", msg_id="one", budget_s=None)
            )
            tries = 2.5 * vars(connection_module)["ACK_TIMEOUT_S"]
            done, _ = await asyncio.wait([publishing], timeout=tries)
            assert not done, publishing.exception()
            nats_cluster.heal()
            ack = await publishing
            again = await bus.connection.publish(subject, b"{}", msg_id="one", budget_s=None)
            assert (again.duplicate, again.seq) == (True, ack.seq)

    asyncio.run(main())
