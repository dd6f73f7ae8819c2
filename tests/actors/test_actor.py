"""An actor of one's own: a named, durable reader of the log, scaled by starting it once more."""

from __future__ import annotations

import asyncio

import pytest
from sandstream_actors.base import Actor, Received
from sandstream_bus.bus import Bus
from sandstream_bus.errors import InvalidSubject, UndecodableMessage
from sandstream_bus.logs.parked import ParkedEntry
from sandstream_bus.wire.messages import (
    CallFinished,
    Claim,
    ModelAnswered,
    RunDone,
    RunStarted,
    Task,
)
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import done, finished, new_run, started
from support.waiting import eventually, until


async def end_runs(bus: Bus, count: int) -> list[RunId]:
    runs = [new_run() for _ in range(count)]
    await asyncio.gather(
        *(bus.log.send(bus.subjects.done(run), done(), msg_id=f"{run}:done") for run in runs)
    )
    return runs


def test_a_webhook_gets_each_event_with_where_it_came_from(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            actor = Actor("webhook")
            got: list[tuple[RunDone, Received]] = []
            begun: list[RunId] = []

            @actor.on(RunDone)
            async def tell(event: RunDone, received: Received) -> None:
                got.append((event, received))

            @actor.on(RunStarted)
            async def note(event: RunStarted, received: Received) -> None:
                begun.append(received.run)

            await end_runs(bus, 1)  # before its time: an actor starts with what is new
            await actor.start(bus)
            run = new_run()
            await bus.log.send(bus.subjects.start(run, "p"), started(), msg_id="1")
            await bus.log.send(bus.subjects.result(run, "p"), finished(0), msg_id="2")
            ack = await bus.log.send(
                bus.subjects.done(run), done(), msg_id="3", headers={"traceparent": "t"}
            )
            await until(lambda: got)
            await actor.stop()
            [(event, received)] = got
            assert event == done()
            assert (received.run, received.sequence, received.deliveries) == (run, ack.seq, 1)
            assert received.headers["traceparent"] == "t"
            assert received.bus is bus
            assert begun == [run]

    asyncio.run(main())


def test_two_replicas_share_the_work(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as other:
            shares: list[list[RunId]] = [[], []]
            actors = []
            for index, where in enumerate((bus, other)):
                actor = Actor("sharer", max_in_flight=2)

                @actor.on(RunDone)
                async def work(event: RunDone, received: Received, index: int = index) -> None:
                    await asyncio.sleep(0.005)
                    shares[index].append(received.run)

                await actor.start(where)
                actors.append(actor)
            runs = await end_runs(bus, 100)
            await until(lambda: len(shares[0]) + len(shares[1]) >= 100)
            for actor in actors:
                await actor.stop()
            assert sorted(shares[0] + shares[1]) == sorted(runs)
            assert len(shares[0]) > 10
            assert len(shares[1]) > 10

    asyncio.run(main())


def test_what_came_while_it_was_away_is_handled(nats_server: NatsServer) -> None:
    async def main() -> None:
        got: list[RunId] = []

        def webhook() -> Actor:
            actor = Actor("webhook")

            @actor.on(RunDone)
            async def tell(event: RunDone, received: Received) -> None:
                got.append(received.run)

            return actor

        async with open_bus(nats_server) as bus:
            first = webhook()
            await first.start(bus)
            runs = await end_runs(bus, 3)
            await until(lambda: len(got) == 3)
            await first.stop()
            runs += await end_runs(bus, 3)
            await asyncio.to_thread(nats_server.restart)
            second = webhook()
            await second.start(bus)
            # a killed server forgets the acknowledgements of its last moments: at least once
            await until(lambda: set(got) == set(runs))
            await second.stop()
            assert set(got[3:]) >= set(runs[3:])

    asyncio.run(main())


def test_from_the_beginning(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            runs = await end_runs(bus, 5)
            actor = Actor("historian", from_beginning=True)
            got: list[RunId] = []

            @actor.on(RunDone)
            async def tell(event: RunDone, received: Received) -> None:
                got.append(received.run)

            running = asyncio.ensure_future(actor.run(bus))
            await until(lambda: len(got) == 5)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert sorted(got) == sorted(runs)

    asyncio.run(main())


def test_a_handler_that_fails_is_tried_again_and_a_hopeless_one_parks(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            actor = Actor("clumsy")
            tries: list[int] = []

            @actor.on(RunDone)
            async def tell(event: RunDone, received: Received) -> None:
                tries.append(received.deliveries)
                if received.deliveries == 1:
                    raise ConnectionError("the receiver is out for lunch")
                raise UndecodableMessage("the receiver wants XML")

            await actor.start(bus)
            [run] = await end_runs(bus, 1)

            async def look() -> list[ParkedEntry]:
                return await bus.parking.list()

            [entry] = await eventually(look)
            await actor.stop()
            assert tries == [1, 2]
            assert entry.parked.consumer == "actor-clumsy"
            assert entry.parked.subject == bus.subjects.done(run)
            assert "XML" in entry.parked.reason

    asyncio.run(main())


def test_events_that_share_a_subject_are_told_apart(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            actor = Actor("results")
            got: list[CallFinished] = []

            @actor.on(CallFinished)
            async def take(event: CallFinished, received: Received) -> None:
                got.append(event)

            await actor.start(bus)
            run = new_run()
            subject = bus.subjects.result(run, "p")
            answer = ModelAnswered(turn=1, agent="a", output=[], usage=done().usage)
            await bus.log.send(subject, answer, msg_id="1")  # a hosted model's
            await bus.log.send(subject, finished(0), msg_id="2")
            await until(lambda: got)
            await actor.stop()
            assert got == [finished(0)]
            assert await bus.parking.list() == []

    asyncio.run(main())


def test_mistakes_are_said_when_the_actor_is_written() -> None:
    actor = Actor("strict")
    for wrong in (Task, Claim, str, dict):
        with pytest.raises(TypeError, match="RunDone"):
            actor.on(wrong)

    @actor.on(RunDone)
    async def one(event: RunDone, received: Received) -> None: ...

    with pytest.raises(TypeError, match="two handlers"):
        actor.on(RunDone)
    with pytest.raises(InvalidSubject, match="name"):
        Actor("not a token")


def test_an_actor_without_handlers_does_not_start(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            with pytest.raises(TypeError, match="handles nothing"):
                await Actor("idle").start(bus)

    asyncio.run(main())
