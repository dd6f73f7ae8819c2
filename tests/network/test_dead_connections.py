"""How a connection finds out that the other end is gone, and comes back."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.nats.connect_options import ConnectOptions
from support.nats_server import NatsServer, open_bus
from support.servers.tcp_proxy import TcpProxy

NOTICED_WITHIN_S = 40.0


@asynccontextmanager
async def through_proxy(server: NatsServer) -> AsyncIterator[tuple[Bus, TcpProxy]]:
    async with open_bus(server):
        """The streams are there from now on."""
    async with TcpProxy(server.port) as proxy:
        bus = await Bus.open(ConnectOptions(servers=[proxy.url]))
        try:
            yield bus, proxy
        finally:
            await bus.close()


def test_sockets_of_a_server_that_does_not_greet_are_closed(nats_server: NatsServer) -> None:
    """What nobody closes is a warning when the garbage is collected, and so fails the test."""

    async def main() -> None:
        async with through_proxy(nats_server) as (bus, proxy):
            proxy.swallow()
            proxy.drop()
            await proxy.until_accepted(4, within_s=30)  # each try takes 2 s
            gc.collect()
            proxy.open()
            await bus.connection.publish(bus.subjects.task("x"), b"{}", msg_id="x")

    asyncio.run(main())


def test_bytes_that_cannot_be_sent_do_not_keep_a_dead_connection(nats_server: NatsServer) -> None:
    """The other end reads nothing, so all buffers are full when the connection is given up."""

    async def main() -> None:
        async with through_proxy(nats_server) as (bus, proxy):
            subject, data = bus.subjects.task("x"), bytes(900_000)
            proxy.stall()
            publishing = [
                asyncio.ensure_future(
                    bus.connection.publish(subject, data, msg_id=str(number), budget_s=None)
                )
                for number in range(12)
            ]
            await proxy.until_accepted(2, NOTICED_WITHIN_S)
            acks = await asyncio.gather(*publishing)
            assert len({ack.seq for ack in acks}) == len(acks)

    asyncio.run(main())


def test_a_connection_that_cannot_send_can_be_closed(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with through_proxy(nats_server) as (bus, proxy):
            proxy.stall()
            for _ in range(10):
                await bus.connection.send("nobody", bytes(900_000))
            await bus.connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_publish_on_a_half_open_connection_is_stored_once(
    nats_server: NatsServer, direction: str
) -> None:
    """Its bytes vanish, or its acknowledgement does: it is repeated on the next connection."""

    async def main() -> None:
        async with through_proxy(nats_server) as (bus, proxy):
            subject = bus.subjects.task("x")
            before = await bus.connection.publish(subject, b"{}", msg_id="before")
            proxy.half_open(frozenset(("up",)) if direction == "up" else frozenset(("down",)))
            ack = await bus.connection.publish(subject, b"{}", msg_id="one", budget_s=None)
            assert ack.seq == before.seq + 1
            assert ack.duplicate == (direction == "down")
            after = await bus.connection.publish(subject, b"{}", msg_id="after")
            assert after.seq == ack.seq + 1

    asyncio.run(main())
