"""Messages that nobody of ours would send: actors drop or park them, and honest runs go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from fuzz.wire import Wire
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelAnswer, ModelRequest
from sandstream_actors.model.client import OnEvent
from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_actors.sandbox.news import News, read_news
from sandstream_actors.tool_host.actor import Callables, ToolHost
from sandstream_bus.bus import Bus
from sandstream_bus.logs.parked import ParkedEntry
from sandstream_bus.wire.messages import CancelRequested, Claim, RunDone, TokenUsage
from sandstream_bus.wire.specs import RunOptions, SessionUse
from sandstream_bus.wire.subjects import RunId
from sandstream_providers.local.provider import LocalProvider
from support.idle import is_idle
from support.nats_server import NatsServer
from support.runs import call, done, finished, new_run, started
from support.scripted_log import says
from support.servers.strangers import told
from support.waiting import eventually

CLAIM = msgspec.json.encode(Claim(of="run.done", digest="0" * 64, size_bytes=1))


class SlowModel:
    """Says the same to all, once it may. Counts what it was asked."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        self.asked += 1
        await self.may_answer.wait()
        return ModelAnswer(output=[says("ok")], usage=TokenUsage(requests=1))


async def parked(bus: Bus, count: int) -> list[ParkedEntry]:
    async def look() -> list[ParkedEntry]:
        found = await bus.parking.list()
        return found if len(found) >= count else []

    return await eventually(look, what=f"{count} parked")


async def begin(bus: Bus, run: RunId) -> int:
    subject = bus.subjects.start(run, "main")
    return await bus.log.append(run, subject, started(), after=0, msg_id=f"{run}:start")


@pytest.mark.parametrize("live", [True, False])
def test_what_is_no_cancel_request_in_the_log_stops_no_model_call(
    nats_server: NatsServer, live: bool
) -> None:
    """A request without its type, and one that somebody publishes beside the log."""

    async def story(bus: Bus, wire: Wire) -> None:
        model, run = SlowModel(), new_run()
        model.may_answer.clear()
        harness = Harness(bus, model)
        await harness.start()
        await begin(bus, run)
        await eventually(lambda: _holds(lambda: model.asked == 1))
        if live:
            data = msgspec.json.encode(CancelRequested())
            await wire.send(bus.subjects.live("cancel", run).encode(), data, [])
        else:
            await (await wire.publish(bus.subjects.cancel(run).encode(), b'{"call":"x"}', []))
            await parked(bus, 1)
        model.may_answer.set()
        assert (await bus.follow.done(run)).status == "completed"
        assert model.asked == 1
        await harness.stop()

    told(nats_server, story)


async def _holds(look: Callable[[], bool]) -> bool:
    return look()


def test_a_stray_claim_does_not_cost_a_run(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        model, run = SlowModel(), new_run()
        model.may_answer.clear()
        harness = Harness(bus, model)
        await harness.start()
        await begin(bus, run)
        for subject in (bus.subjects.model(run), bus.subjects.result(run, "main")):
            await (await wire.publish(subject.encode(), CLAIM, []))
        (entry,) = await parked(bus, 1)  # only results are somebody's to read
        assert entry.parked.deliveries == 1
        assert "content_missing" in entry.parked.reason
        model.may_answer.set()
        assert (await bus.follow.done(run)).status == "completed"
        await harness.stop()

    told(nats_server, story)


def test_an_id_with_wildcards_means_no_run(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        model, run = SlowModel(), new_run()
        model.may_answer.clear()
        harness = Harness(bus, model)
        await harness.start()
        await begin(bus, run)
        cancel = msgspec.json.encode(CancelRequested())
        result = msgspec.json.encode(finished(0))
        for kind, data in (("cancel", cancel), ("result.main", result)):
            for token in ("*", ">"):
                where = f"sandstream.run.{token}.{kind}".encode()
                await (await wire.publish(where, data, [(b"Nats-Msg-Id", where)]))
        found = await parked(bus, 4)
        assert all("cannot be part of a subject" in it.parked.reason for it in found)
        model.may_answer.set()
        assert (await bus.follow.done(run)).status == "completed"
        assert len(await bus.log.read(run)) == 3  # start, answer, end
        await harness.stop()

    told(nats_server, story)


def test_messages_for_invented_runs_are_dropped(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        harness = Harness(bus, SlowModel())
        host = ToolHost(bus, NoCode(), pool="p")
        sandboxes = SandboxActor(bus, LocalProvider(tmp_path / "home"), node="n")
        actors = (harness, host, sandboxes)
        await asyncio.gather(*(it.start() for it in actors))
        s, run = bus.subjects, new_run()
        in_box = msgspec.structs.replace(call(1), sandbox="box")
        await bus.log.send(s.result(run, "main"), finished(0), msg_id="1")
        await bus.log.send(s.call(run, "p"), call(0), msg_id="2")
        await bus.log.send(s.run_sandbox(run, "local"), in_box, msg_id="3")
        await bus.log.send(s.cancel(run), CancelRequested(), msg_id="4")
        for consumer in ("harness-main", "tools-p", "sandbox-local"):
            await eventually(partial(is_idle, bus, consumer), what=consumer)
        await asyncio.gather(*(it.stop() for it in actors))
        assert await bus.parking.list() == []
        assert await bus.log.last(s.done(run)) is None
        reasons = [vars(it)["reason"] for it in caplog.records if it.message == "message dropped"]
        assert reasons == [f"the run {run} has not begun"] * 4

    with caplog.at_level(logging.DEBUG, "sandstream_bus"):
        told(nats_server, story)


class NoCode(Callables):
    """Nothing is to be called here."""

    async def admit(self, run: RunId, states: object) -> None:
        raise AssertionError("a call was admitted")

    async def invoke(self, run: RunId, call: object, states: object) -> RunDone:  # type: ignore[override]
        raise AssertionError("a call was made")


def test_a_parked_request_with_an_odd_operation_is_answered_by_nobody(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        sandboxes = SandboxActor(bus, LocalProvider(tmp_path / "home"), node="n")
        await sandboxes.start()
        where = bus.subjects.sandbox_op("box", "local").encode()
        for number, odd in enumerate((b"o.p", b"*", b"")):
            headers = [(b"Nats-Msg-Id", b"%d" % number), (b"Sandstream-Operation", odd)]
            await (await wire.publish(where, b"{", headers))
        await (await wire.publish(where, b"[" * 60_000, [(b"Nats-Msg-Id", b"deep")]))
        await parked(bus, 4)
        await sandboxes.stop()
        assert not [it for it in caplog.records if it.exc_info]

    told(nats_server, story)


def test_a_forged_call_of_a_child_without_a_run_holds_up_nobody(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its run ends, and what ends with it are child runs that have a name."""

    async def story(bus: Bus, wire: Wire) -> None:
        sandboxes = SandboxActor(bus, LocalProvider(tmp_path / "home"), node="n")
        await sandboxes.start()
        run = new_run()
        await begin(bus, run)
        forged = msgspec.json.encode(msgspec.structs.replace(call(1), kind="child"))
        where = bus.subjects.run_sandbox(run, "local").encode()
        await (await wire.publish(where, forged, [(b"Nats-Msg-Id", b"forged")]))
        await parked(bus, 1)
        assert (await bus.follow.done(run)).status == "failed"
        await eventually(lambda: is_idle(bus, "sandbox-local"))
        await sandboxes.stop()
        assert not [it for it in caplog.records if it.exc_info]

    told(nats_server, story)


def test_a_call_of_a_cancelled_run_that_nobody_can_read_is_parked(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Nothing is begun for it: a coroutine that nobody awaits would be a warning, so an error."""

    async def story(bus: Bus, wire: Wire) -> None:
        sandboxes = SandboxActor(bus, LocalProvider(tmp_path / "home"), node="n")
        await sandboxes.start()
        run = new_run()
        await begin(bus, run)
        await bus.log.send(bus.subjects.cancel(run), CancelRequested(), msg_id="1")
        await eventually(lambda: _holds(lambda: run in sandboxes._cancellations._lately))
        await bus.connection.publish(bus.subjects.model(run), b"{", msg_id="2")
        in_box = msgspec.structs.replace(call(1), sandbox="box")
        await bus.log.send(bus.subjects.run_sandbox(run, "local"), in_box, msg_id="3")
        await parked(bus, 1)
        await sandboxes.stop()

    told(nats_server, story)


def test_news_of_a_sandbox_that_nobody_can_read_says_nothing() -> None:
    for data in (b"\xff", b"{", b'{"type": 1}', b'{"type": "\xff"}', b""):
        assert read_news(data) == News()


def test_a_task_whose_run_cannot_be_read_still_ends(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        harness = Harness(bus, SlowModel())
        await harness.start()
        s = bus.subjects
        await bus.connection.publish(s.model("taken"), b"{", msg_id="x")
        await bus.connection.publish(s.task("nobody"), b'{"input":"hi"}', msg_id="taken")
        done = await bus.follow.done(RunId("taken"))
        assert done.status == "failed"
        assert done.error is not None and done.error.code == "parked"
        await harness.stop()

    told(nats_server, story)


def test_a_run_with_an_end_that_nobody_can_read_gets_another(nats_server: NatsServer) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        harness = Harness(bus, SlowModel())
        await harness.start()
        run, s = new_run(), bus.subjects
        await bus.connection.publish(s.done(run), b"{", msg_id="1")
        await bus.connection.publish(s.start(run, "main"), b"{", msg_id="2")

        async def ended() -> bool:
            last = await bus.log.last_sequence(run)
            return last > 0 and (await bus.log.stored(run))[-1].subject == s.done(run)

        await eventually(ended, what="another end")
        await harness.stop()

    told(nats_server, story)


def test_a_saved_state_that_nobody_can_read_ends_its_run(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(bus: Bus, wire: Wire) -> None:
        harness = Harness(bus, SlowModel())
        await harness.start()
        run = new_run()
        data = b'{"type":"run.restored","pool":"main","host":"h",'
        data += b'"events":[{"subject":"s","body":{"type":"run.started"}}]}'
        await bus.connection.publish(bus.subjects.start(run, "main"), data, msg_id="1")
        done = await bus.follow.done(run)
        assert done.error is not None and done.error.code == "parked"
        await harness.stop()
        assert not [it for it in caplog.records if it.exc_info]

    told(nats_server, story)


def test_an_ended_run_that_nobody_can_read_keeps_no_conversation(nats_server: NatsServer) -> None:
    """Whoever has ended it died before it could let go."""

    async def story(bus: Bus, wire: Wire) -> None:
        broken, following = new_run(), new_run()
        await begin(bus, broken)
        await bus.conversations.join("room", broken, "main")
        await bus.connection.publish(bus.subjects.model(broken), b"{", msg_id="odd")
        last = await bus.log.last_sequence(broken)
        end = bus.subjects.done(broken)
        await bus.log.append(broken, end, done(), after=last, msg_id=f"{broken}:done")
        harness = Harness(bus, SlowModel())
        await harness.start()
        options = RunOptions(session=SessionUse(id="room"))
        start = msgspec.structs.replace(started(), options=options)
        subject = bus.subjects.start(following, "main")
        await bus.log.append(following, subject, start, after=0, msg_id=f"{following}:start")
        assert (await bus.follow.done(following)).status == "completed"
        await harness.stop()

    told(nats_server, story)
