"""The rules for failures: retry, then park with the reason; what is parked can be re-driven."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.errors import Retry, UndecodableMessage
from sandstream_bus.logs.codec import encode
from sandstream_bus.logs.parked import ParkedEntry
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker
from sandstream_bus.wire.attempts import (
    Attempt,
    attempt_headers,
    attempt_of,
    caused_by,
    process_name,
)
from sandstream_bus.wire.messages import Parked
from support.idle import is_idle
from support.nats_server import NatsServer, open_bus
from support.runs import call, new_run
from support.waiting import eventually, until

Handle = Callable[[Delivery], Awaitable[None]]


def worker_on(bus: Bus, handle: Handle, *, max_deliveries: int = 3, **options: object) -> Worker:
    spec = ConsumerSpec(
        name="test", filters=[bus.subjects.call("*", "p"), bus.subjects.input("*")], ack_wait_s=1.0
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


def test_what_a_process_gave_back_is_an_attempt_of_its_own_and_no_takeover(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: list[Attempt] = []

            async def handle(delivery: Delivery) -> None:
                headers = caused_by(delivery.sequence, None, delivery.attempt, delivery.given_back)
                seen.append(attempt_of(headers))
                if len(seen) == 1:
                    raise Retry("not yet", delay_s=0.01)
                if len(seen) == 2:
                    raise ValueError("a fault of the handler")

            worker = worker_on(bus, handle)
            await worker.start()
            sequence = await send_one(bus)
            await until(lambda: len(seen) == 3)
            await is_settled(bus)
            await worker.stop()
            name = process_name()
            assert seen == [Attempt(sequence, number, 0, name) for number in (1, 2, 3)]

    asyncio.run(main())


def test_what_another_process_left_is_taken_over(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: list[Attempt] = []

            async def hang(_: Delivery) -> None:
                await asyncio.Event().wait()

            async def handle(delivery: Delivery) -> None:
                told = attempt_headers(delivery.attempt, delivery.given_back)
                seen.append(attempt_of(told))

            first = worker_on(bus, hang)
            await first.start()
            await send_one(bus)
            await until(lambda: bool(first.loop._in_flight))
            await first.stop(0.0)
            second = worker_on(bus, handle)
            await second.start()
            await until(lambda: bool(seen))
            await second.stop()
            assert [(it.number, it.takeovers) for it in seen] == [(2, 1)]

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
                "sandstream.run.a.input",
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
            await bus.connection.publish("sandstream.run.a.input", body, msg_id="1")
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

            def has_begun(times: int) -> Callable[[], bool]:
                return lambda: len(starts) == times

            for number in (1, 2):
                worker = worker_on(bus, hang, max_deliveries=2)
                await worker.start()
                await until(has_begun(number))
                await worker.stop(grace_s=0)  # lets go of it without a word, as a crash does
            worker = worker_on(bus, hang, max_deliveries=2)
            await worker.start()
            [entry] = await parked(bus)
            await worker.stop(grace_s=0)
            assert entry.parked.reason == "given up after 2 tries: the worker died each time"

    asyncio.run(main())


def test_logs_name_run_subject_actor_attempt_and_error(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """In the text, since most formatters show nothing else; and as fields, for programs."""

    async def main() -> str:
        async with open_bus(nats_server) as bus:

            async def handle(delivery: Delivery) -> None:
                raise ValueError("no\nluck")

            worker = worker_on(bus, handle, max_deliveries=2)
            await worker.start()
            run = new_run()
            await bus.log.send(bus.subjects.call(run, "p"), call(0), msg_id=run)
            await parked(bus)
            await is_settled(bus)
            await worker.stop()
            return run

    run = asyncio.run(main())
    records = [it for it in caplog.records if it.name == "sandstream_bus.runtime"]
    where = f"sandstream.run.{run}.call.p of run {run}, sequence 1, actor test"
    assert [it.getMessage() for it in records] == [
        rf"handling failed: {where}, attempt 1 of 2: ValueError: no\nluck",
        rf"handling failed: {where}, attempt 2 of 2: ValueError: no\nluck",
        rf"message parked: {where}, attempt 2 of 2: given up after 2 tries: ValueError: no\nluck",
    ]
    fields = {(vars(it)["run"], vars(it)["actor"]) for it in records}
    assert fields == {(run, "test")}
