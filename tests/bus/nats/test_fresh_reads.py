"""A replica that lags cannot mislead anybody who decides something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.errors import LogBehind
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.nats.fresh import (
    fresh_last_each,
    fresh_many,
    leader_reaching,
    many_reaching,
)
from sandstream_bus.wire.memories import MemoryState
from sandstream_bus.wire.messages import AgentRegistered, GraphSpec
from sandstream_bus.wire.sandboxes import SandboxStopped
from sandstream_bus.wire.specs import AgentSpec
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import call, done, new_run, started
from support.servers.lagging import add_lagging_replicas, stale_answers

TRIES = 30
"""Each direct get goes to the lagging replica with probability one half."""


async def write_run(bus: Bus, calls: int = 3) -> tuple[RunId, list[int]]:
    run = new_run()
    subject = bus.subjects.start(run, "main")
    at = [await bus.log.append(run, subject, started(), after=0, msg_id=f"{run}:start")]
    for number in range(calls):
        sent = await bus.log.send(
            bus.subjects.call(run, "h"), call(number), msg_id=f"{run}:{number}"
        )
        at.append(sent.seq)
    return run, at


def with_lagging_replica(nats_server: NatsServer, story: Callable[[Bus], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await add_lagging_replicas(bus)
            await story(bus)

    asyncio.run(main())


def test_a_direct_get_may_miss_what_is_stored(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, _ = await write_run(bus)
        subject = bus.subjects.start(run, "main")
        missed = await stale_answers(bus, bus.topology.log, subject)
        assert 0 < missed < 60  # else the other tests here prove nothing

    with_lagging_replica(nats_server, story)


def test_the_log_of_a_run_is_read_whole(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, at = await write_run(bus)
        for _ in range(TRIES):
            assert [it.sequence for it in await bus.log.read(run)] == at
            assert [it.sequence for it in await bus.log.read(run, after=at[1])] == at[2:]
            assert await bus.log.last_sequence(run) == at[-1]
            assert await bus.log.first_subject(bus.subjects.start(run, "*"))
            last = await bus.log.last(bus.subjects.call(run, "h"))
            assert last is not None and last.sequence == at[-1]

    with_lagging_replica(nats_server, story)


def test_a_read_reaches_what_the_caller_knows_of(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, at = await write_run(bus)
        for _ in range(TRIES):
            found = await bus.log.read_reaching(run, after=0, upto=at[2])
            assert [it.sequence for it in found][:3] == at[:3]

    with_lagging_replica(nats_server, story)


def test_a_sequence_that_no_replica_has_is_an_error_and_not_silence(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandstream_bus.nats.fresh._LEADER_PATIENCE_S", 0.3)

    async def story(bus: Bus) -> None:
        run, at = await write_run(bus)
        with pytest.raises(LogBehind, match="does not return the message"):
            await bus.log.read_reaching(run, after=0, upto=at[-1] + 1)

    with_lagging_replica(nats_server, story)


def test_a_leader_that_is_behind_a_delivered_message_is_waited_for(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandstream_bus.nats.fresh._LEADER_PATIENCE_S", 0.3)

    async def story(bus: Bus) -> None:
        _, at = await write_run(bus)
        connection, log = bus.connection, bus.topology.log
        await leader_reaching(connection, log, at[-1])
        with pytest.raises(LogBehind, match="a consumer has delivered it"):
            await leader_reaching(connection, log, at[-1] + 1000)

    with_lagging_replica(nats_server, story)


def test_an_expired_message_is_not_waited_for(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        run, at = await write_run(bus)
        purge = b'{"seq": %d}' % (at[-1] + 1)  # as if their age were over
        await bus.connection.request(f"$JS.API.STREAM.PURGE.{bus.topology.log}", purge)
        assert await bus.log.read_reaching(run, after=0, upto=at[-1]) == []

    with_lagging_replica(nats_server, story)


def test_a_conflict_comes_with_the_news_that_caused_it(nats_server: NatsServer) -> None:
    from sandstream_bus.logs.runs import Conflict

    async def story(bus: Bus) -> None:
        run, at = await write_run(bus)
        for number in range(TRIES):
            with pytest.raises(Conflict) as caught:
                await bus.log.append(
                    run, bus.subjects.done(run), done(), after=at[0], msg_id=f"{number}"
                )
            assert [it.sequence for it in caught.value.news] == at[1:]

    with_lagging_replica(nats_server, story)


def test_lookups_find_what_is_there(nats_server: NatsServer) -> None:
    agent = AgentRegistered(
        graph=GraphSpec(start="a", agents={"a": AgentSpec(name="a", host="h", model="m")}),
        pool="main",
    )

    async def remember(state: MemoryState) -> MemoryState:
        return MemoryState(scope=state.scope, forgotten=["r"])

    async def story(bus: Bus) -> None:
        await bus.agents.register(agent, instance="1")
        await bus.conversations.add("talk", [Raw(b'{"role":"user","content":"hi"}')])
        await bus.sandboxes.append("box", SandboxStopped(generation=1), after=0)
        await bus.memories.change("scope", remember)
        digest = await bus.objects.put(b"x" * 1000)
        for _ in range(TRIES):
            assert await bus.agents.find("a") is not None
            assert await bus.agents.names() == ["a"]
            assert len((await bus.conversations.read("talk")).history) == 1
            assert len(await bus.sandboxes.read("box")) == 1
            assert await bus.sandboxes.names() == ["box"]
            assert (await bus.memories.read("scope")).sequence
            assert await bus.memories.scopes() == ["scope"]
            assert len(await bus.objects.get(digest)) == 1000
            assert list(await bus.objects.places([digest])) == [digest]

    with_lagging_replica(nats_server, story)


def test_the_last_of_many_subjects_comes_from_a_replica_that_has_all(
    nats_server: NatsServer,
) -> None:
    async def story(bus: Bus) -> None:
        stream, connection = bus.topology.log, bus.connection
        assert await fresh_last_each(connection, stream, [f"none.{n}" for n in range(20)]) == []
        runs = [await write_run(bus) for _ in range(12)]
        there = [bus.subjects.call(run, "h") for run, _ in runs]
        missing = [bus.subjects.done(run) for run, _ in runs]
        for _ in range(TRIES):
            found = await fresh_last_each(connection, stream, there + missing)
            assert [it.sequence for it in found] == [at[-1] for _, at in runs]
            assert await fresh_last_each(connection, stream, missing) == []

    with_lagging_replica(nats_server, story)


def test_a_follower_misses_no_event_that_was_stored_before_it_listened(
    nats_server: NatsServer,
) -> None:
    async def story(bus: Bus) -> None:
        for _ in range(10):
            run, at = await write_run(bus)
            last = await bus.log.send(bus.subjects.done(run), done(), msg_id=f"{run}:done")
            seen = [it.sequence async for it in bus.follow.run(run)]  # type: ignore[union-attr]
            assert seen == [*at, last.seq]

    with_lagging_replica(nats_server, story)


def test_many_messages_are_read_although_each_page_may_come_from_another_replica(
    nats_server: NatsServer,
) -> None:
    async def story(bus: Bus) -> None:
        run, at = await write_run(bus, calls=700)
        subject = bus.subjects.run_all(run)
        found = await fresh_many(bus.connection, bus.topology.log, subject, after=0)
        assert [it.sequence for it in found] == at
        some = await many_reaching(
            bus.connection, bus.topology.log, subject, after=at[0], upto=at[5], limit=3
        )
        assert [it.sequence for it in some] == at[1:4]

    with_lagging_replica(nats_server, story)


def test_what_people_look_at_may_be_read_from_any_replica(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, at = await write_run(bus)
            subject = bus.subjects.run_all(run)
            stale = await stale_many(bus.connection, bus.topology.log, subject, after=0)
            assert [it.sequence for it in stale] == at
            later = await stale_many(bus.connection, bus.topology.log, subject, after=at[0])
            assert [it.sequence for it in later] == at[1:]

    asyncio.run(main())
