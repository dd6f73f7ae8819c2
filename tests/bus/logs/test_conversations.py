"""Conversations on the bus: one run at a time, in order, and nothing said is lost or twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.errors import InvalidSubject, UnknownMessage
from sandstream_bus.logs import conversations as module
from sandstream_bus.logs.conversations import (
    LEFT_REMEMBERED,
    Conversation,
    ConversationBusy,
    InvalidItem,
)
from sandstream_bus.nats.direct import stale_last_each, stale_many
from sandstream_bus.wire.conversations import (
    ConversationAdded,
    ConversationCleared,
    ConversationCompacted,
    ConversationEvent,
    ConversationJoined,
    ConversationLeft,
    ConversationPopped,
)
from sandstream_bus.wire.subjects import session_of, session_token
from support.nats_server import NatsServer, open_bus

ODD_IDS = ["ünï/cødé *.>", "x" * 300, "ü" * 128, "=sha256-", "a b\n\t\0", ".", "…log", "=2A"]


def said(text: str) -> Raw:
    return Raw(json.dumps({"role": "user", "content": text}).encode())


def texts(items: list[Raw]) -> list[str]:
    return [json.loads(bytes(item))["content"] for item in items]


def fold(*events: ConversationEvent) -> Conversation:
    conversation = Conversation("c")
    for sequence, event in enumerate(events, start=1):
        conversation.apply(sequence, event)
    return conversation


async def log_of(bus: Bus, session: str) -> list[ConversationEvent]:
    subject = bus.subjects.session_log(session)
    found = await stale_many(bus.connection, bus.topology.log, subject, after=0)
    return [await bus.codec.conversation_event(stored.data) for stored in found]


# --- the fold -------------------------------------------------------------------------------------


def join(run: str, pool: str = "p") -> ConversationJoined:
    return ConversationJoined(run=run, pool=pool)


def left(run: str, *items: str) -> ConversationLeft:
    return ConversationLeft(run=run, items=[said(item) for item in items])


def test_the_first_that_joined_has_it_and_the_others_wait_in_order() -> None:
    conversation = fold(join("a"), join("b"), join("c"), left("a", "1"), left("c"))
    assert [it.run for it in conversation.waiting] == ["b"]
    assert conversation.holder is not None
    assert conversation.is_held_by("b")
    assert conversation.is_busy
    assert list(conversation.left) == ["a", "c"]
    assert texts(conversation.history) == ["1"]
    assert conversation.last_sequence == 5


def test_repeated_events_of_a_run_change_nothing() -> None:
    once = fold(join("a"), join("b"), left("a", "1"))
    twice = fold(join("a"), join("b"), join("b"), left("a", "1"), left("a", "1"), join("a"))
    assert twice.waiting == once.waiting
    assert twice.history == once.history
    assert twice.left == once.left


def test_a_run_that_moves_keeps_its_place() -> None:
    conversation = fold(join("a"), join("b"), join("a", "other"))
    assert [(it.run, it.pool) for it in conversation.waiting] == [("a", "other"), ("b", "p")]


def test_items_are_added_taken_back_and_forgotten() -> None:
    two = ConversationAdded(items=[said("1"), said("2")])
    assert texts(fold(two, ConversationPopped()).history) == ["1"]
    assert fold(ConversationPopped(), two, ConversationCleared()).history == []


def test_a_snapshot_says_the_same_as_the_events() -> None:
    events: list[ConversationEvent] = [join("a"), join("b"), left("a", "1", "2"), join("c")]
    whole = fold(*events, left("b", "3"))
    halfway = Conversation("c", fold(*events).snapshot())
    halfway.apply(5, left("b", "3"))
    assert halfway.snapshot() == whole.snapshot()
    assert (whole.events, halfway.events) == (5, 1)


def test_a_snapshot_does_not_grow_with_every_run_there_ever_was() -> None:
    runs = [f"r{n}" for n in range(LEFT_REMEMBERED + 5)]
    conversation = fold(*(event for run in runs for event in (join(run), left(run))))
    assert conversation.snapshot().left == runs[5:]


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ODD_IDS)
def test_any_id_becomes_a_token_that_stands_for_it(session: str) -> None:
    token = session_token(session)
    assert len(token) <= 128
    assert not set(token) & set(" .*>\n\t\0/")
    assert session_token(session_of(token)) == token
    if len(session) < 100:
        assert session_of(token) == session


def test_no_two_ids_share_a_token() -> None:
    ids = [*ODD_IDS, "x" * 301, "ü" * 129, "=sha256-" + "0" * 64, "=2a", "*"]
    assert len({session_token(session) for session in ids}) == len(ids)


@pytest.mark.parametrize("session", ["", "a\ud800", "\udcff" * 300])
def test_an_id_that_is_no_text_is_refused(session: str) -> None:
    with pytest.raises(InvalidSubject, match="conversation"):
        session_token(session)


# --- on a server ----------------------------------------------------------------------------------


def test_odd_ids_are_conversations_of_their_own(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            for session in ODD_IDS:
                await bus.conversations.add(session, [said(session)])
            for session in ODD_IDS:
                assert texts((await bus.conversations.read(session)).history) == [session]
            names = await bus.conversations.names()
            assert len(names) == len(ODD_IDS)
            assert {"ünï/cødé *.>", ".", "=2A"} <= set(names)
            found = [texts((await bus.conversations.read(name)).history)[0] for name in names]
            assert sorted(found) == sorted(ODD_IDS)

    asyncio.run(main())


def test_there_is_nothing_in_a_conversation_that_nobody_began(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            conversation = await bus.conversations.read("new")
            assert (conversation.history, conversation.is_busy) == ([], False)
            assert await bus.conversations.pop("new") is None
            await bus.conversations.clear("new")
            await bus.conversations.add("new", [])
            await bus.conversations.leave("new", "nobody")
            assert await bus.conversations.names() == []

    asyncio.run(main())


def test_twenty_runs_have_it_one_at_a_time_and_each_once(nats_server: NatsServer) -> None:
    """Each run leaves as soon as it is told that it is its turn, as a harness would."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as other:
            runs = [f"r{n}" for n in range(20)]
            turn = {run: asyncio.Event() for run in runs}
            having: set[str] = set()
            order: list[str] = []

            async def live(number: int, run: str) -> None:
                talks = (bus, other)[number % 2].conversations
                if (await talks.join("c", run, f"pool-{run}")).is_held_by(run):
                    turn[run].set()
                await turn[run].wait()
                assert not having, "two runs have the conversation"
                having.add(run)
                history = (await talks.read("c")).history
                assert texts(history) == [f"{it} {n}" for it in order for n in (1, 2)]
                order.append(run)
                having.discard(run)
                after = await talks.leave("c", run, [said(f"{run} 1"), said(f"{run} 2")], "ok")
                if after.holder is not None:
                    assert after.holder.pool == f"pool-{after.holder.run}"
                    turn[after.holder.run].set()

            await asyncio.gather(*(live(n, run) for n, run in enumerate(runs)))
            assert sorted(order) == sorted(runs)
            events = await log_of(bus, "c")
            assert [e.run for e in events if isinstance(e, ConversationJoined)] == order
            assert [e.run for e in events if isinstance(e, ConversationLeft)] == order
            assert len(events) == 40
            assert not (await bus.conversations.read("c")).is_busy

    asyncio.run(main())


def test_calls_of_a_run_may_be_repeated(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            talks = bus.conversations
            joined = await asyncio.gather(*(talks.join("c", "a", "p") for _ in range(10)))
            assert all(it.is_held_by("a") for it in joined)
            await asyncio.gather(*(talks.join("c", "b", "p") for _ in range(10)))
            leaving = [talks.leave("c", "a", [said("1")], "completed") for _ in range(10)]
            for conversation in await asyncio.gather(*leaving):
                assert conversation.is_held_by("b")
                assert texts(conversation.history) == ["1"]
            again = await talks.join("c", "a", "p")
            assert again.place_of("a") is None
            assert "a" in again.left
            assert len(await log_of(bus, "c")) == 3

    asyncio.run(main())


def test_a_refused_run_leaves_no_trace(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            talks = bus.conversations
            outcomes = await asyncio.gather(
                *(talks.join("c", f"r{n}", "p", "refuse") for n in range(20)),
                return_exceptions=True,
            )
            won = [it for it in outcomes if isinstance(it, Conversation)]
            lost = [it for it in outcomes if isinstance(it, ConversationBusy)]
            assert (len(won), len(lost)) == (1, 19)
            assert won[0].holder is not None
            assert {it.holder for it in lost} == {won[0].holder.run}
            assert lost[0].code == "conversation.busy"
            assert len(await log_of(bus, "c")) == 1
            again = await talks.join("c", won[0].holder.run, "p", "refuse")
            assert again.is_held_by(won[0].holder.run)
            await talks.leave("c", won[0].holder.run)
            assert (await talks.join("c", "late", "p", "refuse")).is_held_by("late")

    asyncio.run(main())


def test_while_a_run_has_it_nobody_else_changes_it(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            talks = bus.conversations
            await talks.add("c", [said("before")], by="me")
            await talks.join("c", "a", "p")
            await talks.join("c", "b", "p")
            with pytest.raises(ConversationBusy, match="'c' is busy with run a: it cannot be cle"):
                await talks.clear("c")
            with pytest.raises(ConversationBusy, match="nothing can be added"):
                await talks.add("c", [said("x")])
            with pytest.raises(ConversationBusy, match="nothing can be taken back"):
                await talks.pop("c")
            with pytest.raises(ConversationBusy, match="run b cannot add to it out of turn"):
                await talks.leave("c", "b", [said("x")])
            await talks.leave("c", "b", status="cancelled")  # gives up waiting
            assert texts((await talks.leave("c", "a", [said("a")])).history) == ["before", "a"]
            assert texts([await talks.pop("c") or said("")]) == ["a"]
            await talks.clear("c")
            assert (await talks.read("c")).history == []

    asyncio.run(main())


def test_changes_from_outside_are_made_one_after_the_other(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as other:
            both = (bus.conversations, other.conversations)
            await asyncio.gather(
                *(both[n % 2].add("c", [said(f"{n}"), said(f"{n}'")]) for n in range(12))
            )
            history = texts((await both[0].read("c")).history)
            assert sorted(history[::2], key=int) == [f"{n}" for n in range(12)]
            assert history[1::2] == [f"{it}'" for it in history[::2]]
            popped = await asyncio.gather(*(both[n % 2].pop("c") for n in range(30)))
            taken = [it for it in popped if it is not None]
            assert sorted(texts(taken)) == sorted(history)

    asyncio.run(main())


@pytest.mark.parametrize(
    "poison",
    [
        *(b'{"role": "user", "content": ', b"nonsense", b"", b"[]", b'"text"', b"{}}"),
        *(b'{"a": "\xff"}', b'{"a": "\\ud800"}', b'{"a": NaN}', b'{"a": ' + b"[" * 2000),
    ],
    ids=range(10),
)
def test_what_is_no_json_object_is_refused_at_the_edge(
    nats_server: NatsServer, poison: bytes
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            items = [said("fine"), Raw(poison)]
            with pytest.raises(InvalidItem, match=r"item 1 .* JSON object"):
                await bus.conversations.add("c", items)
            await bus.conversations.join("c", "a", "p")
            with pytest.raises(InvalidItem, match=r"item 1 .* JSON object"):
                await bus.conversations.leave("c", "a", items)
            assert (await bus.conversations.leave("c", "a", items[:1])).history == items[:1]

    asyncio.run(main())


def test_a_strangers_message_does_not_cost_the_conversation(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            subject = bus.subjects.session_log("c")
            await bus.conversations.add("c", [said("1")])
            for poison in (
                b"nonsense",
                b'{"type": "conversation.left", "run": "\xff"}',
                b"[" * 2000,
            ):
                await bus.connection.publish(subject, poison, msg_id=poison[:5].hex())
            await bus.conversations.add("c", [said("2")])
            assert texts((await bus.conversations.read("c")).history) == ["1", "2"]
            await bus.connection.publish(subject, b'{"type":"conversation.future"}', msg_id="y")
            with pytest.raises(UnknownMessage, match=r"conversation\.future"):
                await bus.conversations.read("c")

    asyncio.run(main())


def test_big_histories_are_read_from_the_last_snapshot(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            talks = bus.conversations
            talks.compact_after = 10
            for n in range(26):
                await talks.join("c", f"r{n}", "p")
                await talks.leave("c", f"r{n}", [said(f"{n}")])
            await talks.join("c", "last", "p")
            conversation = await talks.read("c")
            assert texts(conversation.history) == [f"{n}" for n in range(26)]
            assert conversation.is_held_by("last")
            assert conversation.events == 53 - 50
            assert len(conversation.left) == 26
            (stored,) = await stale_last_each(
                bus.connection, bus.topology.log, [bus.subjects.session_snapshot("c")]
            )
            snapshot = await bus.codec.conversation_snapshot(stored.data)
            assert isinstance(snapshot, ConversationCompacted)
            assert len(snapshot.history) == 25
            assert len(await log_of(bus, "c")) == 53
            assert await talks.names() == ["c"]

    asyncio.run(main())


def test_an_old_conversation_that_is_used_is_renewed(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its beginning would expire before its end."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await bus.conversations.add("c", [said("1")])
            await bus.conversations.add("c", [said("2")])
            assert (await bus.conversations.read("c")).events == 2
            monkeypatch.setattr(module, "COMPACT_AGE_S", -1.0)
            await bus.conversations.add("c", [said("3")])
            conversation = await bus.conversations.read("c")
            assert (conversation.events, texts(conversation.history)) == (0, ["1", "2", "3"])

    asyncio.run(main())


def test_what_is_too_big_for_the_log_goes_by_reference(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            bus.conversations.compact_after = 2
            big = said("x" * 300_000)
            await bus.conversations.add("c", [big])
            await bus.conversations.add("c", [big])
            conversation = await bus.conversations.read("c")
            assert (conversation.events, conversation.history) == (0, [big, big])

    asyncio.run(main())


def test_a_change_waits_out_a_server_restart(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await bus.conversations.join("c", "a", "p")
            nats_server.kill()
            leaving: asyncio.Future[Any] = asyncio.ensure_future(
                bus.conversations.leave("c", "a", [said("1")])
            )
            await asyncio.to_thread(nats_server.start)
            assert texts((await leaving).history) == ["1"]
            assert len(await log_of(bus, "c")) == 2

    asyncio.run(main())
