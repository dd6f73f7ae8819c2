"""The pull loop: nothing twice in one process, nothing forgotten, whatever dies around it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.nats.consumer import Delivery, PullLoop
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.setup.installation import create_missing
from support.idle import is_idle
from support.nats_server import NatsServer, open_bus
from support.runs import call, new_run
from support.waiting import eventually, until

Handle = Callable[[PullLoop, Delivery], Awaitable[None]]


def loop_on(
    bus: Bus, handle: Handle, *, ack_wait_s: float = 5.0, max_in_flight: int = 64
) -> PullLoop:
    spec = ConsumerSpec(name="test", filters=[bus.subjects.call("*", "p")], ack_wait_s=ack_wait_s)

    async def on_delivery(delivery: Delivery) -> None:
        await handle(loop, delivery)

    loop = PullLoop(bus.connection, bus.topology, spec, on_delivery, max_in_flight=max_in_flight)
    return loop


async def send(bus: Bus, start: int, count: int) -> None:
    run = new_run()
    await asyncio.gather(
        *(
            bus.log.send(bus.subjects.call(run, "p"), call(n), msg_id=f"{run}{n}")
            for n in range(start, start + count)
        )
    )


async def settled(bus: Bus) -> None:
    """Wait until the server knows of every acknowledgement."""

    await eventually(lambda: is_idle(bus, "test"), what="all acknowledged")


def test_every_message_once_with_its_facts(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: list[Delivery] = []

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                seen.append(delivery)
                await loop.ack(delivery)

            loop = loop_on(bus, handle, max_in_flight=10)
            await loop.start()
            await send(bus, 0, 300)
            await until(lambda: len(seen) >= 300)
            await settled(bus)
            await loop.stop()
            assert sorted(d.sequence for d in seen) == list(range(1, 301))
            assert all(d.deliveries == 1 and d.time_ns > 10**18 for d in seen)
            assert all(d.headers["Nats-Msg-Id"] for d in seen)
            assert loop.redeliveries == 0

    asyncio.run(main())


@pytest.mark.parametrize("capacity", [1, 2, 3, 16])
def test_slow_messages_never_keep_a_free_place_empty(
    nats_server: NatsServer, capacity: int
) -> None:
    """All places but one are taken for long: the rest still flows through the last one."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            release = asyncio.Event()
            quick: list[int] = []
            slow: list[int] = []
            most = 0

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                nonlocal most
                most = max(most, loop._working())
                if len(slow) < capacity - 1:
                    slow.append(delivery.sequence)
                    await release.wait()
                else:
                    quick.append(delivery.sequence)
                await loop.ack(delivery)

            loop = loop_on(bus, handle, max_in_flight=capacity)
            await loop.start()
            await send(bus, 0, 60)
            await until(lambda: len(quick) + len(slow) == 60)
            release.set()
            await settled(bus)
            await loop.stop()
            assert most <= capacity

    asyncio.run(main())


def test_no_more_is_taken_than_can_start(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            running = 0
            release = asyncio.Event()

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                nonlocal running
                running += 1
                await release.wait()
                await loop.ack(delivery)

            loop = loop_on(bus, handle, max_in_flight=7)
            await send(bus, 0, 30)
            await loop.start()
            await until(lambda: running == 7)
            info = await bus.topology.consumer_info(bus.connection, "test")
            assert info is not None
            assert info["num_ack_pending"] == 7
            assert info["num_pending"] == 23
            release.set()
            await settled(bus)
            await loop.stop()

    asyncio.run(main())


def test_beats_keep_a_handler_alive_beyond_ack_wait(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: list[int] = []

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                seen.append(delivery.sequence)
                await asyncio.sleep(2.0)
                await loop.ack(delivery)

            loop = loop_on(bus, handle, ack_wait_s=0.6)
            await loop.start()
            await send(bus, 0, 3)
            await until(lambda: len(seen) == 3)
            await settled(bus)
            await loop.stop()
            assert len(seen) == 3
            assert loop.redeliveries == 0

    asyncio.run(main())


def test_a_redelivery_of_what_is_being_worked_on_is_not_started_twice(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            starts: list[int] = []
            delivered_again = asyncio.Event()

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                starts.append(delivery.sequence)
                # somebody gives it back behind our back: the server delivers it once more
                await bus.connection.send(delivery.reply, b"-NAK")
                await until(lambda: delivery.deliveries == 2)
                assert delivery.attempt == 1, "it is still the same try"
                delivered_again.set()
                await loop.ack(delivery)

            loop = loop_on(bus, handle)
            await loop.start()
            await send(bus, 0, 1)
            await delivered_again.wait()
            await settled(bus)  # the newer token was the one that counts
            await loop.stop()
            assert starts == [1]
            assert loop.redeliveries == 1

    asyncio.run(main())


def test_two_replicas_share_and_a_dead_ones_messages_move_on(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as first, open_bus(nats_server) as second:
            stuck: list[int] = []
            done: list[tuple[int, int]] = []

            async def hang(loop: PullLoop, delivery: Delivery) -> None:
                stuck.append(delivery.sequence)
                await asyncio.Event().wait()

            async def work(loop: PullLoop, delivery: Delivery) -> None:
                done.append((delivery.sequence, delivery.deliveries))
                await loop.ack(delivery)

            dying = loop_on(first, hang, ack_wait_s=0.5)
            await dying.start()
            await send(first, 0, 5)
            await until(lambda: len(stuck) == 5)
            await dying.stop(grace_s=0)
            living = loop_on(second, work, ack_wait_s=0.5)
            await living.start()
            await until(lambda: len(done) == 5)
            await settled(second)
            await living.stop()
            assert sorted(done) == [(n, 2) for n in range(1, 6)]

    asyncio.run(main())


def test_server_kills_in_the_middle_of_consumption(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: Counter[int] = Counter()

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                await asyncio.sleep(0.002)
                seen[delivery.sequence] += 1
                await loop.ack(delivery)

            loop = loop_on(bus, handle, ack_wait_s=1.0, max_in_flight=8)
            await loop.start()
            await send(bus, 0, 200)

            def has_seen_more_than(mark: int) -> Callable[[], bool]:
                return lambda: len(seen) > mark

            for mark in (40, 110):
                await until(has_seen_more_than(mark))
                await asyncio.to_thread(nats_server.restart)
            await send(bus, 200, 100)
            await until(lambda: len(seen) == 300)
            await settled(bus)
            await loop.stop()
            assert set(seen) == set(range(1, 301))

    asyncio.run(main())


def test_a_deleted_consumer_is_made_again(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: set[int] = set()

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                seen.add(delivery.sequence)
                await loop.ack(delivery)

            loop = loop_on(bus, handle)
            await loop.start()
            await send(bus, 0, 3)
            await until(lambda: len(seen) == 3)
            await bus.topology.delete_consumer(bus.connection, "test")
            await send(bus, 3, 3)
            await until(lambda: len(seen) == 6)
            await loop.stop()

    asyncio.run(main())


def test_a_deleted_log_that_comes_back_is_worked_on_again(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: list[int] = []

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                seen.append(delivery.sequence)
                await loop.ack(delivery)

            loop = loop_on(bus, handle)
            await loop.start()
            await bus.connection.request(f"$JS.API.STREAM.DELETE.{bus.topology.log}", b"")
            await asyncio.sleep(0.6)  # long enough for the loop to notice and to fail once
            await create_missing(bus.connection, bus.topology)
            await send(bus, 0, 3)
            await until(lambda: len(seen) == 3)
            await loop.stop()

    asyncio.run(main())


def test_a_held_message_takes_no_place(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            release = asyncio.Event()
            passed: list[int] = []

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                if delivery.sequence <= 5:
                    loop.hold(delivery)
                    await release.wait()
                    delivery.held = False
                passed.append(delivery.sequence)
                await loop.ack(delivery)

            loop = loop_on(bus, handle, max_in_flight=1)
            await loop.start()
            await send(bus, 0, 20)
            await until(lambda: len(passed) == 15)
            release.set()
            await until(lambda: len(passed) == 20)
            await settled(bus)
            await loop.stop()

    asyncio.run(main())


def test_stop_lets_work_finish_within_the_grace(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            started: list[int] = []
            finished: list[int] = []

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                started.append(delivery.sequence)
                await asyncio.sleep(0.3)
                finished.append(delivery.sequence)
                await loop.ack(delivery)

            loop = loop_on(bus, handle, max_in_flight=2)
            await loop.start()
            await send(bus, 0, 6)
            await until(lambda: len(started) == 2)
            await loop.stop()
            assert started == finished == [1, 2]
            info = await bus.topology.consumer_info(bus.connection, "test")
            assert info is not None
            assert info["ack_floor"]["stream_seq"] == 2

    asyncio.run(main())


def test_stop_lets_go_when_the_grace_is_over(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            cancelled: list[int] = []
            started = asyncio.Event()

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                started.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(delivery.sequence)
                    raise

            loop = loop_on(bus, handle)
            await loop.start()
            await send(bus, 0, 1)
            await started.wait()
            async with asyncio.timeout(3):
                await loop.stop(grace_s=0.05)
            assert cancelled == [1]

    asyncio.run(main())


def test_a_handler_that_fails_gets_its_message_again(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            tries: list[int] = []

            async def handle(loop: PullLoop, delivery: Delivery) -> None:
                tries.append(delivery.deliveries)
                if delivery.deliveries == 1:
                    raise RuntimeError("on purpose")
                await loop.ack(delivery)

            loop = loop_on(bus, handle, ack_wait_s=0.3)
            await loop.start()
            await send(bus, 0, 1)
            await until(lambda: tries == [1, 2])
            await loop.stop()

    asyncio.run(main())
