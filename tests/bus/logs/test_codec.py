"""Bytes and messages: unknown is not broken, and big messages travel by reference."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec import Raw
from sandstream_bus.errors import ObjectMissing, PayloadTooLarge, UndecodableMessage, UnknownMessage
from sandstream_bus.logs.codec import (
    INLINE_LIMIT_BYTES,
    MESSAGE_LIMIT_BYTES,
    peek_type,
)
from sandstream_bus.wire.messages import AgentRegistered, CallFinished, Claim, Task
from support.nats_server import NatsServer, open_bus
from support.runs import finished, new_run, started


def test_a_task_needs_only_an_input(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            task = await bus.codec.task(b'{"input":"hi"}')
            assert task.input == "hi"
            assert task.max_turns is msgspec.UNSET
            endless = await bus.codec.task(b'{"input":"hi","max_turns":null}')
            assert endless.max_turns is None
            for body in (b"", b"{", b"[]", b"{}", b'{"input":3}', b"\xff\xfe", b"null"):
                with pytest.raises(UndecodableMessage):
                    await bus.codec.task(body)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("task", "field"),
    [
        (b'{"input":"hi","max_trns":3}', "max_trns"),
        (b'{"input":"hi","budget":{"tokens":5,"secnds":9}}', "secnds"),
    ],
)
def test_a_misspelt_field_of_a_task_is_refused(
    nats_server: NatsServer, task: bytes, field: str
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            with pytest.raises(UndecodableMessage, match=f"unknown field `{field}`"):
                await bus.codec.task(task)

    asyncio.run(main())


def test_a_task_is_utf_8_through_and_through(nats_server: NatsServer) -> None:
    """Its items go to the model as they are."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            with pytest.raises(UndecodableMessage, match="not valid UTF-8"):
                await bus.codec.task(b'{"input":[{"role":"user","content":"\xed\xa0\x80"}]}')

    asyncio.run(main())


def test_a_big_task_goes_by_reference(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            task = Task(input="x" * 2_000_000)
            data = await bus.codec.encode_task(task)
            assert peek_type(data) == "claim"
            assert await bus.codec.task(data) == task
            with pytest.raises(UndecodableMessage):  # a user's task names no object
                await bus.codec.task(data, may_claim=False)

    asyncio.run(main())


def test_peek_type_never_raises() -> None:
    assert peek_type(b'{"a":[1,2],"type":"run.done"}') == "run.done"
    for odd in (b"", b"{", b"[]", b'{"type":7}', b"{}", b"\xff"):
        assert peek_type(odd) == ""


def test_an_unknown_type_is_told_from_a_broken_message(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            decode = bus.codec.run_event
            with pytest.raises(UnknownMessage, match=r"moon\.landed"):
                await decode(b'{"type":"moon.landed","by":"us"}')
            with pytest.raises(UnknownMessage):  # known, but not in a run's log
                await decode(b'{"type":"parked"}')
            for broken in (
                b'{"type":"run.done"}',
                b'{"type":"run.done","status":"bored","agent":"a","turns":1,"usage":{}}',
                b'{"type":7}',
                b"{}",
                b"[]",
                b"",
                b"\xff",
                b'{"type":"run.done"',
            ):
                with pytest.raises(UndecodableMessage):
                    await decode(broken)

    asyncio.run(main())


@pytest.mark.parametrize("size", [INLINE_LIMIT_BYTES, 1_500_000])
def test_a_big_message_goes_through_the_object_store_and_comes_back(
    nats_server: NatsServer, size: int
) -> None:
    big = finished(0, msgspec.json.encode("x" * size))

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as reader:
            data = await bus.codec.encode(big)
            claim = msgspec.json.decode(data, type=Claim)
            assert claim.of == "call.finished"
            assert claim.size_bytes == len(msgspec.json.encode(big))
            assert await reader.codec.run_event(data) == big
            run = new_run()
            await bus.log.append(run, bus.subjects.result(run, "p"), big, after=0, msg_id="m")
            [read] = await reader.log.read(run)
            assert read.event == big
            assert len(read.stored.data) < 500

    asyncio.run(main())


def test_the_biggest_inline_message_stays_inline(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            room = INLINE_LIMIT_BYTES - len(await bus.codec.encode(finished(0, b'""')))
            fits = finished(0, b'"%s"' % (b"x" * room))
            data = await bus.codec.encode(fits)
            assert len(data) == INLINE_LIMIT_BYTES
            assert peek_type(data) == "call.finished"
            over = await bus.codec.encode(finished(0, b'"%s"' % (b"x" * (room + 1))))
            assert peek_type(over) == "claim"

    asyncio.run(main())


def test_above_the_limit_the_error_has_both_numbers(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            monster = finished(0, b'"%s"' % (b"x" * MESSAGE_LIMIT_BYTES))
            with pytest.raises(PayloadTooLarge) as caught:
                await bus.codec.encode(monster)
            assert caught.value.limit_bytes == MESSAGE_LIMIT_BYTES
            assert caught.value.size_bytes > MESSAGE_LIMIT_BYTES
            text = str(caught.value)
            assert str(MESSAGE_LIMIT_BYTES) in text
            assert str(caught.value.size_bytes) in text
            assert "call.finished" in text

    asyncio.run(main())


def test_a_claim_without_its_object_says_so(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            claim = msgspec.json.encode(Claim(of="run.done", digest="0" * 64, size_bytes=1))
            with pytest.raises(ObjectMissing, match="0000"):
                await bus.codec.run_event(claim)

    asyncio.run(main())


@pytest.mark.parametrize("digest", ["", "x" * 9000, "a.b", "ß", "../x"])
def test_a_hostile_claim_is_an_error_and_harms_nobody(nats_server: NatsServer, digest: str) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            claim = msgspec.json.encode(Claim(of="run.done", digest=digest, size_bytes=1))
            async with asyncio.timeout(5):
                with pytest.raises((ObjectMissing, UndecodableMessage)):
                    await bus.codec.run_event(claim)
            assert await bus.objects.get(await bus.objects.put(b"still works")) == b"still works"

    asyncio.run(main())


def test_a_claim_cannot_stand_for_a_claim(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            inner = msgspec.json.encode(Claim(of="claim", digest="0" * 64, size_bytes=1))
            digest = await bus.objects.put(inner)
            outer = msgspec.json.encode(Claim(of="run.done", digest=digest, size_bytes=1))
            with pytest.raises(UndecodableMessage):
                await bus.codec.run_event(outer)

    asyncio.run(main())


def test_a_big_registration_comes_back(nats_server: NatsServer) -> None:
    graph = started().graph
    agent = msgspec.structs.replace(graph.agents["a"], instructions="x" * 300_000)
    offered = AgentRegistered(
        graph=msgspec.structs.replace(graph, agents={"a": agent}), pool="main"
    )

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await bus.agents.register(offered, instance="1")
            assert await bus.agents.find("a") == offered
            assert await bus.agents.find("b") is None
            assert await bus.agents.names() == ["a"]

    asyncio.run(main())


def test_raw_json_is_carried_byte_for_byte(nats_server: NatsServer) -> None:
    raw = b'{"n":1.10,"big":123456789012345678901234567890,"s":"\\u00e9"}'

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            message = CallFinished(call="c", kind="tool", turn=1, output=Raw(raw))
            back = await bus.codec.run_event(await bus.codec.encode(message))
            assert isinstance(back, CallFinished)
            assert bytes(back.output) == raw

    asyncio.run(main())
