"""Following: replay, then live, without gap or duplicate, whatever dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import LiveEvent, RunDone
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import call, done, finished, new_run, started
from support.waiting import until


async def collect(bus: Bus, run: RunId, into: list[LogEvent], after: int = 0) -> None:
    async for event in bus.follow.run(run, after=after):
        assert isinstance(event, LogEvent)
        into.append(event)


def test_replay_of_a_run_that_has_ended(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            await bus.log.send(s.start(run, "p"), started(), msg_id="1")
            await bus.log.send(s.result(run, "p"), finished(0), msg_id="2")
            await bus.log.send(s.done(run), done(), msg_id="3")
            seen: list[LogEvent] = []
            await collect(bus, run, seen)
            assert [e.event for e in seen] == [started(), finished(0), done()]
            rest: list[LogEvent] = []
            await collect(bus, run, rest, after=seen[0].sequence)
            assert [e[:3] for e in rest] == [e[:3] for e in seen[1:]]
            assert await bus.follow.done(run) == done()

    asyncio.run(main())


def test_live_events_have_what_replayed_ones_have(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            seen: list[LogEvent] = []
            following = asyncio.ensure_future(collect(bus, run, seen))
            await bus.log.send(s.start(run, "p"), started(), msg_id="1", headers={"x": "y"})
            await until(lambda: len(seen) == 1)
            await bus.log.send(s.result(run, "p"), finished(0), msg_id="2", headers={"x": "y"})
            await bus.log.send(s.done(run), done(), msg_id="3")
            await following
            replayed = await bus.log.read(run)
            assert [e[:3] for e in seen] == [e[:3] for e in replayed]
            assert seen[1].stored.headers["x"] == "y"
            assert seen[1].stored.msg_id == "2"

    asyncio.run(main())


def test_big_events_come_whole(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as watcher:
            run, s = new_run(), bus.subjects
            seen: list[LogEvent] = []
            following = asyncio.ensure_future(collect(watcher, run, seen))
            big = finished(0, msgspec.json.encode("x" * 500_000))
            await bus.log.send(s.result(run, "p"), big, msg_id="1")
            end = done(msgspec.json.encode("y" * 500_000))
            waiting = asyncio.ensure_future(watcher.follow.done(run))
            await bus.log.send(s.done(run), end, msg_id="2")
            await following
            assert [e.event for e in seen] == [big, end]
            assert await waiting == end

    asyncio.run(main())


@pytest.mark.parametrize("kills", [0, 4])
def test_no_gap_and_no_duplicate_while_a_publisher_writes(
    nats_server: NatsServer, kills: int
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as watcher:
            run, s = new_run(), bus.subjects
            total = 600
            sent = 0

            async def publish() -> None:
                nonlocal sent
                for number in range(total):
                    await bus.log.send(s.call(run, "p"), call(number), msg_id=f"m{number}")
                    sent += 1
                await bus.log.send(s.done(run), done(), msg_id="end")

            def has_sent(count: int) -> Callable[[], bool]:
                return lambda: sent >= count

            logs: list[list[LogEvent]] = [[] for _ in range(6)]
            publishing = asyncio.ensure_future(publish())
            following = []
            for index, log in enumerate(logs):
                await until(has_sent(index * 10))
                following.append(asyncio.ensure_future(collect(watcher, run, log)))
            waiting = asyncio.ensure_future(watcher.follow.done(run))
            for kill in range(kills):
                await until(has_sent(100 * (kill + 1)))
                await asyncio.to_thread(nats_server.restart)
            await asyncio.gather(publishing, *following)
            assert await waiting == done()
            expected = [e.sequence for e in await bus.log.read(run)]
            assert len(expected) == total + 1
            for log in logs:
                assert [e.sequence for e in log] == expected

    asyncio.run(main())


def test_an_event_that_is_live_before_the_reconnect_is_known_makes_no_gap(
    nats_server: NatsServer,
) -> None:
    """What was written during the break must come before what is live after it."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as watcher:
            run, s = new_run(), bus.subjects
            seen: list[LogEvent] = []
            following = asyncio.ensure_future(collect(watcher, run, seen))
            await bus.log.send(s.call(run, "p"), call(0), msg_id="0")
            await until(lambda: len(seen) == 1)
            # The subscription is back, an event arrives, and only then are callbacks run:
            # a slow callback of somebody else stands for whatever may delay ours.
            connection = watcher.connection
            subscription = next(
                sub for sub in connection._subscriptions if sub.subject == s.live_all(run)
            )
            await subscription._inner.unsubscribe()
            await connection._on_disconnect()
            await bus.log.send(s.call(run, "p"), call(1), msg_id="1")
            await subscription.attach(connection._client)
            await connection.flush()
            await bus.log.send(s.call(run, "p"), call(2), msg_id="2")
            await connection.flush()
            await until(lambda: subscription._inner._pending_queue.empty())
            await connection._on_reconnected()
            await bus.log.send(s.done(run), done(), msg_id="3")
            await following
            assert [e.event for e in seen] == [call(0), call(1), call(2), done()]

    asyncio.run(main())


def test_done_resolves_live(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            runs = [new_run() for _ in range(50)]
            waiting = [asyncio.ensure_future(bus.follow.done(run)) for run in runs]
            for run in runs:
                await bus.log.send(bus.subjects.done(run), done(b'"%s"' % run.encode()), msg_id=run)
            ends = await asyncio.gather(*waiting)
            assert [bytes(e.output) for e in ends] == [b'"%s"' % run.encode() for run in runs]

    asyncio.run(main())


@pytest.mark.parametrize("live", [False, True])
def test_events_of_a_newer_version_are_skipped(nats_server: NatsServer, live: bool) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            seen: list[LogEvent] = []
            await bus.log.send(s.start(run, "p"), started(), msg_id="1")
            following = None
            if live:
                following = asyncio.ensure_future(collect(bus, run, seen))
                await until(lambda: len(seen) == 1)
            await bus.connection.publish(s.model(run), b'{"type":"mind.read","by":"z"}', msg_id="2")
            await bus.log.send(s.done(run), done(), msg_id="3")
            await (following or collect(bus, run, seen))
            assert [e.event for e in seen] == [started(), done()]

    asyncio.run(main())


def test_all_survives_foreign_bytes(nats_server: NatsServer) -> None:
    """One bad message in one run does not blind those who watch them all."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            seen: list[LogEvent] = []

            async def watch() -> None:
                async for event in bus.follow.all():
                    if event is not None:
                        seen.append(event)

            watching = asyncio.ensure_future(watch())
            await until(lambda: bus.connection._subscriptions)
            await bus.connection.flush()
            await bus.connection.publish(s.model(run), b"{nonsense", msg_id="1")
            await bus.connection.publish(s.model(run), b'{"type":"mind.read"}', msg_id="2")
            await bus.connection.publish_core(s.delta(run), b"nonsense")
            await bus.log.send(s.done(run), done(), msg_id="3")
            await until(lambda: seen or watching.done())
            assert [e.event for e in seen] == [done()]
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(main())


def test_deltas_come_only_on_request(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            with_deltas: list[LogEvent | LiveEvent] = []
            plain: list[LogEvent] = []

            async def follow() -> None:
                async for event in bus.follow.run(run, deltas=True):
                    with_deltas.append(event)

            following = [asyncio.ensure_future(follow())]
            following.append(asyncio.ensure_future(collect(bus, run, plain)))
            await bus.log.send(s.start(run, "p"), started(), msg_id="1")
            await until(lambda: with_deltas and plain)
            for n in (1, 2):
                delta = LiveEvent(turn=1, n=n, event=Raw(b'{"type":"x"}'))
                await bus.connection.publish_core(s.delta(run), msgspec.json.encode(delta))
            await bus.log.send(s.call(run, "delta"), call(0), msg_id="a pool may have any name")
            await bus.connection.publish_core(s.live("gossip", run), b"not of the log")
            await bus.log.send(s.done(run), done(), msg_id="2")
            await asyncio.gather(*following)
            assert [e.n for e in with_deltas if isinstance(e, LiveEvent)] == [1, 2]
            assert isinstance(with_deltas[-1], LogEvent)
            assert isinstance(with_deltas[-1].event, RunDone)
            assert [e.event for e in plain] == [started(), call(0), done()]

    asyncio.run(main())


def test_leaving_early_leaves_nothing_behind(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            await bus.log.send(s.start(run, "p"), started(), msg_id="1")
            stream = bus.follow.run(run)
            async for _ in stream:
                break
            await stream.aclose()
            waiting = asyncio.ensure_future(bus.follow.done(run))
            await until(lambda: bus.connection._subscriptions)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert not bus.connection._subscriptions
            assert not bus.connection._on_reconnect

    asyncio.run(main())
