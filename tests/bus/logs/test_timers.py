"""Durable timers: late by a tick at most, moved by arming again, kept across restarts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from sandstream_bus.bus import Bus
from sandstream_bus.carriers import carrier
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CancelRequested, TurnRequested
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import new_run
from support.waiting import eventually


@contextlib.asynccontextmanager
async def relayed(server: NatsServer) -> AsyncIterator[Bus]:
    """A bus with somebody who sends on what is due, as a harness does."""
    async with open_bus(server) as bus:
        filters = [f"{bus.subjects.prefix}.due.>"]
        relay = carrier(bus, bus.topology.timers, "timers", filters, bus.timers.send_on)
        await relay.start()
        try:
            yield bus
        finally:
            await relay.stop()


async def fired(bus: Bus, run: RunId, count: int = 1) -> list[LogEvent]:
    async def look() -> list[LogEvent]:
        found = await bus.log.read(run)
        return found if len(found) >= count else []

    return await eventually(look, what="the timer fired")


async def arm(bus: Bus, run: RunId, turn: int, delay_s: float, msg_id: str) -> datetime:
    return await bus.timers.arm(
        run,
        "model",
        bus.subjects.turn(run, "p"),
        TurnRequested(turn=turn, agent="a"),
        delay_s=delay_s,
        msg_id=msg_id,
        headers={"traceparent": "00-a-b-01"},
    )


def test_a_timer_fires_once_with_its_message_and_headers(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with relayed(nats_server) as bus:
            run = new_run()
            due = await arm(bus, run, 2, 0.4, "1")
            await arm(bus, run, 2, 0.4, "1")  # a repeated arming is the same timer
            assert await bus.log.read(run) == []
            [event] = await fired(bus, run)
            assert event.event == TurnRequested(turn=2, agent="a")
            assert event.subject == bus.subjects.turn(run, "p")
            assert event.stored.headers["traceparent"] == "00-a-b-01"
            late = datetime.fromisoformat(event.stored.time) - due
            assert timedelta() <= late < timedelta(seconds=1.5)

    asyncio.run(main())


def test_arming_again_moves_the_timer(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with relayed(nats_server) as bus:
            run, other = new_run(), new_run()
            await arm(bus, run, 1, 60, "1")
            await arm(bus, run, 2, 0.2, "2")  # earlier
            await arm(bus, other, 1, 0.2, "3")
            due = await arm(bus, other, 2, 1.2, "4")  # later
            [event] = await fired(bus, run)
            assert event.event == TurnRequested(turn=2, agent="a")
            [later] = await fired(bus, other)
            assert later.event == TurnRequested(turn=2, agent="a")
            assert datetime.fromisoformat(later.stored.time) >= due

    asyncio.run(main())


def test_a_timer_survives_the_server(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with relayed(nats_server) as bus:
            run, early = new_run(), new_run()
            await arm(bus, run, 1, 1.0, "1")
            due = await arm(bus, early, 1, 0.1, "2")
            nats_server.kill()
            while datetime.now(UTC) < due:  # due while nobody is there to fire it
                await asyncio.sleep(0.02)
            await asyncio.to_thread(nats_server.start)
            assert len(await fired(bus, early)) == 1
            assert len(await fired(bus, run)) == 1

    asyncio.run(main())


def test_two_timers_for_one_subject_both_fire(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with relayed(nats_server) as bus:
            run = new_run()
            for turn in (1, 2):
                await bus.timers.arm(
                    run,
                    f"name{turn}",
                    bus.subjects.turn(run, "p"),
                    TurnRequested(turn=turn, agent="a"),
                    delay_s=0.1,
                    msg_id=str(turn),
                )
            assert len(await fired(bus, run, 2)) == 2

    asyncio.run(main())


def test_what_no_timer_has_sent_is_parked(nats_server: NatsServer) -> None:
    """A server acknowledges to whatever reply subject a publisher names, also to this one."""

    async def main() -> None:
        async with relayed(nats_server) as bus:
            run = new_run()
            due = bus.subjects.due(bus.subjects.cancel(run))
            await bus.connection.send("sandstream.task.any", b"{}", due)
            message = await bus.codec.encode(CancelRequested(reason="forged"))
            await bus.connection.publish(due, message, msg_id="a-copy")

            async def parked() -> bool:
                return len(await bus.parking.list()) == 2

            await eventually(parked, what="both are parked")
            assert {it.parked.subject for it in await bus.parking.list()} == {due}
            assert await bus.log.stored(run) == []

    asyncio.run(main())
