"""Attacks with messages that a server sends for somebody: acknowledgements and copies of stored
messages, on subjects to which the attacker may not publish.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import nats
import pytest
from msgspec import Raw
from nats.aio.client import Client
from sandstream_actors.run.cancellations import Cancellations
from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CancelRequested, LiveEvent
from sandstream_bus.wire.sandboxes import LiveOutput
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import call, done, new_run, started
from support.servers.outsiders import guarded_server, outsider
from support.waiting import eventually, until

from sandstream._inspect.live_output import heard
from sandstream._inspect.run_lists import list_runs

DIRECT = "$JS.API.DIRECT.GET.SANDSTREAM_LOG"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    users = [outsider("mallory"), outsider("copier", publish=(DIRECT, f"{DIRECT}.>"))]
    with guarded_server(tmp_path / "guarded", users) as guarded:
        yield guarded


class Attacker:
    """Somebody with few permissions and a raw connection."""

    def __init__(self, connection: Client, name: str) -> None:
        self._connection = connection
        self._name = name

    async def reflect_ack(self, to: str) -> None:
        """Have the server's acknowledgement of a publish of one's own sent somewhere."""
        subject = f"sandstream.ask.{self._name}.task.x"
        await self._connection.publish(subject, b'{"input":"x"}', reply=to)
        await self._connection.flush()

    async def publish(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        await self._connection.publish(subject, data, headers=headers)
        await self._connection.flush()

    async def reflect_event(self, sequence: int, to: str) -> None:
        """Have a stored event copied somewhere, headers included."""
        await self._connection.publish(DIRECT, json.dumps({"seq": sequence}).encode(), reply=to)
        await self._connection.flush()


@asynccontextmanager
async def attacked(server: NatsServer, name: str) -> AsyncIterator[tuple[Bus, Attacker]]:
    async with open_bus(server, user="actor", password="pw") as bus:
        url = server.url.replace("://", f"://{name}:pw@")
        connection = await nats.connect(url, inbox_prefix=f"_INBOX_{name}")
        try:
            yield bus, Attacker(connection, name)
        finally:
            await connection.close()


def test_a_follower_passes_over_what_is_no_delta_and_no_event(server: NatsServer) -> None:
    async def main() -> None:
        async with attacked(server, "mallory") as (bus, mallory):
            run, s = new_run(), bus.subjects
            seen: list[LogEvent | LiveEvent] = []

            async def follow() -> None:
                async for event in bus.follow.run(run, deltas=True):
                    seen.append(event)

            following = asyncio.ensure_future(follow())
            await bus.log.send(s.start(run, "p"), started(), msg_id="1")
            await until(lambda: len(seen) == 1)
            for kind in ("delta", "done", "model", "start.p", "nonsense"):
                await _heard_ack(bus, mallory, s.live(kind, run))
            bus.connection.publish_now(s.delta(run), [b'{"turn":1,"n":1,"event":{}}', b"{", b""])
            await bus.log.send(s.done(run), done(), msg_id="2")
            await following
            deltas = [it for it in seen if isinstance(it, LiveEvent)]
            assert deltas == [LiveEvent(turn=1, n=1, event=Raw(b"{}"))]
            assert [it.event for it in seen if isinstance(it, LogEvent)] == [started(), done()]

    asyncio.run(main())


def test_whoever_waits_for_an_end_gets_only_a_real_one(server: NatsServer) -> None:
    async def main() -> None:
        async with attacked(server, "mallory") as (bus, mallory):
            run, s = new_run(), bus.subjects
            first = await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
            begun = await bus.log.read(run)

            async def begin() -> list[LogEvent]:
                return begun

            waiting = asyncio.ensure_future(bus.follow.done(run))
            resting = asyncio.ensure_future(
                bus.follow.rest(run, begin=begin, is_at_rest=lambda _: False)
            )
            await _heard_ack(bus, mallory, s.live("waiting", run))
            await _heard_ack(bus, mallory, s.live("done", run))
            assert not waiting.done() and not resting.done()
            await bus.log.send(s.done(run), done(), msg_id="2")
            assert await waiting == done()
            assert await resting == first

    asyncio.run(main())


def test_an_end_cannot_be_hidden_behind_an_acknowledgement(server: NatsServer) -> None:
    async def main() -> None:
        async with attacked(server, "mallory") as (bus, mallory):
            run, s = new_run(), bus.subjects
            await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
            await bus.log.send(s.done(run), done(), msg_id="2")
            await mallory.reflect_ack(s.done(run))  # the log takes all below <p>.run

            async def is_stored() -> bool:
                return len(await bus.log.stored(run)) == 3

            await eventually(is_stored)
            assert await bus.follow.done(run) == done()
            last = await bus.log.last(s.done(run))
            assert last is not None and last.event == done()
            assert [it.event for it in await bus.log.last_each([s.done(run)])] == [done()]
            assert [it.status for it in await list_runs(bus, limit=5)] == ["completed"]

    asyncio.run(main())


def test_an_acknowledgement_cancels_nothing(server: NatsServer) -> None:
    async def main() -> None:
        async with attacked(server, "mallory") as (bus, mallory):
            run, other, s = new_run(), new_run(), bus.subjects
            cancellations = Cancellations(bus)
            await cancellations.start()
            await bus.connection.flush()
            working, stopped = (asyncio.ensure_future(asyncio.Event().wait()) for _ in range(2))
            with cancellations.watching(run, working), cancellations.watching(other, stopped):
                await _heard_ack(bus, mallory, s.live("cancel", run))
                await bus.log.send(s.cancel(other), CancelRequested(), msg_id="1")
                await until(stopped.cancelled)  # it came after the attack, by the same subscription
                assert not working.cancelling()
                await bus.log.send(s.cancel(run), CancelRequested(), msg_id="2")
                await until(working.cancelled)
            await cancellations.stop()

    asyncio.run(main())


def test_an_event_of_another_stream_is_no_event_of_the_log(server: NatsServer) -> None:
    """Such as a copy of the log that somebody keeps under the same subjects."""

    async def main() -> None:
        async with attacked(server, "actor") as (bus, other):
            run, s = new_run(), bus.subjects
            await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
            waiting = asyncio.ensure_future(bus.follow.done(run))
            headers = {"Nats-Stream": "COPY", "Nats-Sequence": "9", "Nats-Subject": s.done(run)}
            async with _heard(bus, s.live("done", run)):
                await other.publish(s.live("done", run), msgspec.json.encode(done(b"1")), headers)
            await bus.log.send(s.done(run), done(b"2"), msg_id="2")
            assert await waiting == done(b"2")

    asyncio.run(main())


def test_a_cancel_of_another_run_cancels_nothing(server: NatsServer) -> None:
    async def main() -> None:
        async with attacked(server, "copier") as (bus, copier):
            run, own, other, s = new_run(), new_run(), new_run(), bus.subjects
            ack = await bus.log.send(s.cancel(own), CancelRequested(), msg_id="1")
            cancellations = Cancellations(bus)
            await cancellations.start()
            working, stopped = (asyncio.ensure_future(asyncio.Event().wait()) for _ in range(2))
            with cancellations.watching(run, working), cancellations.watching(other, stopped):
                async with _heard(bus, s.live("cancel", run)):
                    await copier.reflect_event(ack.seq, s.live("cancel", run))
                await bus.log.send(s.cancel(other), CancelRequested(), msg_id="2")
                await until(stopped.cancelled)
                assert not working.cancelling()
                working.cancel()
            await cancellations.stop()

    asyncio.run(main())


def test_output_of_commands_is_only_what_a_sandbox_sent(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with attacked(server, "mallory") as (bus, mallory):
            run, s = new_run(), bus.subjects
            pieces: list[LiveOutput] = []
            async with heard(bus, run, pieces.append):
                await bus.connection.flush()
                await _heard_ack(bus, mallory, s.output(run))
                await bus.connection.publish_core(
                    s.output(run), b'{"call":"c","stream":"stdout","offset":0,"data":"b2sK"}'
                )
                await until(lambda: bool(pieces))
            assert [it.data for it in pieces] == [b"ok\n"]
            assert "a message handler failed" not in caplog.text

    asyncio.run(main())


def test_an_event_of_another_run_is_no_event_of_this_one(server: NatsServer) -> None:
    """Whoever may read directly can copy events, with their headers, to any subject."""

    async def main() -> None:
        async with attacked(server, "copier") as (bus, copier):
            run, other, s = new_run(), new_run(), bus.subjects
            await bus.log.send(s.call(other, "p"), call(0), msg_id="1")
            ack = await bus.log.send(s.done(other), done(b'"theirs"'), msg_id="2")
            await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="3")
            seen: list[LogEvent] = []
            following = asyncio.ensure_future(_collect(bus, run, seen))
            watching: list[tuple[int, str]] = []
            everything = asyncio.ensure_future(_watch(bus, watching))
            waiting = asyncio.ensure_future(bus.follow.done(run))
            await until(lambda: len(seen) == 1)
            async with _heard(bus, s.live("done", run)):
                await copier.reflect_event(ack.seq, s.live("done", run))
            await bus.log.send(s.call(run, "p"), call(1), msg_id="4")
            await until(lambda: len(seen) == 2)
            assert not waiting.done() and not following.done()
            await bus.log.send(s.done(run), done(), msg_id="5")
            assert await waiting == done()
            await following
            assert [it.event for it in seen] == [started(), call(1), done()]
            await until(lambda: bool(watching) and watching[-1][1] == s.done(run))
            everything.cancel()
            assert s.done(other) not in [subject for _, subject in watching]

    asyncio.run(main())


async def _heard_ack(bus: Bus, attacker: Attacker, subject: str) -> None:
    async with _heard(bus, subject):
        await attacker.reflect_ack(subject)


@asynccontextmanager
async def _heard(bus: Bus, subject: str) -> AsyncIterator[None]:
    """Ends when an attack within has arrived: others on this connection have it by then."""
    came = asyncio.Event()
    listening = await bus.connection.subscribe(subject, lambda _: came.set())
    await bus.connection.flush()
    yield
    await came.wait()
    await listening.close()


async def _collect(bus: Bus, run: RunId, into: list[LogEvent]) -> None:
    async for event in bus.follow.run(run):
        assert isinstance(event, LogEvent)
        into.append(event)


async def _watch(bus: Bus, into: list[tuple[int, str]]) -> None:
    async for event in bus.follow.all():
        if event is not None:
            into.append((event.sequence, event.subject))


def test_the_attacks_reach_the_subjects_at_all(server: NatsServer) -> None:
    """Else the tests above would prove nothing."""

    async def main() -> None:
        async with attacked(server, "mallory") as (bus, mallory):
            run, s = new_run(), bus.subjects
            got: list[bytes] = []
            await bus.connection.subscribe(s.live("cancel", run), lambda it: got.append(it.data))
            await bus.connection.flush()
            await mallory.reflect_ack(s.live("cancel", run))
            await until(lambda: bool(got))
            assert b"SANDSTREAM_REQUESTS" in got[0]

    asyncio.run(main())
