"""What strangers put on our subjects, or have a server put there: it stops nobody."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from fuzz.wire import Headers, Wire
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.errors import ContentMissing, Drop, MessageError, ObjectMissing
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.logs.sandboxes import SandboxMovedOn
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker
from sandstream_bus.wire.conversations import ConversationCompacted
from sandstream_bus.wire.headers import BEFORE, EXPECTED_SEQUENCE, EXPECTED_SUBJECT, MSG_ID
from sandstream_bus.wire.messages import CallStarted, Claim, LiveEvent
from sandstream_bus.wire.sandboxes import SandboxPaused, SandboxReply, SandboxStopped
from support.idle import is_idle
from support.nats_server import NatsServer
from support.runs import call, done, finished, new_run, started
from support.servers.strangers import told
from support.waiting import eventually, until

CLAIM = msgspec.json.encode(Claim(of="run.done", digest="0" * 64, size_bytes=1))
GARBAGE = (b"", b"{", b'{"type":"moon.landed"}', b"\xff\xfe", b"[" * 60_000, CLAIM)


async def put(wire: Wire, subject: str, data: bytes, headers: Headers | None = None) -> int:
    """Store a message as a stranger does: without a message id, unless one is given."""
    ack = await (
        await wire.publish(subject.encode("utf-8", "surrogateescape"), data, headers or [])
    )
    assert not ack.error
    return ack.sequence


def test_a_claim_without_its_object_is_a_message_that_cannot_be_read(
    nats_server: NatsServer,
) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        for read in (bus.codec.run_event, bus.codec.task, bus.codec.sandbox_request):
            with pytest.raises(ContentMissing) as caught:
                await read(CLAIM)
            assert isinstance(caught.value, MessageError)
            assert isinstance(caught.value, ObjectMissing)

    told(nats_server, story)


def test_strays_hide_no_event_of_a_run(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        run, s = new_run(), bus.subjects
        first = await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
        for data in GARBAGE:
            for subject in (s.model(run), s.done(run), s.start(run, "p")):
                await put(wire, subject, data)
        end = await bus.log.append(run, s.done(run), done(), after=first, msg_id="2")
        for data in GARBAGE:
            await put(wire, s.done(run), data)
        assert [it.event for it in await bus.log.read(run)] == [started(), done()]
        last = await bus.log.last(s.done(run))
        assert last is not None and last.sequence == end
        assert [it.event for it in await bus.log.last_each([s.done(run)])] == [done()]
        assert await bus.follow.done(run) == done()

    told(nats_server, story)


def test_a_stray_before_the_beginning_does_not_hide_it(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        run, s = new_run(), bus.subjects
        last = [await put(wire, s.start(run, "p"), data) for data in GARBAGE][-1]
        await bus.log.append(run, s.start(run, "p"), started(), after=last, msg_id="1")
        first = await bus.log.read_subject(s.start(run, "*"), limit=1)
        assert [it.event for it in first] == [started()]

    told(nats_server, story)


def test_who_waits_for_an_end_is_not_ended_by_garbage(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        run, s = new_run(), bus.subjects
        seen: list[LogEvent | LiveEvent] = []

        async def follow() -> None:
            async for event in bus.follow.run(run, deltas=True):
                seen.append(event)

        await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
        waiting = asyncio.ensure_future(bus.follow.done(run))
        following = asyncio.ensure_future(follow())
        await until(lambda: bool(seen))
        odd: tuple[Headers, ...] = (
            [],
            [(b"Nats-Sequence", b"x")],
            [(b"Nats-Sequence", b"7"), (b"Nats-Subject", b"a.b")],
        )
        for data in GARBAGE:
            await put(wire, s.done(run), data)
            for headers in odd:
                for subject in (s.live("done", run), s.delta(run), s.live("model", run)):
                    await wire.send(subject.encode(), data, headers)
        delta = LiveEvent(turn=1, n=1, event=Raw(b"{}"))
        await wire.send(s.delta(run).encode(), msgspec.json.encode(delta), [])
        await until(lambda: delta in seen)
        assert not waiting.done()
        await bus.log.send(s.done(run), done(), msg_id="2")
        assert await waiting == done()
        await following
        assert [it.event for it in seen if isinstance(it, LogEvent)] == [started(), done()]

    told(nats_server, story)


def test_a_stray_does_not_count_as_the_first_message(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        run, s = new_run(), bus.subjects
        subject = s.started(run, "t1-0")
        for data in GARBAGE:
            await put(wire, subject, data)
        claim = CallStarted(call="t1-0", host="h")
        first = await bus.log.create_once(subject, claim, msg_id="a")
        assert first is not None
        assert await bus.log.create_once(subject, claim, msg_id="a") == first
        assert await bus.log.create_once(subject, claim, msg_id="b") is None

    told(nats_server, story)


@pytest.mark.parametrize("before", [b"1,2,x", b"9" * 5000, b"-1", b","])
def test_odd_names_of_predecessors_prove_nothing(nats_server: NatsServer, before: bytes) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        other, run, s = new_run(), new_run(), bus.subjects
        await put(wire, s.start(other, "p"), b"{")
        for number in range(300):  # so many that they are not read by subject
            await put(wire, s.model(other), b"%d" % number)
        await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
        for _ in range(300):
            await put(wire, s.model(other), b"x")
        last = await bus.log.last_sequence(run)
        headers: Headers = [
            (MSG_ID.encode(), b"2"),
            (EXPECTED_SEQUENCE.encode(), b"%d" % last),
            (EXPECTED_SUBJECT.encode(), s.run_all(run).encode()),
            (BEFORE.encode(), before),
        ]
        await put(wire, s.result(run, "p"), bus_bytes(finished(0)), headers)
        assert [it.event for it in await bus.log.read(run)] == [started(), finished(0)]

    told(nats_server, story)


def test_an_event_cannot_name_those_of_another_run(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        other, run, s = new_run(), new_run(), bus.subjects
        foreign = await bus.log.append(other, s.start(other, "p"), started(), after=0, msg_id="0")
        first = await bus.log.append(run, s.start(run, "p"), started(), after=0, msg_id="1")
        for _ in range(300):
            await put(wire, s.model(other), b"x")
        headers: Headers = [
            (MSG_ID.encode(), b"2"),
            (EXPECTED_SEQUENCE.encode(), b"%d" % first),
            (EXPECTED_SUBJECT.encode(), s.run_all(run).encode()),
            (BEFORE.encode(), b"%d" % foreign),
        ]
        await put(wire, s.result(run, "p"), bus_bytes(finished(0)), headers)
        assert [it.event for it in await bus.log.read(run)] == [started(), finished(0)]

    told(nats_server, story)


def bus_bytes(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def test_strays_do_not_lock_a_sandbox(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        subject = bus.subjects.sandbox_state("box")
        first = await bus.sandboxes.append("box", SandboxPaused(generation=1), after=0)
        for data in GARBAGE:
            await put(wire, subject, data)
        assert [it.event for it in await bus.sandboxes.read("box")] == [SandboxPaused(generation=1)]
        second = await bus.sandboxes.append("box", SandboxPaused(generation=1), after=first)
        await put(wire, subject, b"{")
        with pytest.raises(SandboxMovedOn):
            await bus.sandboxes.append("box", SandboxStopped(generation=1), after=first)
        assert len(await bus.sandboxes.read("box")) == 2
        assert second > first
        await put(wire, bus.subjects.sandbox_reply("box", "op"), b"{")
        assert not await bus.sandboxes.replied("box", "op")
        await bus.sandboxes.reply("box", SandboxReply(op="op"))
        assert await bus.sandboxes.replied("box", "op")
        await put(wire, bus.subjects.sandbox_reply("box", "op"), b"{")  # else it is done twice
        assert await bus.sandboxes.replied("box", "op")

    told(nats_server, story)


def test_a_stray_snapshot_hides_no_history(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        item = Raw(b'{"role":"user","content":"hi"}')
        subject = bus.subjects.session_snapshot("talk")
        snapshot = ConversationCompacted(through=0, history=[item], waiting=[], left=[])
        await bus.connection.publish(subject, bus_bytes(snapshot), msg_id="1")
        for data in GARBAGE:
            await put(wire, subject, data)
            await put(wire, bus.subjects.session_log("talk"), data)
        assert (await bus.conversations.read("talk")).history == [item]
        await bus.conversations.add("talk", [item])
        assert (await bus.conversations.read("talk")).history == [item, item]

    told(nats_server, story)


def test_workers_answer_only_where_nothing_is_stored(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        await bus.presence.announce("c")
        await bus.connection.flush()
        subject = bus.subjects.alive("c").encode()
        await wire.send(subject, b"", [])
        await wire.send(subject, b"", [], bus.subjects.done("victim").encode())
        assert await bus.presence.is_served("c")  # answered after those
        await bus.connection.flush()
        assert await bus.log.end() == 0

    told(nats_server, story)


@pytest.mark.parametrize("odd", ["a\x0bb", "\x0c", "\udcff", "\x1c", "x" * 3900])
def test_no_subject_ends_a_connection(nats_server: NatsServer, odd: str) -> None:
    """Neither that of a message nor that of the answer to it."""

    async def story(bus: Bus, wire: Wire) -> None:
        seen: list[str] = []
        await bus.connection.subscribe("sandstream.run.>", lambda it: seen.append(it.subject))
        await bus.connection.flush()
        await put(wire, f"sandstream.run.{odd}.cancel", b"{}", [(b"X", b"1")])
        await put(wire, f"sandstream.run.{odd}.cancel", b"{}")
        reply = f"x.{odd}".encode("utf-8", "surrogateescape")
        await wire.send(b"sandstream.run.a.cancel", b"{}", [], reply)
        await put(wire, "sandstream.run.b.cancel", b"{}")
        await until(lambda: "sandstream.run.b.cancel" in seen)
        assert len(seen) == 4
        assert bus.connection.reconnects == 0
        assert len(await bus.log.stored(new_run())) == 0

    told(nats_server, story)


def test_a_dropped_message_is_settled_and_says_why(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        async def handle(delivery: Delivery) -> None:
            raise Drop("means nothing")

        spec = ConsumerSpec(name="test", filters=[bus.subjects.call("*", "p")])
        worker = Worker(bus, spec, handle)
        await worker.start()
        run = new_run()
        ack = await bus.log.send(bus.subjects.call(run, "p"), call(0), msg_id="1")
        await eventually(lambda: is_idle(bus, "test"), what="settled")
        await worker.stop()
        assert await bus.parking.list() == []
        (record,) = [it for it in caplog.records if it.message == "message dropped"]
        assert vars(record)["reason"] == "means nothing"
        assert (vars(record)["consumer"], vars(record)["sequence"]) == ("test", ack.seq)

    with caplog.at_level(logging.DEBUG, "sandstream_bus"):
        told(nats_server, story)


def test_the_index_of_open_runs_knows_no_wildcards(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        await put(wire, bus.subjects.open("*"), b"{}")
        await put(wire, bus.subjects.open("real"), b"{}")
        assert [it.run for it in await bus.open_runs.all()] == ["real"]
        assert await bus.open_runs.has("real")
        assert not await bus.open_runs.has("other")

    told(nats_server, story)
