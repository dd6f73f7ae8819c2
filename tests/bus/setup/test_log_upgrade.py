"""The upgrade of logs that are unlike most: emptied, limited, edited by their operators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sandstream_bus.errors import StoreFull, TopologyError
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.topology import Topology
from sandstream_bus.setup.lock import SetupLock
from sandstream_bus.setup.upgrade import upgrade
from sandstream_bus.wire.subjects import Subjects
from support.nats_server import NatsServer
from support.servers.old_installation import COPY, LOG, api, messages_of, old_log, places, streams
from support.waiting import eventually

REQUESTS = "SANDSTREAM_REQUESTS"
DAY_NS = 86_400 * 10**9


@asynccontextmanager
async def old_installation(server: NatsServer, **fields: Any) -> AsyncIterator[Connection]:
    """A connection to a server that has a log of format 1, which nobody has written."""
    connection = await Connection.open(server.options())
    try:
        made = await api(connection, f"STREAM.CREATE.{LOG}", old_log(**fields))
        assert "error" not in made, made
        yield connection
    finally:
        await connection.close()


async def write(connection: Connection, *subjects: str, **headers: str) -> None:
    for number, subject in enumerate(subjects):
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        await connection.publish(
            f"sandstream.{subject}", b"{}", msg_id=f"{subject}:{number}", headers=named
        )


def topology() -> Topology:
    return Topology(Subjects())


async def state(connection: Connection, stream: str = LOG) -> dict[str, Any]:
    found: dict[str, Any] = (await streams(connection))[stream]["state"]
    return found


def test_a_log_whose_newest_messages_have_expired(nats_server: NatsServer) -> None:
    """A mirror never hears of them, but their sequences must not be used again."""

    async def main() -> None:
        async with old_installation(nats_server) as connection:
            await write(connection, "run.a.x", "task.a", "run.b.x")
            await write(connection, "sandbox.c.reply", Nats_TTL="1s")

            async def is_gone() -> bool:
                return bool((await state(connection))["messages"] == 3)

            await eventually(is_gone, what="the reply expires")
            before = await messages_of(connection, LOG)
            await upgrade(connection, topology())
            after = await messages_of(connection, LOG)
            assert after[:3] == before
            assert (await state(connection))["last_seq"] > 4
            ack = await connection.publish("sandstream.run.a.y", b"{}", msg_id="next")
            assert ack.seq > 4

    asyncio.run(main())


@pytest.mark.parametrize("written", [0, 3])
def test_an_empty_log(nats_server: NatsServer, written: int) -> None:
    async def main() -> None:
        async with old_installation(nats_server) as connection:
            await write(connection, *["task.a"] * written)
            await api(connection, f"STREAM.PURGE.{LOG}")
            await upgrade(connection, topology())
            names = set(await streams(connection))
            assert {LOG, REQUESTS, "SANDSTREAM_TIMERS"} <= names and COPY not in names
            for subject in ("run.a.x", "task.a"):
                ack = await connection.publish(f"sandstream.{subject}", b"{}", msg_id="new")
                assert ack.seq > written  # a run named after a task's sequence is never another's

    asyncio.run(main())


def test_what_the_operator_chose_stays(nats_server: NatsServer) -> None:
    async def main() -> None:
        fields: dict[str, Any] = {
            "max_age": 7 * DAY_NS,
            "max_bytes": 50_000_000,
            "compression": "none",
            "description": "ours",
        }
        own = {"subjects": [*old_log()["subjects"], "elsewhere.>"], "metadata": {"team": "blue"}}
        async with old_installation(nats_server, **fields, **own) as connection:
            await write(connection, "run.a.x")
            await connection.publish("elsewhere.a", b"{}", msg_id="own")
            before = await messages_of(connection, LOG)
            created = (await streams(connection))[LOG]["created"]
            await upgrade(connection, topology())
            found = (await streams(connection))[LOG]
            assert {key: found["config"][key] for key in fields} == fields
            assert "elsewhere.>" in found["config"]["subjects"]
            assert found["config"]["metadata"]["team"] == "blue"
            assert await messages_of(connection, LOG) == before
            # sandboxes and traces belong to the log that was made then
            assert found["created"] != created
            assert await topology().created(connection, LOG) == created

    asyncio.run(main())


def test_a_subject_that_others_need_is_refused_before_anything_is_done(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with old_installation(
            nats_server, subjects=["sandstream.task.>"], republish=None
        ) as connection:
            with pytest.raises(TopologyError, match=r"'sandstream.task.>', which overlaps"):
                await upgrade(connection, topology())
            assert set(await streams(connection)) == {LOG}

    asyncio.run(main())


def test_readers_go_on_where_they_were(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with old_installation(nats_server) as connection:
            await write(connection, "run.a.x", "task.a", "run.b.x", "task.b", "run.c.x", "task.c")
            consumers: dict[str, tuple[dict[str, Any], list[int]]] = {
                "actor-x": ({"filter_subjects": ["sandstream.run.*.x"]}, [1]),
                "older": ({"filter_subjects": ["sandstream.task.*", "sandstream.run.>"]}, [1, 2]),
                "tasks-main": ({"filter_subjects": ["sandstream.task.*"]}, [2, 4]),
                "tasks-idle": ({"filter_subjects": ["sandstream.task.*"]}, []),
                "new": ({"filter_subject": "sandstream.run.>", "deliver_policy": "new"}, []),
                "unacked": ({"ack_policy": "none"}, [1, 2, 3]),
                "last": ({"deliver_policy": "last_per_subject", "filter_subject": ">"}, []),
            }
            for name, (fields, taken) in consumers.items():
                config = {"durable_name": name, "name": name, "ack_policy": "explicit", **fields}
                body = {"stream_name": LOG, "config": config}
                made = await api(connection, f"CONSUMER.CREATE.{LOG}.{name}", body)
                assert "error" not in made, made
                await _take(connection, name, taken)
            await upgrade(connection, topology())
            assert await places(connection, LOG) == {
                "actor-x": (1, 2),
                "older": (2, 2),  # its tasks are in the stream of requests
                "new": (6, 0),
                "unacked": (3, 3),
                "last": (0, 6),
            }
            assert [it.sequence for it in await messages_of(connection, REQUESTS)] == [6]
            ack = await connection.publish("sandstream.task.d", b"{}", msg_id="d")
            assert (ack.stream, ack.seq) == (REQUESTS, 7)

    asyncio.run(main())


async def _take(connection: Connection, consumer: str, sequences: list[int]) -> None:
    """Read so many messages of a consumer, and acknowledge them."""
    arrived: asyncio.Queue[str] = asyncio.Queue()
    inbox = f"taken.{consumer}"
    subscription = await connection.subscribe(inbox, lambda it: arrived.put_nowait(it.reply))
    for sequence in sequences:
        await connection.send(f"$JS.API.CONSUMER.MSG.NEXT.{LOG}.{consumer}", b"1", reply=inbox)
        ack = await arrived.get()
        assert ack.split(".")[-4] == str(sequence)
        if consumer != "unacked":
            await connection.request(ack, b"")
    await subscription.close()


def test_a_log_that_has_no_room_for_a_copy(tmp_path: Path) -> None:
    account = "A { users: [{user: a, password: b}], jetstream { max_store: 300KB } }"
    server = NatsServer(tmp_path, config=f"accounts {{ {account} }}")
    server.start()

    async def main() -> None:
        connection = await Connection.open(server.options(user="a", password="b"))
        await api(connection, f"STREAM.CREATE.{LOG}", old_log())
        for number in range(20):
            await connection.publish("sandstream.run.a.x", b"x" * 10_000, msg_id=str(number))
        before = await streams(connection)
        with pytest.raises(StoreFull, match=r"needs 20\d\.\d kB .* may store 307.2 kB and has 1"):
            await upgrade(connection, topology())
        after = await streams(connection)
        assert {name: it["config"] for name, it in after.items()} == {LOG: before[LOG]["config"]}
        await connection.close()

    try:
        asyncio.run(main())
    finally:
        server.kill()


def test_a_log_that_was_made_meanwhile_is_not_taken_for_the_old_one(
    nats_server: NatsServer,
) -> None:
    """Neither of the two is deleted: the copy has the messages, and nobody knows about the new."""

    async def main() -> None:
        async with old_installation(nats_server) as connection:
            await write(connection, "run.a.x")
            lost = old_log() | {"name": COPY, "subjects": ["none"], "allow_msg_schedules": False}
            lost["metadata"] = {"sandstream.upgrade": '{"created": "earlier", "config": {}}'}
            assert "error" not in await api(connection, f"STREAM.CREATE.{COPY}", lost)
            with pytest.raises(TopologyError, match=f"nats stream rm {LOG}"):
                await upgrade(connection, topology())
            assert set(await streams(connection)) == {LOG, COPY}

    asyncio.run(main())


def test_a_long_set_up_keeps_its_lock(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade may take longer than the time after which a lock counts as left behind."""
    monkeypatch.setattr("sandstream_bus.setup.lock._STALE_S", 1.0)
    monkeypatch.setattr("sandstream_bus.setup.lock._BEAT_S", 0.1)

    async def main() -> None:
        connection = await Connection.open(nats_server.options())
        async with SetupLock(connection, topology()) as lock:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3), SetupLock(connection, topology()):
                    pass
            await lock.check()
            await api(connection, "STREAM.DELETE.SANDSTREAM_SETUP")
            with pytest.raises(TopologyError, match="was restarted during the set-up"):
                await lock.check()
        await connection.close()

    asyncio.run(main())
