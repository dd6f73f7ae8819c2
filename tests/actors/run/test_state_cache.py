"""The cache of folded states: it is bounded, and a message alone may bring it up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandstream_actors.run.state_cache import StateCache
from sandstream_bus.bus import Bus
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.direct import Stored
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import call, finished, new_run, started


def delivered(stored: Stored, *, fresh: bool = True) -> Delivery:
    class Message:
        reply = f"$JS.ACK.S.c.1.{stored.sequence}.1.1700000000000000000.0"
        subject, data, headers = stored.subject, stored.data, stored.headers

    message: Any = Message()
    delivery = Delivery(message)
    delivery.fresh = fresh
    return delivery


async def begin(bus: Bus) -> RunId:
    run = new_run()
    subject = bus.subjects.start(run, "main")
    await bus.log.append(run, subject, started("x" * 1000), after=0, msg_id=f"{run}:start")
    return run


def on_bus(nats_server: NatsServer, story: Callable[[Bus], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await story(bus)

    asyncio.run(main())


def test_the_number_of_states_is_bounded(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        states = StateCache(bus.log, max_runs=3)
        runs = [await begin(bus) for _ in range(5)]
        for run in runs:
            await states.load(run)
        assert list(states._states) == runs[-3:]
        await states.load(runs[2])
        await states.load(runs[0])  # the least recently used one goes
        assert list(states._states) == [runs[4], runs[2], runs[0]]

    on_bus(nats_server, story)


def test_what_the_states_were_folded_from_is_bounded(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        states = StateCache(bus.log, max_bytes=3500)
        runs = [await begin(bus) for _ in range(5)]
        for run in runs:
            await states.load(run)
        assert 0 < len(states._states) < 4
        assert states._bytes == sum(states._sizes.values()) <= 3500
        for run in runs:
            states.drop(run)
        assert states._bytes == 0 and not states._sizes

    on_bus(nats_server, story)


def test_a_state_that_is_no_longer_used_is_forgotten(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        first, second = await begin(bus), await begin(bus)
        states = StateCache(bus.log, max_idle_s=0.0)
        await states.load(first)
        assert list(states._states) == [first]
        await states.load(second)
        assert list(states._states) == [second]
        assert states._sizes.keys() == states._used_at.keys() == {second}

    on_bus(nats_server, story)


def test_a_result_that_follows_what_is_known_needs_no_read(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        states = StateCache(bus.log)
        run = await begin(bus)
        state = await states.load(run)
        asked = await bus.log.send_after(
            run, bus.subjects.call(run, "h"), call(1), after=state.last_seq, msg_id=f"{run}:c"
        )
        state.apply(asked.sequence, call(1))
        await bus.log.send_after(
            run,
            bus.subjects.result(run, "main"),
            finished(1),
            after=asked.sequence,
            msg_id=f"{run}:r",
        )
        last = (await bus.log.read(run))[-1]
        heard: list[str] = []
        listening = await bus.connection.subscribe("$JS.API.>", lambda it: heard.append(it.subject))
        woken = await states.woken(run, delivered(last.stored))
        await bus.connection.flush()
        await listening.close()
        assert woken is state and "t1-1" in state.results
        assert heard == []

    on_bus(nats_server, story)


def test_a_message_brings_a_state_that_is_behind_up_to_date(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        states = StateCache(bus.log)
        run = await begin(bus)
        await states.load(run)
        for number in range(3):  # by another replica
            subject = bus.subjects.call(run, "h")
            await bus.log.send(subject, call(number), msg_id=f"{run}:{number}")
        last = (await bus.log.read(run))[-1]
        woken = await states.woken(run, delivered(last.stored))
        assert list(woken.asked) == ["t1-0", "t1-1", "t1-2"]

    on_bus(nats_server, story)


def test_a_message_that_somebody_may_have_had_is_not_taken_for_the_newest(
    nats_server: NatsServer,
) -> None:
    async def story(bus: Bus) -> None:
        run = await begin(bus)
        (first,) = await bus.log.read(run)
        await bus.log.send(bus.subjects.call(run, "h"), call(1), msg_id=f"{run}:c")
        woken = await StateCache(bus.log).woken(run, delivered(first.stored, fresh=False))
        assert list(woken.asked) == ["t1-1"]

    on_bus(nats_server, story)
