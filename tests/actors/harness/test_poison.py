"""What anybody can put on the bus must not stop the harness, nor leave a run without an end."""

from __future__ import annotations

import asyncio

import msgspec
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelAnswer, ModelRequest
from sandstream_actors.model.client import OnEvent
from sandstream_actors.run.forced_ends import end_parked_run
from sandstream_bus.bus import Bus
from sandstream_bus.logs.codec import encode
from sandstream_bus.wire.messages import Claim, RunDone, TokenUsage
from sandstream_bus.wire.subjects import RunId
from support.idle import is_idle
from support.nats_server import NatsServer, open_bus
from support.runs import new_run, started
from support.scripted_log import says
from support.waiting import eventually


class OneLiner:
    """A model that always says the same."""

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        return ModelAnswer(output=[says("ok")], usage=TokenUsage(requests=1))


async def end_of(bus: Bus, run: RunId) -> RunDone:
    async with asyncio.timeout(15):
        return await bus.follow.done(run)


def test_poison_of_every_kind_leaves_the_harness_working(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            harness = Harness(bus, OneLiner())
            await harness.start()
            put = bus.connection.publish
            s = bus.subjects
            bad_start, bad_result, big, invented = (new_run() for _ in range(4))
            await put(s.start(bad_start, "main"), b"{", msg_id="1")
            await put(s.start(bad_result, "other"), encode(started()), msg_id="1b")
            await put(s.result(bad_result, "main"), b'{"type":"moon.landed"}', msg_id="2")
            await put(s.result(invented, "main"), b'{"type":"moon.landed"}', msg_id="2b")
            await put(s.task("ghost"), b"\xff\xfe", msg_id="bad-task")
            await put(s.task("ghost"), b"\xff" * 900_000, msg_id="big-task")
            await put(f"{s.prefix}.task.агент", b'{"input":"x"}', msg_id="foreign-task")
            await put(s.cancel(big), b"\0" * 900_000, msg_id="3")
            reader, writer = await asyncio.open_connection("127.0.0.1", nats_server.port)
            await reader.readline()
            for subject in (b"sandstream.run.\xff\xfe.cancel", b"sandstream.task.\xff"):
                writer.write(b'CONNECT {"verbose":false}\r\nPUB %s 2\r\n{}\r\n' % subject)
            writer.write(b"PING\r\n")
            assert (await reader.readline()).strip() == b"PONG"
            writer.close()
            await writer.wait_closed()
            for run in (bad_start, bad_result, RunId("bad-task"), RunId("big-task")):
                end = await end_of(bus, run)
                assert end.status == "failed"
                assert end.error is not None
                assert end.error.code == "parked"
            refused = await end_of(bus, RunId("foreign-task"))
            assert refused.error is not None
            assert "агент" in refused.error.message
            # a wish that cannot be read ends no run: it is only parked
            assert [it.subject for it in await bus.log.stored(big)] == [s.cancel(big)]
            assert s.cancel(big) in {it.parked.subject for it in await bus.parking.list()}
            good = new_run()
            await bus.log.append(good, s.start(good, "main"), started(), after=0, msg_id="good")
            assert (await end_of(bus, good)).status == "completed"

            await eventually(lambda: is_idle(bus, "harness-main"), what="every message settled")
            for run in (big, invented):  # nobody waits for the end of such a run
                assert await bus.log.last(s.done(run)) is None
            await harness.stop()

    asyncio.run(main())


def test_a_run_whose_log_cannot_be_read_is_ended(nats_server: NatsServer) -> None:
    """A big event whose object is gone: nobody can fold the run any more."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            claim = Claim(of="run.started", digest="0" * 64, size_bytes=1)
            subject = bus.subjects.start(run, "main")
            await bus.connection.publish(subject, msgspec.json.encode(claim), msg_id="1")
            for _ in range(2):  # twice, as after a crash: there is one end
                await end_parked_run(bus, run, "the object is gone")
            state = await bus.topology.stream_state(bus.connection, bus.topology.log)
            assert state["messages"] == 2
            end = await end_of(bus, run)
            assert end.status == "failed"
            assert end.error is not None
            assert "the object is gone" in end.error.message

    asyncio.run(main())
