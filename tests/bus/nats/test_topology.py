"""Streams and consumers: who creates them, who may change them, who only looks."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.errors import NotSetUp, StoreFull, StreamsDiffer, TopologyError
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.consumer import Delivery, PullLoop
from sandstream_bus.nats.retention import InvalidRetention, Retention, RetentionChoice, parse_bytes
from sandstream_bus.nats.topology import ConsumerSpec, Topology
from sandstream_bus.setup import lock as setup_lock
from sandstream_bus.setup.installation import verify
from sandstream_bus.setup.lock import SetupLock
from sandstream_bus.setup.stream_plan import Plan, carry_out, make_plan
from sandstream_bus.wire.subjects import Subjects
from support.nats_server import NatsServer, open_bus
from support.runs import call, new_run
from support.waiting import until

DAY_NS = 86_400 * 10**9


async def stream_config(bus: Bus, stream: str) -> dict[str, Any]:
    reply = await bus.connection.request(f"$JS.API.STREAM.INFO.{stream}", b"")
    config: dict[str, Any] = msgspec.json.decode(reply.data)["config"]
    return config


async def stream_names(bus: Bus) -> list[str]:
    reply = await bus.connection.request("$JS.API.STREAM.NAMES", b"")
    return sorted(msgspec.json.decode(reply.data)["streams"])


async def set_stream(bus: Bus, stream: str, **fields: Any) -> None:
    """Change a stream as an operator would, past all of our code."""
    config = await stream_config(bus, stream) | fields
    reply = await bus.connection.request(
        f"$JS.API.STREAM.UPDATE.{stream}", msgspec.json.encode(config)
    )
    assert "error" not in msgspec.json.decode(reply.data), reply.data


async def all_configs(bus: Bus) -> dict[str, dict[str, Any]]:
    return {name: await stream_config(bus, name) for name in await stream_names(bus)}


@contextlib.asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[Connection]:
    connection = await Connection.open(server.options())
    try:
        yield connection
    finally:
        await connection.close()


async def set_up(connection: Connection, choice: RetentionChoice | None = None) -> Plan:
    """What ``sandstream setup --yes`` does."""
    topology = Topology(Subjects())
    choice = choice or RetentionChoice()
    plan = await make_plan(connection, topology, choice)
    await carry_out(connection, topology, choice, plan)
    return plan


STREAMS = sorted(str(it["name"]) for it in Topology(Subjects()).streams())


# --- nobody else creates or changes ---------------------------------------------------------------


def test_opening_a_bus_creates_nothing_and_says_what_to_run(nats_server: NatsServer) -> None:
    async def main() -> None:
        with pytest.raises(NotSetUp) as caught:
            await Bus.open(nats_server.options())
        assert "`sandstream setup`" in str(caught.value)
        assert sorted(caught.value.missing) == STREAMS
        async with connected(nats_server) as connection:
            reply = await connection.request("$JS.API.STREAM.NAMES", b"")
            assert msgspec.json.decode(reply.data)["streams"] is None

    asyncio.run(main())


def test_opening_a_bus_changes_nothing_of_an_installation(nats_server: NatsServer) -> None:
    """An installation with settings of its own is the same after anybody has looked at it."""

    async def main() -> None:
        async with connected(nats_server) as connection:
            await set_up(connection, RetentionChoice(max_age_days=3, max_bytes=10**9))
        bus = await Bus.open(nats_server.options())
        before = await all_configs(bus)
        await bus.close()
        for create in ("never", "if_empty", "missing"):
            bus = await Bus.open(
                nats_server.options(), create=create, retention=Retention(max_age_days=30)
            )
            assert await all_configs(bus) == before
            assert bus.topology.retention == Retention(max_age_days=3, max_bytes=10**9)
            await bus.close()

    asyncio.run(main())


def test_the_choices_of_an_operator_are_no_fault(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            log = await stream_config(bus, bus.topology.log)
            await set_stream(
                bus,
                bus.topology.log,
                max_age=90 * DAY_NS,
                max_bytes=10**9,
                compression="none",
                description="mine",
                subjects=[*log["subjects"], "elsewhere.>"],
            )
            assert await verify(bus.connection, bus.topology) == Retention(
                max_age_days=90, max_bytes=2 * 10**9
            )

    asyncio.run(main())


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("allow_direct", False, "allow_direct is false, must be true"),
        ("republish", None, "republish is null, must be"),
        ("subjects", ["sandstream.trace.>", "sandstream.run.>"], "subjects is"),
        ("duplicate_window", 10**9, "duplicate_window is 1000000000, must be 600000000000"),
        ("max_msgs_per_subject", 1, "max_msgs_per_subject is 1, must be -1"),
    ],
)
def test_a_stream_that_does_not_fit_is_named_with_its_field(
    nats_server: NatsServer, field: str, value: Any, said: str
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            config = await stream_config(bus, bus.topology.log)
            config.pop(field)
            if value is not None:
                config[field] = value
            await bus.connection.request(
                f"$JS.API.STREAM.UPDATE.{bus.topology.log}", msgspec.json.encode(config)
            )
            with pytest.raises(StreamsDiffer) as caught:
                await Bus.open(nats_server.options())
            assert f"SANDSTREAM_LOG: {said}" in str(caught.value)
            assert "`sandstream setup`" in str(caught.value)
            await set_up(bus.connection)
            await verify(bus.connection, bus.topology)

    asyncio.run(main())


def test_a_broader_subject_of_an_operator_fits(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            log = await stream_config(bus, bus.topology.log)
            assert "sandstream.trace.>" in log["subjects"]
            broad = [it for it in log["subjects"] if ".trace" not in it and ".memory" not in it]
            # nothing else has its own stream below these
            every = ["sandstream.trace.>", "sandstream.memory.*.*.>"]
            exact = [it for it in log["subjects"] if ".memory" in it]
            await set_stream(bus, bus.topology.log, subjects=[*broad, *exact, *every])
            await verify(bus.connection, bus.topology)

    asyncio.run(main())


@pytest.mark.parametrize(("mark", "said"), [("3", "newer release"), ("1", "`sandstream setup`")])
def test_another_format_of_the_streams_is_refused(
    nats_server: NatsServer, mark: str, said: str
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await set_stream(bus, bus.topology.log, metadata={"sandstream.topology": mark})
            with pytest.raises(StreamsDiffer, match=said):
                await Bus.open(nats_server.options())

    asyncio.run(main())


# --- creating -------------------------------------------------------------------------------------


def test_many_processes_create_an_installation_at_once(nats_server: NatsServer) -> None:
    """Each wants another age; one of them decides for all streams."""

    async def main() -> None:
        buses = await asyncio.gather(
            *(
                Bus.open(
                    nats_server.options(),
                    create="if_empty",
                    retention=Retention(max_age_days=days),
                )
                for days in range(2, 12)
            )
        )
        assert await stream_names(buses[0]) == STREAMS
        (retention,) = {bus.topology.retention for bus in buses}
        parked = await stream_config(buses[0], buses[0].topology.parked)
        assert parked["max_age"] == retention.max_age_days * DAY_NS
        await asyncio.gather(*(bus.close() for bus in buses))

    asyncio.run(main())


def test_a_stream_that_a_release_adds_is_created_and_the_rest_left(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with connected(nats_server) as connection:
            await set_up(connection, RetentionChoice(max_age_days=3, max_bytes=10**9))
            bus = await Bus.open(nats_server.options())
            before = await all_configs(bus)
            await connection.request(f"$JS.API.STREAM.DELETE.{bus.topology.parked}", b"")
            with pytest.raises(NotSetUp, match="SANDSTREAM_PARKED is missing"):
                await Bus.open(nats_server.options(), create="if_empty")
            plan = await set_up(connection)
            assert [(it.action, it.stream) for it in plan.changes] == [
                ("create", bus.topology.parked)
            ]
            assert await all_configs(bus) == before  # with the settings of the log
            await connection.request(f"$JS.API.STREAM.DELETE.{bus.topology.parked}", b"")
            await bus.close()
            again = await Bus.open(nats_server.options(), create="missing")
            assert await all_configs(again) == before
            await again.close()

    asyncio.run(main())


# --- setup ----------------------------------------------------------------------------------------


def test_setting_up_again_changes_nothing(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            updates: list[str] = []
            await bus.connection.subscribe(
                "$JS.EVENT.ADVISORY.STREAM.UPDATED.>", lambda m: updates.append(m.subject)
            )
            await bus.connection.flush()
            before = await all_configs(bus)
            assert (await set_up(bus.connection)).changes == []
            await bus.connection.flush()
            assert await all_configs(bus) == before
            assert updates == []

    asyncio.run(main())


def test_setup_mends_the_shape_and_leaves_the_operators_choices(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await bus.log.send(bus.subjects.call(run, "p"), call(1), msg_id="1")
            log = await stream_config(bus, bus.topology.log)
            subjects = [*log["subjects"][1:], "elsewhere.>"]
            await set_stream(
                bus,
                bus.topology.log,
                allow_direct=False,
                max_age=7 * DAY_NS,
                description="mine",
                subjects=subjects,
                metadata={"team": "blue"},
            )
            plan = await set_up(bus.connection)
            assert {it.field for it in plan.changes} == {"allow_direct", "subjects", "metadata"}
            assert plan.losses == []
            mended = await stream_config(bus, bus.topology.log)
            assert mended["allow_direct"] is True
            assert mended["max_age"] == 7 * DAY_NS
            assert mended["description"] == "mine"
            assert set(mended["subjects"]) == {*log["subjects"], "elsewhere.>"}
            assert mended["metadata"]["team"] == "blue"
            assert len(await bus.log.read(run)) == 1

    asyncio.run(main())


def test_setup_changes_the_age_everywhere_and_says_what_is_lost(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            longer = await set_up(bus.connection, RetentionChoice(max_age_days=60))
            assert longer.changes and longer.losses == []
            shorter = await set_up(bus.connection, RetentionChoice(max_age_days=2))
            assert {it.stream for it in shorter.losses} == {
                *(bus.topology.log, bus.topology.requests, bus.topology.timers),
                *(bus.topology.parked, f"OBJ_{bus.topology.bucket}"),
            }
            assert (await stream_config(bus, bus.topology.log))["max_age"] == 2 * DAY_NS
            objects = await stream_config(bus, f"OBJ_{bus.topology.bucket}")
            assert objects["max_age"] == 3 * DAY_NS  # events refer to them
            assert (await stream_config(bus, bus.topology.agents))["max_age"] == 0
            for_ever = await set_up(bus.connection, RetentionChoice(max_age_days=0))
            assert for_ever.losses == []
            assert {it["max_age"] for it in (await all_configs(bus)).values()} == {0}

    asyncio.run(main())


def test_a_limit_of_size_is_shared_out_and_never_exceeded(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            total = 10**9
            plan = await set_up(bus.connection, RetentionChoice(max_bytes=total))
            configs = await all_configs(bus)
            assert all(it["max_bytes"] > 0 for it in configs.values())
            assert sum(it["max_bytes"] for it in configs.values()) <= total
            full = {name: it["discard"] for name, it in configs.items()}
            assert full.pop(bus.topology.timers) == "old"  # JetStream has no other for schedules
            assert full.pop(bus.topology.parked) == "old"
            assert set(full.values()) == {"new"}
            assert {it.stream for it in plan.losses} == {bus.topology.timers, bus.topology.parked}
            await set_up(bus.connection, RetentionChoice(max_bytes=0))
            assert {it["max_bytes"] for it in (await all_configs(bus)).values()} == {-1}

    asyncio.run(main())


def test_a_full_stream_refuses_except_timers_and_parked_messages(nats_server: NatsServer) -> None:
    """What docs/operations.md says about disk space."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            for config in bus.topology.wanted():
                drops = config["name"] in (bus.topology.timers, bus.topology.parked)
                assert config["discard"] == ("old" if drops else "new")
                limited = config | {"max_bytes": 100_000}
                body = msgspec.json.encode(limited)
                await bus.connection.request(f"$JS.API.STREAM.UPDATE.{config['name']}", body)
            for number in range(200):
                subject, data = f"sandstream.parked.x.{number}", os.urandom(1000)
                await bus.connection.publish(subject, data, msg_id=str(number))
            state = await bus.topology.stream_state(bus.connection, bus.topology.parked)
            assert state["bytes"] <= 100_000 and state["last_seq"] == 200
            assert state["first_seq"] > 1
            for stream, subject in (
                (bus.topology.log, "sandstream.run.r.model"),
                (bus.topology.requests, "sandstream.task.x"),
                (bus.topology.agents, "sandstream.agent.a"),
            ):
                one_each = stream == bus.topology.agents
                with pytest.raises(StoreFull):
                    for number in range(200):
                        where = f"{subject}{number}" if one_each else subject
                        await bus.connection.publish(
                            where, os.urandom(1000), msg_id=str(number), budget_s=2
                        )
                kept = await bus.topology.stream_state(bus.connection, stream)
                assert kept["first_seq"] == 1 and kept["bytes"] <= 100_000

    asyncio.run(main())


def test_an_age_below_the_duplicate_window_still_fits(nats_server: NatsServer) -> None:
    """No set-up allows it, but an operator may do it by hand."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            minute = 60 * 10**9
            await set_stream(bus, bus.topology.log, max_age=minute, duplicate_window=minute)
            await (await Bus.open(nats_server.options())).close()

    asyncio.run(main())


def test_what_cannot_be_changed_is_said(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with connected(nats_server) as connection:
            config = {"name": "SANDSTREAM_PARKED", "subjects": ["sandstream.parked.>"]}
            body = msgspec.json.encode(config | {"storage": "memory"})
            await connection.request("$JS.API.STREAM.CREATE.SANDSTREAM_PARKED", body)
            with pytest.raises(TopologyError, match='storage is "memory", must be "file"'):
                await set_up(connection)
            reply = await connection.request("$JS.API.STREAM.NAMES", b"")
            assert msgspec.json.decode(reply.data)["streams"] == ["SANDSTREAM_PARKED"]

    asyncio.run(main())


def test_replicas_on_one_server_are_refused_with_the_reason(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            with pytest.raises(TopologyError, match="a NATS cluster of at least 3 servers"):
                await set_up(bus.connection, RetentionChoice(replicas=3))
            assert (await stream_config(bus, bus.topology.log))["num_replicas"] == 1

    asyncio.run(main())


def test_more_space_than_the_server_has_is_refused_with_the_reason(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            with pytest.raises(StoreFull, match=r"cannot reserve .*max_file_store"):
                await set_up(bus.connection, RetentionChoice(max_bytes=10**13))
            assert (await stream_config(bus, bus.topology.log))["max_bytes"] == -1

    asyncio.run(main())


def test_set_ups_at_once_do_not_undo_each_other(nats_server: NatsServer) -> None:
    """Each changes one setting; at the end all are as asked for."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, contextlib.AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(connected(nats_server)) for _ in range(6)
            ]
            for days in (40, 50, 60):
                await asyncio.gather(
                    *(
                        set_up(it, RetentionChoice(max_age_days=days))
                        if number % 2
                        else set_up(it, RetentionChoice(max_bytes=days * 10**7))
                        for number, it in enumerate(connections)
                    )
                )
                has = await verify(bus.connection, bus.topology)
                assert has == Retention(max_age_days=days, max_bytes=days * 10**7)
            assert await stream_names(bus) == STREAMS  # and no lock

    asyncio.run(main())


def test_a_set_up_waits_for_another_one(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            async with SetupLock(bus.connection, bus.topology):
                second = asyncio.ensure_future(
                    set_up(bus.connection, RetentionChoice(max_bytes=10**9))
                )
                done, _ = await asyncio.wait({second}, timeout=0.5)
                assert not done
                assert (await stream_config(bus, bus.topology.log))["max_bytes"] == -1
                await set_stream(bus, bus.topology.log, max_age=60 * DAY_NS)
            await second
            assert "waiting for another set-up to end" in caplog.text
            has = await verify(bus.connection, bus.topology)
            assert has == Retention(max_age_days=60, max_bytes=10**9)

    asyncio.run(main())


def test_the_lock_of_a_killed_set_up_is_taken_over(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            killed = SetupLock(bus.connection, bus.topology)
            await killed.__aenter__()
            monkeypatch.setattr(setup_lock, "_STALE_S", 0.2)
            await set_up(bus.connection, RetentionChoice(max_age_days=5))
            await killed.__aexit__()  # it must not take away the lock of others
            assert await stream_names(bus) == STREAMS

    asyncio.run(main())


def test_a_change_in_between_that_loses_more_is_not_made(nats_server: NatsServer) -> None:
    """The plan that a person has confirmed lost nothing; by now it would."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            topology, choice = Topology(Subjects()), RetentionChoice(max_age_days=40)
            plan = await make_plan(bus.connection, topology, choice)
            assert plan.losses == []
            await set_up(bus.connection, RetentionChoice(max_age_days=60))
            with pytest.raises(TopologyError, match="meanwhile"):
                await carry_out(bus.connection, topology, choice, plan)
            assert (await stream_config(bus, bus.topology.log))["max_age"] == 60 * DAY_NS

    asyncio.run(main())


def test_setup_while_an_actor_works_stops_nothing(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            seen: list[int] = []

            async def handle(delivery: Delivery) -> None:
                seen.append(delivery.sequence)
                await loop.ack(delivery)

            run = new_run()
            spec = ConsumerSpec(name="busy", filters=[bus.subjects.call("*", "p")])
            loop = PullLoop(bus.connection, bus.topology, spec, handle)
            await loop.start()

            async def send() -> None:
                for number in range(200):
                    it = str(number)
                    await bus.log.send(bus.subjects.call(run, "p"), call(number), msg_id=it)

            async def change() -> None:
                for days in range(40, 50):
                    await set_up(bus.connection, RetentionChoice(max_age_days=days))

            await asyncio.gather(send(), change())
            await until(lambda: len(seen) == 200)
            await loop.stop()
            assert seen == sorted(set(seen))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (RetentionChoice(replicas=0), "from 1 to 5"),
        (RetentionChoice(replicas=6), "from 1 to 5"),
        (RetentionChoice(max_age_days=-1), "0 keeps events for ever"),
        (RetentionChoice(max_age_days=float("nan")), "0 keeps events for ever"),
        (RetentionChoice(max_age_days=float("inf")), "0 keeps events for ever"),
        (RetentionChoice(max_age_days=0.01), "below one hour"),
        (RetentionChoice(max_age_days=10**6), "above 36500"),
        (RetentionChoice(max_bytes=1000), "too few"),
        (RetentionChoice(max_bytes=-5), "below zero"),
    ],
)
def test_settings_that_make_no_sense(choice: RetentionChoice, said: str) -> None:
    with pytest.raises(InvalidRetention, match=said):
        choice.check()


def test_settings_at_the_edge_are_fine() -> None:
    RetentionChoice(replicas=1, max_age_days=1 / 24, max_bytes=2**28).check()
    RetentionChoice(replicas=5, max_age_days=0, max_bytes=0).check()


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("1024", 1024), ("20GB", 20 * 10**9), ("1.5 GiB", 3 * 2**29), ("7kb", 7000)],
)
def test_sizes_as_people_write_them(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "many", "-1GB", "1PB", "1 2"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(InvalidRetention):
        parse_bytes(text)


# --- installations and consumers ------------------------------------------------------------------


def test_two_installations_share_a_server(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server, prefix="one") as one,
            open_bus(nats_server, prefix="two.b") as two,
        ):
            run = new_run()
            await one.log.send(one.subjects.call(run, "p"), call(1), msg_id="same")
            await two.log.send(two.subjects.call(run, "p"), call(2), msg_id="same")
            assert [e.event for e in await one.log.read(run)] == [call(1)]
            assert [e.event for e in await two.log.read(run)] == [call(2)]

    asyncio.run(main())


def test_a_consumer_keeps_its_place_when_its_settings_change(nats_server: NatsServer) -> None:
    seen: list[int] = []

    async def take(bus: Bus, spec: ConsumerSpec, upto: int) -> None:
        async def handle(delivery: Delivery) -> None:
            seen.append(delivery.sequence)
            await loop.ack(delivery)

        loop = PullLoop(bus.connection, bus.topology, spec, handle)
        await loop.start()
        await until(lambda: len(seen) >= upto)
        await loop.stop()

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            spec = ConsumerSpec(name="keeper", filters=[bus.subjects.call("*", "p")])
            for number in range(3):
                await bus.log.send(bus.subjects.call(run, "p"), call(number), msg_id=str(number))
            await take(bus, spec, 3)
            for number in range(3, 5):
                await bus.log.send(bus.subjects.call(run, "p"), call(number), msg_id=str(number))
            changed = msgspec.structs.replace(
                spec,
                ack_wait_s=9.0,
                only_new=True,
                filters=[bus.subjects.call("*", "p"), bus.subjects.call("*", "q")],
            )
            await take(bus, changed, 5)
            assert seen == [1, 2, 3, 4, 5]
            info = await bus.topology.consumer_info(bus.connection, "keeper")
            assert info is not None
            assert info["config"]["ack_wait"] == 9 * 10**9
            assert info["config"]["deliver_policy"] == "all"
            assert len(info["config"]["filter_subjects"]) == 2

    asyncio.run(main())


def test_many_replicas_make_the_same_consumer_at_once(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            spec = ConsumerSpec(name="crowd", filters=[bus.subjects.call("*", "p")])
            await asyncio.gather(
                *(bus.topology.ensure_consumer(bus.connection, spec) for _ in range(10))
            )
            assert await bus.topology.consumer_info(bus.connection, "crowd") is not None
            await bus.topology.delete_consumer(bus.connection, "crowd")
            await bus.topology.delete_consumer(bus.connection, "crowd")
            assert await bus.topology.consumer_info(bus.connection, "crowd") is None

    asyncio.run(main())


def test_only_new_and_a_start_sequence_skip_the_past(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            subject = bus.subjects.call(run, "p")
            for number in range(3):
                await bus.log.send(subject, call(number), msg_id=str(number))
            for name, spec, pending in (
                ("all", ConsumerSpec(name="all", filters=[subject]), 3),
                ("new", ConsumerSpec(name="new", filters=[subject], only_new=True), 0),
                ("from", ConsumerSpec(name="from", filters=[subject], start_sequence=3), 1),
            ):
                await bus.topology.ensure_consumer(bus.connection, spec)
                info = await bus.topology.consumer_info(bus.connection, name)
                assert info is not None
                assert info["num_pending"] == pending

    asyncio.run(main())
