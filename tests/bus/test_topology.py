"""Streams and consumers: made once by many, mended after drift, never moved."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.connection import Connection
from sandstream_bus.consumer import Delivery, PullLoop
from sandstream_bus.subjects import Subjects
from sandstream_bus.topology import ConsumerSpec, Retention, Topology
from support.nats_server import NatsServer, open_bus
from support.runs import call, new_run
from support.waiting import until


async def stream_config(bus: Bus, stream: str) -> dict[str, Any]:
    reply = await bus.connection.request(f"$JS.API.STREAM.INFO.{stream}", b"")
    config: dict[str, Any] = msgspec.json.decode(reply.data)["config"]
    return config


async def stream_names(bus: Bus) -> list[str]:
    reply = await bus.connection.request("$JS.API.STREAM.NAMES", b"")
    return sorted(msgspec.json.decode(reply.data)["streams"])


def test_ten_connections_apply_at_once(nats_server: NatsServer) -> None:
    async def main() -> None:
        connections = await asyncio.gather(
            *(Connection.open(nats_server.options()) for _ in range(10))
        )
        topologies = [Topology(Subjects()) for _ in connections]
        await asyncio.gather(
            *(t.apply(c) for t, c in zip(topologies, connections, strict=True)),
            *(t.apply(c) for t, c in zip(topologies, connections, strict=True)),
        )
        await asyncio.gather(*(connection.close() for connection in connections))
        async with open_bus(nats_server) as bus:
            assert await stream_names(bus) == [
                "OBJ_sandstream-memory",
                "OBJ_sandstream-objects",
                "SANDSTREAM_AGENTS",
                "SANDSTREAM_LOG",
                "SANDSTREAM_MEMORY",
                "SANDSTREAM_PARKED",
            ]

    asyncio.run(main())


def test_applying_again_changes_nothing(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            updates: list[str] = []
            await bus.connection.subscribe(
                "$JS.EVENT.ADVISORY.STREAM.UPDATED.>", lambda m: updates.append(m.subject)
            )
            await bus.connection.flush()
            before = [await stream_config(bus, name) for name in await stream_names(bus)]
            await bus.topology.apply(bus.connection)
            await bus.connection.flush()
            after = [await stream_config(bus, name) for name in await stream_names(bus)]
            assert before == after
            assert updates == []

    asyncio.run(main())


def test_drift_is_mended_and_messages_are_kept(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await bus.log.send(bus.subjects.call(run, "p"), call(1), msg_id="1")
            config = await stream_config(bus, bus.topology.log)
            drifted = config | {"allow_direct": False, "max_age": 10**15, "description": "mine"}
            await bus.connection.request(
                f"$JS.API.STREAM.UPDATE.{bus.topology.log}", msgspec.json.encode(drifted)
            )
            await bus.topology.apply(bus.connection)
            mended = await stream_config(bus, bus.topology.log)
            assert mended["allow_direct"] is True
            assert mended["max_age"] == config["max_age"]
            assert mended["description"] == "mine"  # what we do not care about stays
            assert len(await bus.log.read(run)) == 1

    asyncio.run(main())


def test_a_changed_retention_is_applied(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server):
            pass
        async with open_bus(nats_server, retention=Retention(max_age_days=2)) as bus:
            config = await stream_config(bus, bus.topology.log)
            assert config["max_age"] == 2 * 86_400 * 10**9
            objects = await stream_config(bus, f"OBJ_{bus.topology.bucket}")
            assert objects["max_age"] > config["max_age"]

    asyncio.run(main())


def test_two_installations_share_a_server(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server, prefix="one") as one,
            open_bus(nats_server, prefix="two.b") as two,
        ):
            run = new_run()
            await one.log.send(one.subjects.call(run, "p"), call(1), msg_id="same")
            await two.log.send(two.subjects.call(run, "p"), call(2), msg_id="same")
            assert [e.event for e in await one.log.read(run)] == [call(1)]
            assert [e.event for e in await two.log.read(run)] == [call(2)]

    asyncio.run(main())


def test_a_consumer_keeps_its_place_when_its_settings_change(nats_server: NatsServer) -> None:
    seen: list[int] = []

    async def take(bus: Bus, spec: ConsumerSpec, upto: int) -> None:
        async def handle(delivery: Delivery) -> None:
            seen.append(delivery.sequence)
            await loop.ack(delivery)

        loop = PullLoop(bus.connection, bus.topology, spec, handle)
        await loop.start()
        await until(lambda: len(seen) >= upto)
        await loop.stop()

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            spec = ConsumerSpec(name="keeper", filters=[bus.subjects.call("*", "p")])
            for number in range(3):
                await bus.log.send(bus.subjects.call(run, "p"), call(number), msg_id=str(number))
            await take(bus, spec, 3)
            for number in range(3, 5):
                await bus.log.send(bus.subjects.call(run, "p"), call(number), msg_id=str(number))
            changed = msgspec.structs.replace(
                spec,
                ack_wait_s=9.0,
                only_new=True,
                filters=[bus.subjects.call("*", "p"), bus.subjects.call("*", "q")],
            )
            await take(bus, changed, 5)
            assert seen == [1, 2, 3, 4, 5]
            info = await bus.topology.consumer_info(bus.connection, "keeper")
            assert info is not None
            assert info["config"]["ack_wait"] == 9 * 10**9
            assert info["config"]["deliver_policy"] == "all"
            assert len(info["config"]["filter_subjects"]) == 2

    asyncio.run(main())


def test_many_replicas_make_the_same_consumer_at_once(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            spec = ConsumerSpec(name="crowd", filters=[bus.subjects.call("*", "p")])
            await asyncio.gather(
                *(bus.topology.ensure_consumer(bus.connection, spec) for _ in range(10))
            )
            assert await bus.topology.consumer_info(bus.connection, "crowd") is not None
            await bus.topology.delete_consumer(bus.connection, "crowd")
            await bus.topology.delete_consumer(bus.connection, "crowd")
            assert await bus.topology.consumer_info(bus.connection, "crowd") is None

    asyncio.run(main())


def test_only_new_and_a_start_sequence_skip_the_past(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            subject = bus.subjects.call(run, "p")
            for number in range(3):
                await bus.log.send(subject, call(number), msg_id=str(number))
            for name, spec, pending in (
                ("all", ConsumerSpec(name="all", filters=[subject]), 3),
                ("new", ConsumerSpec(name="new", filters=[subject], only_new=True), 0),
                ("from", ConsumerSpec(name="from", filters=[subject], start_sequence=3), 1),
            ):
                await bus.topology.ensure_consumer(bus.connection, spec)
                info = await bus.topology.consumer_info(bus.connection, name)
                assert info is not None
                assert info["num_pending"] == pending

    asyncio.run(main())
