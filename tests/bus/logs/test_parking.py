"""Parked messages are found by their ids, and listed up to a limit, however many there are."""

from __future__ import annotations

import asyncio

from sandstream_bus.bus import Bus
from sandstream_bus.logs.codec import encode
from sandstream_bus.wire.messages import Parked
from support.nats_server import NatsServer, open_bus


async def park(bus: Bus, count: int) -> None:
    for number in range(1, count + 1):
        parked = Parked(
            subject="s.x", sequence=number, consumer="c", reason="bad", deliveries=1, body=""
        )
        subject = bus.subjects.parked("c", number)
        await bus.connection.publish(subject, encode(parked), msg_id=subject)


def test_one_is_found_by_its_id_and_some_by_their_number(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await park(bus, 40)
            await bus.connection.publish(bus.subjects.parked("c", 99), b"{", msg_id="stranger")
            assert await bus.parking.count() == 41
            found = await bus.parking.get("c/7")
            assert found is not None and found.parked.sequence == 7
            for unknown in ("c/99", "c/1000", "c/x", "c", "", "*/7", "c/>", "c.d/7", "c/-7"):
                assert await bus.parking.get(unknown) is None
            assert [it.parked.sequence for it in await bus.parking.list(4)] == [38, 39, 40]
            for number in range(20, 39):
                entry = await bus.parking.get(f"c/{number}")
                assert entry is not None
                await bus.parking.drop(entry)
            newest = [it.parked.sequence for it in await bus.parking.list(6)]
            assert newest == [16, 17, 18, 19, 39, 40]
            assert len(await bus.parking.list()) == 21
            assert len(await bus.parking.list(1000)) == 21

    asyncio.run(main())
