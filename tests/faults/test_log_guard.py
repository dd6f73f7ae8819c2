"""What one process notices of a log that was emptied, exchanged or set back."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.errors import LogLost
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker
from sandstream_bus.setup.installation import create_missing
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import call, done, new_run, started
from support.waiting import until

Change = Callable[[], None]


def copied(server: NatsServer, tmp_path: Path) -> Change:
    """A function that puts the store back as it is now."""
    store, copy = tmp_path / "nats" / "store", tmp_path / "copy"
    server.stop()
    shutil.copytree(store, copy)
    server.start()

    def put_back() -> None:
        server.kill()
        shutil.rmtree(store)
        shutil.copytree(copy, store)
        server.start()

    return put_back


async def append(bus: Bus, *, times: int = 1) -> int:
    """Start so many runs; the sequence of the last one."""
    last = 0
    for _ in range(times):
        run = new_run()
        subject = bus.subjects.start(run, "main")
        last = await bus.log.append(run, subject, started(), after=0, msg_id=f"{run}:start")
    return last


def test_others_wrote_behind_the_older_copy(nats_server: NatsServer, tmp_path: Path) -> None:
    """The end of the log alone does not show it: the newest event that was seen is another one."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await append(bus)
            put_back = await asyncio.to_thread(copied, nats_server, tmp_path)
            await append(bus, times=2)
            nats_server.kill()  # nobody reconnects in between
            connection = bus.connection
            await until(lambda: not connection.is_connected)
            put_back_at_other_port = await asyncio.to_thread(_elsewhere, nats_server, put_back)
            async with open_bus(nats_server) as other:
                await append(other, times=5)
            await asyncio.to_thread(put_back_at_other_port)
            await until(lambda: bus.guard.epoch == 1, what="the change is noticed")
            assert bus.guard.change is not None
            assert bus.guard.change.what == "older copy"

    asyncio.run(main())


def _elsewhere(server: NatsServer, put_back: Change) -> Change:
    """Start the server where its old clients do not look; the result brings it back."""
    port, server.port = server.port, 0
    put_back()

    def bring_back() -> None:
        server.kill()
        server.port = port
        server.start()

    return bring_back


def test_an_outcome_of_lost_work_is_not_written(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The publish waits for the server when the store is replaced: it must not go through."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, working(bus, nats_server) as (run, put_back):
            await asyncio.to_thread(put_back, tmp_path)
            await until(lambda: bus.guard.epoch == 1, what="the change is noticed")
            await until(lambda: "dropped work" in caplog.text, what="the work is dropped")
            assert f"run {run}, call t1-1" in caplog.text
            await append(bus)  # later publishes go through
            assert await bus.log.read(RunId(run)) == []

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


class working:
    """A worker whose outcome cannot be published, because the server is away."""

    def __init__(self, bus: Bus, server: NatsServer) -> None:
        self._bus = bus
        self._server = server
        self._run = new_run()
        self._received = asyncio.Event()

    async def __aenter__(self) -> tuple[str, Callable[[Path], None]]:
        bus, run = self._bus, self._run
        spec = ConsumerSpec(name="test", filters=[f"{bus.subjects.prefix}.run.*.call.test"])
        self._worker = Worker(bus, spec, self._handle)
        await self._worker.start()
        self._copy = await asyncio.to_thread(self._take_copy)
        subject = bus.subjects.call(run, "test")
        await bus.log.send(subject, call(1), msg_id="call")
        await self._received.wait()
        return str(run), self._put_back

    async def __aexit__(self, *_: object) -> None:
        await self._worker.stop(0.0)

    async def _handle(self, delivery: Delivery) -> None:
        self._server.kill()
        await until(lambda: not self._bus.connection.is_connected)
        self._received.set()
        result = self._bus.subjects.result(self._run, "main")
        await self._bus.work_log.send(result, done(), msg_id="result")

    def _take_copy(self) -> Path:
        store = self._server._directory / "store"
        copy = self._server._directory / "copy"
        self._server.stop()
        shutil.copytree(store, copy)
        self._server.start()
        return copy

    def _put_back(self, _: Path) -> None:
        store = self._server._directory / "store"
        shutil.rmtree(store)
        shutil.copytree(self._copy, store)
        self._server.start()


def test_a_consumer_that_is_ahead_of_the_log_reads_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """After a power loss the log may lack events that a consumer has read. The consumer must not
    skip as many new ones: nats-server sets it back (older versions did not).
    """

    async def main() -> None:
        seen: list[int] = []

        async def handle(delivery: Delivery) -> None:
            seen.append(delivery.sequence)

        spec = ConsumerSpec(name="test", filters=["sandstream.run.>"])
        async with open_bus(nats_server) as bus:
            worker = Worker(bus, spec, handle)
            await worker.start()
            put_back = await asyncio.to_thread(_without_consumers, nats_server, tmp_path)
            await append(bus, times=3)
            await until(lambda: seen == [1, 2, 3])
            await worker.stop()
        await asyncio.to_thread(put_back)
        async with open_bus(nats_server) as bus:
            worker = Worker(bus, spec, handle)
            await worker.start()
            assert await append(bus) == 1
            await until(lambda: seen == [1, 2, 3, 1], what="the new event is read")
            await worker.stop()

    asyncio.run(main())


def _without_consumers(server: NatsServer, tmp_path: Path) -> Change:
    """A function that puts the messages back as they are now, but not the consumers' places."""
    messages = tmp_path / "nats/store/jetstream/$G/streams/SANDSTREAM_LOG/msgs"
    copy = tmp_path / "messages"
    server.stop()
    shutil.copytree(messages, copy)
    server.start()

    def put_back() -> None:
        server.stop()
        shutil.rmtree(messages)
        shutil.copytree(copy, messages)
        server.start()

    return put_back


@pytest.mark.parametrize("how", ["run", "done"])
def test_who_waits_for_a_lost_run_is_told(
    nats_server: NatsServer, tmp_path: Path, how: str
) -> None:
    async def waits(bus: Bus) -> RunDone | None:
        run = new_run()
        await bus.log.append(
            run, bus.subjects.start(run, "main"), started(), after=0, msg_id=f"{run}:start"
        )
        if how == "done":
            return await bus.follow.done(run)
        async for _ in bus.follow.run(run):
            pass
        return None

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            put_back = await asyncio.to_thread(copied, nats_server, tmp_path)
            waiting = asyncio.ensure_future(waits(bus))
            await until(lambda: bus.guard.highest > 0, what="the run has begun")
            await asyncio.to_thread(put_back)
            with pytest.raises(LogLost, match=r"run run-\w+ is no longer in the log: .* set back"):
                await asyncio.wait_for(waiting, 10)

    asyncio.run(main())


def test_a_missing_stream_is_told_to_readers_and_writers(nats_server: NatsServer) -> None:
    async def told(work: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(LogLost, match="SANDSTREAM_LOG is gone"):
            await asyncio.wait_for(work(), 10)

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await bus.connection.request("$JS.API.STREAM.DELETE.SANDSTREAM_LOG", b"")
            bus.guard.doubt()
            await until(lambda: bus.guard.lost is not None)
            await told(lambda: bus.log.read(run))
            await told(lambda: bus.log.last(bus.subjects.done(run)))
            await told(lambda: append(bus))
            await create_missing(bus.connection, bus.topology)
            await until(lambda: bus.guard.lost is None)
            assert await append(bus) == 1

    asyncio.run(main())


def test_events_that_come_during_a_check_are_no_sign_of_a_loss(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await append(bus)
            ask, look = bus.guard._info, bus.guard.message_at

            async def overtaken_info() -> dict[str, Any] | None:
                info = await ask()
                await append(bus)  # newer than the answer
                return info

            async def overtaken_look(sequence: int) -> Any:
                found = await look(sequence)
                await append(bus)
                return found

            monkeypatch.setattr(bus.guard, "_info", overtaken_info)
            monkeypatch.setattr(bus.guard, "message_at", overtaken_look)
            await bus.guard.check()
            assert bus.guard.change is None and bus.guard.epoch == 0

    asyncio.run(main())


def test_headers_of_an_outsider_are_no_sign_of_a_loss(nats_server: NatsServer) -> None:
    """A delivery has the headers of its writer, whatever these claim."""

    async def main() -> None:
        handled: list[int] = []
        done_ = asyncio.Event()

        async def handle(delivery: Delivery) -> None:
            handled.append(delivery.sequence)
            if len(handled) == 2:
                done_.set()

        async with open_bus(nats_server) as bus:
            run = new_run()
            subject = bus.subjects.cancel(run)
            worker = Worker(bus, ConsumerSpec(name="actor-x", filters=[subject]), handle)
            await worker.start()
            for claimed in ("999999", "abc"):
                headers = {"Nats-Stream": bus.topology.log, "Nats-Sequence": claimed}
                await bus.connection.publish(subject, b"{}", msg_id=claimed, headers=headers)
            await asyncio.wait_for(done_.wait(), 10)
            assert bus.guard.highest == handled[-1]
            await worker.stop()

    asyncio.run(main())
