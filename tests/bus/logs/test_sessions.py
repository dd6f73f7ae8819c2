"""Requests, states and turns of sessions, on a real server."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from sandstream_bus.errors import InvalidSubject, PayloadTooLarge, UndecodableMessage
from sandstream_bus.logs.sessions import (
    SessionMovedOn,
    SessionRefused,
    counted_turns,
    decode_request,
)
from sandstream_bus.nats.fresh import fresh_many
from sandstream_bus.wire.message_base import ErrorInfo
from sandstream_bus.wire.sessions import (
    CreateSession,
    PendingSwitch,
    Refusal,
    RenameSession,
    SendMessage,
    SessionState,
    SessionTurn,
)
from support.nats_server import NatsServer, open_bus


def test_requests_are_read_in_the_order_of_the_stream(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            sessions = bus.sessions
            first = await sessions.request("alice=blog", CreateSession(agent="coder"))
            await sessions.request("alice=other", SendMessage(input="not here"))
            second = await sessions.request("alice=blog", SendMessage(input="a"), msg_id="mine")
            again = await sessions.request("alice=blog", SendMessage(input="a"), msg_id="mine")
            assert again == second
            third = await sessions.request("alice=blog", RenameSession(title="B"))
            await sessions.request("alice=blog", SendMessage(input="foreign"), user="bob")
            found = await sessions.unapplied("alice=blog", after=0)
            assert [(it.sequence, it.kind, it.user) for it in found] == [
                (first, "create", "alice"),
                (second, "send", "alice"),
                (third, "rename", "alice"),
            ]
            assert found[1].request == SendMessage(input="a")
            later = await sessions.unapplied("alice=blog", after=second)
            assert [it.sequence for it in later] == [third]

    asyncio.run(main())


def test_a_request_that_cannot_be_read_is_told_and_not_lost(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            for kind, data in (("send", b'{"inptu":"a"}'), ("sned", b"{}"), ("send", b"\xff")):
                subject = bus.subjects.ask_session("shared", "blog", kind)
                await bus.connection.publish(subject, data, msg_id=f"{kind}:{data!r}")
            found = await bus.sessions.unapplied("blog", after=0)
            assert [it.request for it in found] == [None] * 3
            assert "inptu" in found[0].why
            assert "it knows create, send" in found[1].why

    asyncio.run(main())


def test_states_are_replaced_only_by_those_who_know_the_last(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            sessions = bus.sessions
            assert await sessions.read("blog") == (None, 0)
            state = SessionState(session="blog", agent="coder")
            at = await sessions.write(state, after=0)
            with pytest.raises(SessionMovedOn):
                await sessions.write(state, after=0)
            assert await sessions.read("blog") == (state, at)
            for name in ("b", "a", "alice=c"):
                await sessions.write(SessionState(session=name), after=0)
            listed = [it.session for it in await sessions.states()]
            assert listed == ["blog", "b", "a", "alice=c"]

    asyncio.run(main())


def test_a_message_of_the_server_hides_no_state(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            state = SessionState(session="blog", title="kept")
            await bus.sessions.write(state, after=0)
            stray = bus.subjects.session_state("blog")
            await bus.connection.request(stray, b'{"stream":"X","seq":1}')
            found = await bus.sessions.read("blog")
            assert found.state == state
            renamed = msgspec.structs.replace(state, title="next")
            await bus.sessions.write(renamed, after=found.sequence)
            assert [it.title for it in await bus.sessions.states()] == ["next"]

    asyncio.run(main())


def test_a_caller_waits_until_its_request_is_done(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            sessions = bus.sessions
            waiting = asyncio.ensure_future(sessions.applied("blog", 5))
            state = SessionState(session="blog", through=4)
            at = await sessions.write(state, after=0)
            pending = PendingSwitch(request=5, generation=2, provider="docker")
            state = msgspec.structs.replace(state, through=6, switch=pending)
            at = await sessions.write(state, after=at)
            await asyncio.sleep(0.1)
            assert not waiting.done()
            done = msgspec.structs.replace(state, switch=None)
            at = await sessions.write(done, after=at)
            assert await waiting == done
            no = Refusal(request=7, kind="send", error=ErrorInfo(code="x", message="full"))
            await sessions.write(msgspec.structs.replace(done, through=7, refused=[no]), after=at)
            with pytest.raises(SessionRefused, match="full") as caught:
                await sessions.applied("blog", 7)
            assert caught.value.info.code == "x"
            with pytest.raises(TimeoutError):
                await sessions.applied("blog", 8, timeout_s=0.1)

    asyncio.run(main())


def test_a_turn_has_one_record(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            sessions = bus.sessions
            for number, after in ((1, 0), (2, 1), (3, 1)):
                turn = SessionTurn(number=number, after=after, run="r", status="completed")
                await sessions.record("blog", turn)
            other = SessionTurn(number=1, after=0, run="r", status="failed")
            await sessions.record("blog", other)
            first = await sessions.turn("blog", 1)
            assert first is not None
            assert first.status == "completed"
            assert await sessions.turn("blog", 4) is None
            turns = await sessions.turns("blog")
            assert [it.number for it in turns] == [1, 2, 3]
            assert [it.number for it in counted_turns(turns, 3)] == [1, 3]

    asyncio.run(main())


def test_a_message_of_the_server_takes_no_place_of_a_turn(nats_server: NatsServer) -> None:
    """A reader may name any subject for an answer of the server, and the log stores it there."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            record = SessionTurn(number=1, after=0, run="r", status="completed", said="Done.")
            subject = bus.subjects.session_turn("blog", 1)
            for _ in range(2):  # before the record, and after it
                await bus.connection.request(subject, b'{"stream":"X","seq":1}')
                await bus.sessions.record("blog", record)
                assert await bus.sessions.turn("blog", 1) == record
                assert await bus.sessions.turns("blog") == [record]
            stored = await fresh_many(bus.connection, bus.topology.log, subject, after=0)
            assert [bool(it.msg_id) for it in stored] == [False, True, False]

    asyncio.run(main())


def test_bad_names_and_sizes_are_refused_at_the_edge(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            for name in ("a.b", "", "x" * 81, "blog_t1-session", "alice=a=b", "*", "task-3"):
                with pytest.raises(InvalidSubject):
                    await bus.sessions.request(name, SendMessage(input="a"))
            with pytest.raises(PayloadTooLarge):
                await bus.sessions.request("blog", SendMessage(input="x" * 2**20))

    asyncio.run(main())


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UndecodableMessage, match="does not know 'explode'"):
        decode_request("explode", b"{}")
