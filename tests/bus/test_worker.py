"""The rules for failures: retry, then park with the reason; what is parked can be re-driven."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.codec import encode
from sandstream_bus.consumer import Delivery
from sandstream_bus.errors import Retry, UndecodableMessage
from sandstream_bus.messages import Parked
from sandstream_bus.parking import ParkedEntry
from sandstream_bus.runtime import Worker
from sandstream_bus.topology import ConsumerSpec
from support.idle import is_idle
from support.nats_server import NatsServer, open_bus
from support.runs import call, new_run
from support.waiting import eventually, until

Handle = Callable[[Delivery], Awaitable[None]]


def worker_on(bus: Bus, handle: Handle, *, max_deliveries: int = 3, **options: object) -> Worker:
    spec = ConsumerSpec(
        name="test", filters=[bus.subjects.call("*", "p"), "sandstream.task.*"], ack_wait_s=1.0
    )
    return Worker(bus, spec, handle, max_deliveries=max_deliveries, **options)  # type: ignore[arg-type]


async def send_one(bus: Bus, number: int = 0) -> int:
    run = new_run()
    ack = await bus.log.send(bus.subjects.call(run, "p"), call(number), msg_id=run)
    return ack.seq


async def parked(bus: Bus, count: int = 1) -> list[ParkedEntry]:
    async def look() -> list[ParkedEntry]:
        found = await bus.parking.list()
        return found if len(found) >= count else []

    return await eventually(look, what="parked")


async def is_settled(bus: Bus) -> None:
    await eventually(lambda: is_idle(bus, "test"), what="settled")


def test_a_retry_comes_again_after_its_delay(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            times: list[float] = []

            async def handle(delivery: Delivery) -> None:
                times.append(asyncio.get_running_loop().time())
                if delivery.deliveries == 1:
                    raise Retry("not yet", delay_s=0.3)

            worker = worker_on(bus, handle)
            await worker.start()
            await send_one(bus)
            await until(lambda: len(times) == 2)
            await is_settled(bus)
            await worker.stop()
            assert times[1] - times[0] >= 0.29
            assert await bus.parking.list() == []

    asyncio.run(main())


def test_errors_are_parked_after_the_last_try_with_the_reason(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            tries: list[int] = []
            told: list[str] = []

            async def handle(delivery: Delivery) -> None:
                tries.append(delivery.deliveries)
                raise ValueError("the moon is full")

            async def on_parked(delivery: Delivery, reason: str) -> None:
                told.append(reason)

            worker = worker_on(bus, handle, max_deliveries=2, on_parked=on_parked)
            await worker.start()
            sequence = await send_one(bus)
            [entry] = await parked(bus)
            await is_settled(bus)
            await worker.stop()
            assert tries == [1, 2]
            assert entry.id == f"test/{sequence}"
            assert entry.parked.reason == "given up after 2 tries: ValueError: the moon is full"
            assert entry.parked.consumer == "test"
            assert entry.parked.sequence == sequence
            assert told == [entry.parked.reason]

    asyncio.run(main())


def test_a_retry_for_ever_is_parked_too_unless_it_does_not_count(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            patient: list[int] = []
            first = await send_one(bus)
            await send_one(bus)

            async def handle(delivery: Delivery) -> None:
                if delivery.sequence == first:
                    raise Retry("never", delay_s=0.01)
                patient.append(delivery.deliveries)
                if len(patient) < 8:
                    raise Retry("somebody else is at it", delay_s=0.01, counts=False)

            worker = worker_on(bus, handle, max_deliveries=2)
            await worker.start()
            [entry] = await parked(bus)
            await until(lambda: len(patient) == 8)
            await is_settled(bus)
            await worker.stop()
            assert entry.parked.sequence == first
            assert "never" in entry.parked.reason
            assert len(await bus.parking.list()) == 1

    asyncio.run(main())


def test_a_message_error_is_parked_at_once(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            tries: list[int] = []

            async def handle(delivery: Delivery) -> None:
                tries.append(delivery.deliveries)
                await bus.codec.run_event(delivery.data)

            worker = worker_on(bus, handle)
            await worker.start()
            await bus.connection.publish("sandstream.run.x.call.p", b"{oops", msg_id="1")
            [entry] = await parked(bus)
            await is_settled(bus)
            await worker.stop()
            assert tries == [1]
            assert entry.parked.reason.startswith("message.undecodable: ")
            assert entry.parked.body == "{oops"

    asyncio.run(main())


@pytest.mark.parametrize(
    "body",
    [b"plain", "ünïcödé \0 \x7f".encode(), b"\xff\xfe\x00raw", b"base64:not really", b""],
)
def test_redrive_brings_back_the_very_bytes_and_headers(
    nats_server: NatsServer, body: bytes
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: list[tuple[bytes, dict[str, str]]] = []

            async def handle(delivery: Delivery) -> None:
                seen.append((delivery.data, delivery.headers))
                if len(seen) == 1:
                    raise UndecodableMessage("not today")

            worker = worker_on(bus, handle)
            await worker.start()
            await bus.connection.publish(
                "sandstream.task.a",
                body,
                msg_id="key-1",
                headers={"traceparent": "00-a-b-01", "Nats-Expected-Stream": bus.topology.log},
            )
            [entry] = await parked(bus)
            again = await bus.parking.redrive(entry)
            assert again > entry.parked.sequence
            await until(lambda: len(seen) == 2)
            await is_settled(bus)
            await worker.stop()
            assert seen[1][0] == body
            assert seen[1][1]["traceparent"] == "00-a-b-01"
            assert await bus.parking.list() == []

    asyncio.run(main())


def test_a_big_message_can_be_parked_and_redriven(nats_server: NatsServer) -> None:
    """What is nearly as big as the server takes does not fit with the reason around it."""
    body = os.urandom(900_000)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: list[bytes] = []

            async def handle(delivery: Delivery) -> None:
                seen.append(delivery.data)
                if len(seen) == 1:
                    raise UndecodableMessage("too strange")

            worker = worker_on(bus, handle)
            await worker.start()
            await bus.connection.publish("sandstream.task.a", body, msg_id="1")
            [entry] = await parked(bus)
            assert entry.parked.reason.endswith("too strange")
            await bus.parking.redrive(entry)
            await until(lambda: len(seen) == 2)
            await worker.stop()
            assert seen == [body, body]

    asyncio.run(main())


def test_drop_forgets_one_and_only_one(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:

            async def handle(delivery: Delivery) -> None:
                raise UndecodableMessage("no")

            worker = worker_on(bus, handle)
            await worker.start()
            for number in range(3):
                await send_one(bus, number)
            entries = await parked(bus, 3)
            await worker.stop()
            await bus.parking.drop(entries[1])
            assert [e.id for e in await bus.parking.list()] == [entries[0].id, entries[2].id]
            assert await bus.parking.get(entries[1].id) is None
            found = await bus.parking.get(entries[0].id)
            assert found is not None
            assert found.parked == entries[0].parked
            assert found.time.startswith("20")

    asyncio.run(main())


def test_any_number_of_parked_messages_is_listed(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            message = Parked(
                subject="s", sequence=1, consumer="c", reason="r", deliveries=1, body="{}"
            )
            await asyncio.gather(
                *(
                    bus.connection.publish(
                        bus.subjects.parked("c", n), encode(message), msg_id=f"{n}"
                    )
                    for n in range(1100)
                )
            )
            assert len(await bus.parking.list()) == 1100

    asyncio.run(main())


def test_a_broken_on_parked_does_not_loop(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            told: list[str] = []

            async def handle(delivery: Delivery) -> None:
                raise UndecodableMessage("no")

            async def on_parked(delivery: Delivery, reason: str) -> None:
                told.append(reason)
                raise RuntimeError("and this is broken too")

            worker = worker_on(bus, handle, on_parked=on_parked)
            await worker.start()
            await send_one(bus)
            await parked(bus)
            await is_settled(bus)
            await worker.stop()
            assert len(told) == 1

    asyncio.run(main())


def test_a_replica_that_died_each_time_is_the_reason(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            starts: list[int] = []

            async def hang(delivery: Delivery) -> None:
                starts.append(delivery.deliveries)
                await asyncio.Event().wait()

            await send_one(bus)
            for number in (1, 2):
                worker = worker_on(bus, hang, max_deliveries=2)
                await worker.start()
                await until(lambda number=number: len(starts) == number)
                await worker.stop(grace_s=0)  # lets go of it without a word, as a crash does
            worker = worker_on(bus, hang, max_deliveries=2)
            await worker.start()
            [entry] = await parked(bus)
            await worker.stop(grace_s=0)
            assert entry.parked.reason == "given up after 2 tries: the worker died each time"

    asyncio.run(main())
