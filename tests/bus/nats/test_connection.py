"""The connection: survives its server, says what is wrong, and is never a zombie."""

from __future__ import annotations

import asyncio
import gc
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.errors import (
    BusError,
    BusUnavailable,
    InvalidSubject,
    PayloadTooLarge,
    PermissionDenied,
    StoreFull,
)
from sandstream_bus.nats import faults
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.publisher import ACK_TIMEOUT_S
from sandstream_bus.nats.subscription import CoreMessage
from sandstream_bus.setup.installation import verify
from support.nats_server import NatsServer, open_bus
from support.runs import call, new_run
from support.waiting import eventually, until

USERS = """
authorization { users: [
  { user: admin, password: a },
  { user: poor, password: p, permissions: {
      publish: { allow: ["$JS.API.>", "sandstream.run.*.call.*"] }, subscribe: ">" } }
] }
"""


@contextmanager
def running(directory: Path, config: str) -> Iterator[NatsServer]:
    server = NatsServer(directory, config=config)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        gc.collect()


def tells(came: asyncio.Event) -> Callable[[CoreMessage], None]:
    return lambda _: came.set()


def test_after_a_flush_the_server_knows_of_a_subscription(nats_server: NatsServer) -> None:
    """Even if another connection publishes in the same instant."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server) as other:
            for number in range(400):
                came = asyncio.Event()
                subject = f"test.{number}"
                listening = await bus.connection.subscribe(subject, tells(came))
                await bus.connection.flush()
                other.connection.publish_now(subject, [b"x"])
                async with asyncio.timeout(5):
                    await came.wait()
                await listening.close()

    asyncio.run(main())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_publishes_during_restarts_are_stored_exactly_once(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, total = new_run(), 400
            sent = 0

            async def publisher(lane: int) -> None:
                nonlocal sent
                for number in range(lane, total, 8):
                    subject = bus.subjects.call(run, f"p{lane}")
                    await bus.log.send(subject, call(number), msg_id=f"m{number}")
                    sent += 1

            publishing = asyncio.gather(*(publisher(lane) for lane in range(8)))

            def sends_more_than(mark: int) -> Callable[[], bool]:
                return lambda: sent > mark

            for mark in (40, 150, 270):
                await until(sends_more_than(mark))
                await asyncio.to_thread(nats_server.restart)
            await publishing
            read = await bus.log.read(run)
            calls = [e.event.call for e in read]  # type: ignore[union-attr]
            assert sorted(calls) == sorted(f"t1-{n}" for n in range(total))

    asyncio.run(main())


def test_a_hanging_server_is_no_loss(nats_server: NatsServer) -> None:
    """Stopped, not dead: the acknowledgement times out, the repeat is recognised."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            nats_server.suspend()
            sending = asyncio.ensure_future(
                bus.log.send(bus.subjects.call(run, "p"), call(0), msg_id="1")
            )
            await asyncio.sleep(ACK_TIMEOUT_S + 0.5)
            nats_server.resume()
            await sending
            assert len(await bus.log.read(run)) == 1

    asyncio.run(main())


def test_a_server_that_is_not_there_is_said_quickly_and_helpfully() -> None:
    async def main() -> None:
        port = free_port()
        began = time.monotonic()
        with pytest.raises(BusUnavailable) as caught:
            await Connection.open(ConnectOptions(servers=[f"nats://127.0.0.1:{port}"]))
        assert time.monotonic() - began < 3
        text = str(caught.value)
        assert f"127.0.0.1:{port}" in text
        assert "NATS_URL" in text
        assert "doctor" in text

    asyncio.run(main())


def test_a_host_that_does_not_exist_is_named() -> None:
    async def main() -> None:
        with pytest.raises(BusUnavailable, match=r"nowhere\.invalid"):
            await Connection.open(ConnectOptions(servers=["nats://nowhere.invalid:4222"]))

    asyncio.run(main())


def test_a_server_that_comes_a_moment_later_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path / "nats")
        server.start()
        server.kill()
        gc.collect()
        opening = asyncio.ensure_future(Connection.open(server.options()))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.start)
        try:
            connection = await opening
            assert connection.is_connected
            await connection.close()
        finally:
            server.kill()

    asyncio.run(main())


def test_a_listener_that_is_not_nats_is_not_waited_for_for_ever() -> None:
    async def main() -> None:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BusUnavailable):
            await Connection.open(
                ConnectOptions(servers=[f"nats://127.0.0.1:{port}"], connect_timeout_s=1)
            )
        server.close()
        await server.wait_closed()

    asyncio.run(main())


def test_wrong_credentials_are_said_quickly(tmp_path: Path) -> None:
    async def main(server: NatsServer) -> None:
        for options in ({}, {"user": "admin", "password": "wrong"}):
            began = time.monotonic()
            with pytest.raises(BusUnavailable, match=r"(?i)authorization") as caught:
                await Connection.open(server.options(**options))
            assert "check the credentials" in str(caught.value)
            assert "Start the server" not in str(caught.value)
            assert time.monotonic() - began < 3

    with running(tmp_path, USERS) as server:
        asyncio.run(main(server))


def test_an_account_without_jetstream_is_said(tmp_path: Path) -> None:
    async def main(server: NatsServer) -> None:
        async with asyncio.timeout(10):
            with pytest.raises(BusError, match=r"(?i)jetstream"):
                await Bus.open(server.options(user="x", password="x"))

    with running(tmp_path, "accounts { A { users: [{user: x, password: x}] } }") as server:
        asyncio.run(main(server))


def test_a_failed_open_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main(server: NatsServer) -> None:
        with pytest.raises(BusUnavailable):
            await Connection.open(server.options())
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with running(tmp_path, USERS) as server:
        asyncio.run(main(server))


def test_one_client_at_a_time_is_built_however_long_the_server_is_away(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "REFUSED_PATIENCE_S", 0)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            attempts: list[str] = []
            tell = bus.connection._on_error

            async def note(error: Exception) -> None:
                attempts.append(str(error))
                await tell(error)

            monkeypatch.setattr(bus.connection, "_on_error", note)
            nats_server.kill()
            await bus.connection._client.close()
            await until(lambda: len(attempts) >= 4)
            assert len(bus.connection._tasks) == 1
            await asyncio.to_thread(nats_server.start)
            run = new_run()
            await bus.log.send(bus.subjects.call(run, "p"), call(0), msg_id="1")
            assert len(await bus.log.read(run)) == 1

    asyncio.run(main())


def test_a_forbidden_publish_is_an_error_not_a_timeout(tmp_path: Path) -> None:
    async def main(server: NatsServer) -> None:
        async with (
            open_bus(server, user="admin", password="a"),
            open_bus(server, user="poor", password="p") as bus,
        ):
            run = new_run().upper()  # the server quotes subjects: case must survive
            await bus.log.send(f"sandstream.run.{run}.call.p", call(0), msg_id="1")
            began = time.monotonic()
            with pytest.raises(PermissionDenied, match=f"sandstream.run.{run}.done"):
                await bus.log.send(f"sandstream.run.{run}.done", call(0), msg_id="2")
            assert time.monotonic() - began < 1
            await bus.log.send(f"sandstream.run.{run}.call.p", call(1), msg_id="3")
            assert len(await bus.log.read(run)) == 2  # type: ignore[arg-type]

    with running(tmp_path, USERS) as server:
        asyncio.run(main(server))


def test_a_client_that_was_closed_for_good_is_replaced(nats_server: NatsServer) -> None:
    """A protocol error makes the server hang up and nats-py close for good."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            heard: list[bytes] = []
            await bus.connection.subscribe("some.news", lambda m: heard.append(m.data))
            client = bus.connection._client
            client._transport.write(b"NONSENSE\r\n")  # type: ignore[union-attr]
            await until(lambda: client.is_closed)
            run = new_run()
            await bus.log.send(bus.subjects.call(run, "p"), call(0), msg_id="1")
            assert bus.connection._client is not client
            await bus.connection.publish_core("some.news", b"again")
            await until(lambda: heard)
            assert heard == [b"again"]

    asyncio.run(main())


def test_a_client_whose_read_loop_died_is_replaced(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            client = bus.connection._client
            client._ps = None  # type: ignore[assignment]  # whatever the next bug there will be
            run = new_run()
            async with asyncio.timeout(10):
                await bus.log.send(bus.subjects.call(run, "p"), call(0), msg_id="1")
            assert bus.connection._client is not client
            assert client.is_closed
            assert len(await bus.log.read(run)) == 1

    asyncio.run(main())


def test_an_undecodable_subject_does_not_leave_a_zombie(nats_server: NatsServer) -> None:
    """nats-py's read loop dies of a subject that is not UTF-8; anybody can publish one."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            heard: list[bytes] = []
            await bus.connection.subscribe("some.>", lambda m: heard.append(m.data))
            await bus.connection.flush()
            reader, writer = await asyncio.open_connection("127.0.0.1", nats_server.port)
            await reader.readline()
            writer.write(b'CONNECT {"verbose":false}\r\nPUB some.\xff\xfe 1\r\nx\r\nPING\r\n')
            await writer.drain()
            assert (await reader.readline()).strip() == b"PONG"
            writer.close()
            await writer.wait_closed()
            run = new_run()
            async with asyncio.timeout(15):
                await bus.log.send(bus.subjects.call(run, "p"), call(0), msg_id="1")
                assert len(await bus.log.read(run)) == 1

            async def again() -> bool:
                await bus.connection.publish_core("some.news", b"again")
                return b"again" in heard

            await eventually(again)

    asyncio.run(main())


@pytest.mark.parametrize(
    "head",
    [
        b"NATS/1.0\r\nx: \xff\xfe\r\n\r\n",
        b"NATS/1.0\r\nno colon at all\r\n\r\n",
        b"NATS/1.0\r\n: \r\n\r\n",
        b"NATS/1.0\r\n\xff: 1\r\n\r\n",
        b"NATS/1.0 999 strange\r\nx: y\r\n\r\n",
        b"NATS/1.0\r\n\r\n",
    ],
)
def test_strange_headers_harm_nobody(nats_server: NatsServer, head: bytes) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            heard: list[bytes] = []
            await bus.connection.subscribe("some.>", lambda m: heard.append(m.data))
            await bus.connection.flush()
            reader, writer = await asyncio.open_connection("127.0.0.1", nats_server.port)
            await reader.readline()
            writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
            writer.write(b"HPUB some.x %d %d\r\n%sx\r\n" % (len(head), len(head) + 1, head))
            writer.write(b"PING\r\n")
            assert (await reader.readline()).strip() == b"PONG"
            writer.close()
            await writer.wait_closed()

            async def again() -> bool:
                await bus.connection.publish_core("some.news", b"again")
                return b"again" in heard

            await eventually(again)
            await verify(bus.connection, bus.topology)

    asyncio.run(main())


def test_too_big_a_payload_has_both_numbers(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            limit = bus.connection.max_payload_bytes
            for size in (limit + 1, limit):  # the server counts the headers too
                async with asyncio.timeout(5):
                    with pytest.raises(PayloadTooLarge) as caught:
                        await bus.connection.publish("sandstream.task.x", b"x" * size, msg_id="1")
                assert caught.value.limit_bytes == limit
                assert caught.value.size_bytes > limit
            assert bus.connection.reconnects == 0

    asyncio.run(main())


def test_too_big_a_live_message_is_lost_alone(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            limit = bus.connection.max_payload_bytes
            heard: list[int] = []
            await bus.connection.subscribe("some.news", lambda it: heard.append(len(it.data)))
            await bus.connection.flush()
            bus.connection.publish_now("some.news", [b"x", b"x" * (limit + 1), b"x" * limit])

            async def has_heard() -> bool:
                return len(heard) == 2

            await eventually(has_heard)
            await bus.connection.flush()
            assert heard == [1, limit]
            assert bus.connection.breaks == 0

    asyncio.run(main())


def test_a_full_store_is_said(tmp_path: Path) -> None:
    """The log discards the oldest, as a log with timers must; the object bucket refuses."""

    async def main(server: NatsServer) -> None:
        async with open_bus(server, user="u", password="u") as bus:
            with pytest.raises(StoreFull, match="10002"):
                await bus.objects.put(secrets.token_bytes(5_000_000))

    account = "A { users: [{user: u, password: u}], jetstream { max_file: 2MB } }"
    with running(tmp_path, f"accounts {{ {account} }}") as server:
        asyncio.run(main(server))


def test_the_publish_budget_ends_with_a_helpful_error(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            nats_server.kill()
            with pytest.raises(BusUnavailable, match=r"sandstream\.task\.x"):
                await bus.connection.publish("sandstream.task.x", b"{}", msg_id="1", budget_s=0.5)

    asyncio.run(main())


def test_closing_ends_what_waits(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            nats_server.suspend()
            waiting = asyncio.ensure_future(
                bus.connection.publish("sandstream.task.x", b"{}", msg_id="1")
            )
            await asyncio.sleep(0.05)
            closing = asyncio.ensure_future(bus.connection.close())
            async with asyncio.timeout(5):
                with pytest.raises(BusUnavailable):
                    await waiting
                await closing
            nats_server.resume()

    asyncio.run(main())


def test_a_handler_that_raises_harms_nobody(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            heard: list[bytes] = []

            def handle(message: CoreMessage) -> None:
                heard.append(message.data)
                raise RuntimeError("on purpose")

            await bus.connection.subscribe("some.news", handle)
            for text in (b"1", b"2"):
                await bus.connection.publish_core("some.news", text)
            await until(lambda: len(heard) == 2)

    asyncio.run(main())


def test_reconnect_callbacks_run_and_can_be_taken_back(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            calls: list[str] = []

            async def note() -> None:
                calls.append("note")

            async def broken() -> None:
                calls.append("broken")
                raise RuntimeError("on purpose")

            bus.connection.on_reconnect(broken)
            forget = bus.connection.on_reconnect(note)
            await asyncio.to_thread(nats_server.restart)
            await until(lambda: {"note", "broken"} <= set(calls))
            forget()
            calls.clear()
            await asyncio.to_thread(nats_server.restart)
            await until(lambda: "broken" in calls)
            assert "note" not in calls

    asyncio.run(main())


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("nats://me:s3cret@127.0.0.1:1", "nats://127.0.0.1:1"),
        ("s3cret@127.0.0.1:1", "127.0.0.1:1"),
        ("nats://127.0.0.1:1", "nats://127.0.0.1:1"),
    ],
)
def test_credentials_of_the_url_are_not_shown(server: str, shown: str) -> None:
    assert Connection(ConnectOptions(servers=[server]), None).url == shown


def test_a_flush_tells_that_the_server_knows_of_a_subscription(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "traced", config="debug: true\ntrace: true")
    server.start()
    log = tmp_path / "traced" / "nats.log"

    async def main() -> None:
        connection = await Connection.open(server.options(), None)
        try:
            await connection.subscribe("mine", lambda _: None)
            await connection.flush()
            await connection.flush()
            _, _, after = log.read_text().partition("<<- [SUB mine ")
            assert after.count("<<- [PING]") == 2
        finally:
            await connection.close()

    try:
        asyncio.run(main())
    finally:
        server.kill()


@pytest.mark.parametrize(
    "subject", ["sandstream.run..cancel", "sandstream.run.*.cancel", "a.>", "a b", "a.", ".a", ""]
)
def test_a_subject_that_no_stream_can_store_is_refused_at_once(
    nats_server: NatsServer, subject: str
) -> None:
    """The server does not answer such a publish, so work would be repeated for ever."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            with pytest.raises(InvalidSubject, match="not a subject to publish to"):
                await bus.connection.publish(subject, b"{}", msg_id="1", budget_s=None)

    asyncio.run(main())
