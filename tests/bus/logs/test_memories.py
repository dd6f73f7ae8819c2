"""The states of memory scopes and their files, on a real server."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.errors import ContentMissing, InvalidSubject, ObjectMissing
from sandstream_bus.logs.memories import INLINE_LIMIT_BYTES
from sandstream_bus.wire.memories import MemoryState, MemoryStateObject, Revision, Rollout
from support.nats_server import NatsServer, open_bus

ODD = ["alice", "user:42/team a", "sandbox:r1_x", "ü.*>", "x" * 500]


async def _grown(bus: Bus, scope: str, **more: object) -> MemoryState:
    async def decide(state: MemoryState) -> MemoryState:
        return msgspec.structs.replace(state, revision=state.revision + 1, **more)

    return await bus.memories.change(scope, decide)


def test_scopes_of_any_name_are_kept_apart(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            assert (await bus.memories.read("nobody")).sequence == 0
            for number, scope in enumerate(ODD):
                await _grown(bus, scope, merges=number)
            assert await bus.memories.scopes() == sorted(ODD)
            for number, scope in enumerate(ODD):
                assert (await bus.memories.read(scope)).state.merges == number
            with pytest.raises(InvalidSubject, match="must not be empty"):
                await bus.memories.read("")

    asyncio.run(main())


def test_no_change_is_lost_whoever_makes_it(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as one, open_bus(nats_server) as other:
            buses = [one, other] * 20
            await asyncio.gather(*(_grown(bus, "alice") for bus in buses))
            assert (await one.memories.read("alice")).state.revision == len(buses)

    asyncio.run(main())


def test_a_decision_for_nothing_writes_nothing(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await _grown(bus, "alice")
            before = await bus.memories.read("alice")

            async def nothing(state: MemoryState) -> None:
                assert state == before.state

            assert await bus.memories.change("alice", nothing) == before.state
            assert (await bus.memories.read("alice")).sequence == before.sequence

    asyncio.run(main())


def test_a_big_state_is_an_object_and_the_one_before_goes(nats_server: NatsServer) -> None:
    rollouts = {f"r{n}": Rollout(id=f"r{n}", name="n" * 200) for n in range(2000)}

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await _grown(bus, "alice", rollouts=rollouts)
            big = await bus.memories.read("alice")
            assert len(msgspec.json.encode(big.state)) > INLINE_LIMIT_BYTES
            assert big.digest and len(big.state.rollouts) == 2000
            await _grown(bus, "alice")
            assert (await bus.memories.read("alice")).state.revision == 2
            with pytest.raises(ObjectMissing):
                await bus.memories.objects("alice").get(big.digest)
            assert await bus.memories.scopes() == ["alice"]

    asyncio.run(main())


def test_a_state_whose_object_is_not_there_cannot_be_read(nats_server: NatsServer) -> None:
    """A message error: what waits for this memory is parked at once and not tried again."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            forged = msgspec.json.encode(MemoryStateObject(digest="a" * 64, size_bytes=1))
            await bus.connection.publish(bus.subjects.memory_state("*"), forged, msg_id="1")
            with pytest.raises(ContentMissing, match=r"memory '\*' cannot be read"):
                await bus.memories.read("*")

    asyncio.run(main())


BIG = {f"r{n}": Rollout(id=f"r{n}", name="n" * 200) for n in range(1500)}


def test_writers_of_a_big_state_leave_one_object_and_readers_always_find_it(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server) as one,
            open_bus(nats_server) as other,
            open_bus(nats_server) as reader,
        ):
            await _grown(one, "alice", rollouts=BIG)

            async def write(bus: Bus) -> None:
                for _ in range(15):
                    await _grown(bus, "alice")

            writing = asyncio.gather(write(one), write(other))
            while not writing.done():
                assert len((await reader.memories.read("alice")).state.rollouts) == len(BIG)
                assert await reader.memories.scopes() == ["alice"]
            await writing
            stored = await reader.memories.read("alice")
            assert stored.state.revision == 31
            assert await reader.memories.stored() == {"alice": {stored.digest}}

    asyncio.run(main())


def test_a_big_state_that_is_written_again_as_it_is_stays(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:

            async def same(state: MemoryState) -> MemoryState:
                return msgspec.structs.replace(state, rollouts=BIG)

            for _ in range(3):
                await bus.memories.change("alice", same)
            assert len((await bus.memories.read("alice")).state.rollouts) == len(BIG)

    asyncio.run(main())


def test_what_was_stored_anew_is_not_discarded(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            objects = bus.memories.objects("alice")
            digest = await objects.put(b"tabs")
            places = await objects.places([digest, "0" * 64])
            assert places.keys() == {digest}
            await objects.delete(digest)
            assert await objects.put(b"tabs") == digest
            await bus.memories.discard("alice", places)
            assert await objects.get(digest) == b"tabs"
            await bus.memories.discard("alice", await objects.places([digest]))
            with pytest.raises(ObjectMissing):
                await objects.get(digest)

    asyncio.run(main())


def test_a_deleted_scope_takes_all_of_its_objects_along(nats_server: NatsServer) -> None:
    long = "x" * 500

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            for scope in ("alice", long, "bob"):
                await bus.memories.put(scope, b"that nothing names")
                await _grown(bus, scope, rollouts=BIG)
            for scope in ("alice", long):
                await bus.memories.delete(scope)
            assert await bus.memories.scopes() == ["bob"]
            assert (await bus.memories.stored()).keys() == {"bob"}

    asyncio.run(main())


def test_files_belong_to_their_scope(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            memories = bus.memories
            mine, yours = await memories.put("alice", b"tabs"), await memories.put("bob", b"tabs")
            assert mine == yours
            old = await memories.put_tree("alice", {"memories/MEMORY.md": mine})
            change = Revision(number=1, kind="merge", at="", before="", after=old)
            await _grown(bus, "alice", tree={"memories/MEMORY.md": mine}, history=[change])
            assert await memories.get_tree("alice", old) == {"memories/MEMORY.md": mine}
            assert await memories.get_tree("alice", "") == {}
            await memories.delete("alice")
            assert (await memories.read("alice")).sequence == 0
            for digest in (mine.digest, old):
                with pytest.raises(ObjectMissing):
                    await memories.objects("alice").get(digest)
            assert await memories.get("bob", yours) == b"tabs"

    asyncio.run(main())


def test_only_the_memory_of_a_workspace_expires(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            from sandstream_bus.nats.direct import stale_last_each

            found = {}
            rollout = Rollout(id="r", name="r")
            for scope in ("alice", "sandbox:x", "asked for"):
                rollouts = {} if scope == "asked for" else {"r": rollout}
                await _grown(bus, scope, rollouts=rollouts)
                subject = bus.subjects.memory_state(scope)
                (stored,) = await stale_last_each(bus.connection, bus.topology.memory, [subject])
                found[scope] = stored.headers.get("Nats-TTL")
            assert found == {"alice": None, "sandbox:x": "2592000s", "asked for": "3600s"}

    asyncio.run(main())
