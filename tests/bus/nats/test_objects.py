"""Content-addressed objects: any size, verified, readable by any object-store client."""

from __future__ import annotations

import asyncio
import hashlib
import os

import msgspec
import nats
import pytest
from sandstream_bus.errors import ObjectMissing, UndecodableMessage
from sandstream_bus.nats import objects
from sandstream_bus.nats.direct import stale_many
from support.nats_server import NatsServer, open_bus

MB = 1024 * 1024


@pytest.mark.parametrize("size", [0, 1, 512 * 1024, 512 * 1024 + 1, 3 * MB, 9 * MB])
def test_round_trip(nats_server: NatsServer, size: int) -> None:
    data = os.urandom(size)

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as other:
            digest = await bus.objects.put(data)
            assert digest == hashlib.sha256(data).hexdigest()
            assert await bus.objects.get(digest) == data
            assert await other.objects.get(digest) == data

    asyncio.run(main())


def test_the_same_bytes_are_stored_once(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            stream = f"OBJ_{bus.topology.bucket}"
            await bus.objects.put(b"x" * MB)
            before = await bus.topology.stream_state(bus.connection, stream)
            await asyncio.gather(*(bus.objects.put(b"x" * MB) for _ in range(5)))
            after = await bus.topology.stream_state(bus.connection, stream)
            assert after["messages"] == before["messages"] == 3

    asyncio.run(main())


def test_an_old_object_is_stored_anew_so_that_it_outlives_the_event_that_refers_to_it(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            digest = await bus.objects.put(b"x" * MB)
            monkeypatch.setattr(objects, "REFRESH_AFTER_S", 0)
            assert await bus.objects.put(b"x" * MB) == digest
            assert await bus.objects.get(digest) == b"x" * MB
            stream = f"OBJ_{bus.topology.bucket}"
            state = await bus.topology.stream_state(bus.connection, stream)
            assert state["messages"] == 2 + 2 + 1  # the old record is replaced, not kept

    asyncio.run(main())


def test_whoever_asks_learns_what_is_there_and_how_old_it_is(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            data = [str(number).encode() for number in range(600)]
            digests = [hashlib.sha256(it).hexdigest() for it in data]
            there = digests[::2]
            for it, digest in zip(data[::2], there, strict=True):
                assert await bus.objects.put_new(it, digest)
            assert not await bus.objects.put_new(data[0], digests[0])
            ages = await bus.objects.ages(digests)
            assert sorted(ages) == sorted(there)
            assert all(-60 < age_s < 60 for age_s in ages.values())
            assert await bus.objects.ages([]) == {}
            assert await bus.objects.ages(digests[1:2]) == {}

    asyncio.run(main())


def test_a_missing_object_is_named(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            with pytest.raises(ObjectMissing, match="abc"):
                await bus.objects.get("abc" + "0" * 61)

    asyncio.run(main())


def test_damage_is_noticed(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            digest = await bus.objects.put(os.urandom(2 * MB))
            stream = f"OBJ_{bus.topology.bucket}"
            chunks = await stale_many(
                bus.connection, stream, f"$O.{bus.topology.bucket}.C.*", after=0
            )
            await bus.connection.request(
                f"$JS.API.STREAM.MSG.DELETE.{stream}",
                msgspec.json.encode({"seq": chunks[1].sequence}),
            )
            with pytest.raises(UndecodableMessage, match="damaged"):
                await bus.objects.get(digest)

    asyncio.run(main())


def test_a_put_survives_a_server_kill(nats_server: NatsServer) -> None:
    data = os.urandom(12 * MB)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await bus.objects.put(b"open the connection")
            putting = asyncio.ensure_future(bus.objects.put(data))
            await asyncio.sleep(0.05)
            await asyncio.to_thread(nats_server.restart)
            assert await bus.objects.get(await putting) == data

    asyncio.run(main())


def test_nats_py_reads_our_objects(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            data = os.urandom(MB)
            digest = await bus.objects.put(data)
            client = await nats.connect(nats_server.url)
            try:
                store = await client.jetstream().object_store(bus.topology.bucket)
                found = await store.get(digest)
                assert found.data == data
            finally:
                await client.close()

    asyncio.run(main())
