"""Runs under way come before new ones, and a harness reads only what it has to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelAnswer, ModelRequest
from sandstream_actors.model.client import OnEvent
from sandstream_actors.run.state_cache import States
from sandstream_actors.tool_host.actor import ToolHost
from sandstream_bus.bus import Bus
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    ModelAnswered,
    RunDone,
    TokenUsage,
)
from sandstream_bus.wire.specs import ToolSpec
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import finished, new_run, started
from support.servers.lagging import add_lagging_replicas, stale_answers
from support.waiting import eventually

TURNS = 4


class Talker:
    """Calls its tools until it has had enough turns."""

    def __init__(self, calls: int = 1) -> None:
        self._calls = calls
        self.asked = 0

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        self.asked += 1
        turn = sum(b"function_call_output" in bytes(it) for it in request.input) // self._calls
        if turn + 1 < TURNS:
            output: list[dict[str, Any]] = [
                {
                    "type": "function_call",
                    "id": f"fc_{turn}_{n}",
                    "call_id": f"c{turn}_{n}",
                    "name": "f",
                    "arguments": "{}",
                    "status": "completed",
                }
                for n in range(self._calls)
            ]
        else:
            part = {"type": "output_text", "text": "done", "annotations": []}
            output = [
                {
                    "type": "message",
                    "id": "m",
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            ]
        return ModelAnswer(
            output=[msgspec.Raw(msgspec.json.encode(it)) for it in output],
            usage=TokenUsage(requests=1),
        )


class Host:
    async def admit(self, run: RunId, states: States) -> None:
        return

    async def invoke(self, run: RunId, call: CallRequested, states: States) -> CallFinished:
        return msgspec.structs.replace(finished(0), call=call.call, turn=call.turn)


async def submit(bus: Bus) -> RunId:
    run = new_run()
    first = started()
    agent = first.graph.agents["a"]
    tool = ToolSpec(name="f", definition=msgspec.Raw(b'{"type":"function","name":"f"}'))
    agent = msgspec.structs.replace(agent, tools=[tool])
    graph = msgspec.structs.replace(first.graph, agents={"a": agent})
    first = msgspec.structs.replace(first, graph=graph)
    await bus.log.append(run, bus.subjects.start(run, "main"), first, after=0, msg_id=f"{run}:s")
    return run


@asynccontextmanager
async def working(bus: Bus, model: Talker, *, at_once: int = 64) -> AsyncIterator[Harness]:
    harness = Harness(bus, model, max_in_flight=at_once)
    host = ToolHost(bus, Host(), pool="h")
    await harness.start()
    await host.start()
    try:
        yield harness
    finally:
        await harness.stop()
        await host.stop()


def on_bus(nats_server: NatsServer, story: Callable[[Bus], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await story(bus)

    asyncio.run(main())


def test_runs_under_way_end_before_all_others_have_begun(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        runs = [await submit(bus) for _ in range(60)]
        model = Talker()
        async with working(bus, model, at_once=4):
            await asyncio.gather(*(bus.follow.done(run) for run in runs))
        begun: set[RunId] = set()
        at_first_end = 0
        for run in runs:
            for event in await bus.log.read(run):
                if isinstance(event.event, RunDone):
                    at_first_end = min(at_first_end or event.sequence, event.sequence)
        for run in runs:
            answers = [it for it in await bus.log.read(run) if isinstance(it.event, ModelAnswered)]
            if answers[0].sequence < at_first_end:
                begun.add(run)
        assert len(begun) < 30  # in lockstep all sixty would have had their first turn
        assert model.asked == 60 * TURNS

    on_bus(nats_server, story)


def test_a_turn_after_a_single_call_reads_nothing(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        heard: list[str] = []

        def hear(message: object) -> None:
            heard.append(message.subject)  # type: ignore[attr-defined]

        async with working(bus, Talker()):
            log = bus.topology.log
            for subject in (f"$JS.API.DIRECT.GET.{log}", f"$JS.API.STREAM.MSG.GET.{log}"):
                await bus.connection.subscribe(subject, hear)
            run = await submit(bus)
            listening = bus.subjects.live("done", run)
            ended = asyncio.Event()
            await bus.connection.subscribe(listening, lambda _: ended.set())
            await ended.wait()
        assert heard == []

    on_bus(nats_server, story)


def test_no_run_hangs_because_a_replica_lags(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        await add_lagging_replicas(bus)
        model = Talker(calls=10)  # so many are sent together, and have to be read back
        async with working(bus, model):
            runs = [await submit(bus) for _ in range(20)]
            await asyncio.gather(*(bus.follow.done(run) for run in runs))
        assert model.asked == 20 * TURNS
        assert await stale_answers(bus, bus.topology.log, bus.subjects.done(runs[0]))

    on_bus(nats_server, story)


def test_two_replicas_take_turns_with_each_others_events(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        model = Talker(calls=2)
        async with working(bus, model), working(bus, model):
            runs = [await submit(bus) for _ in range(40)]
            await asyncio.gather(*(bus.follow.done(run) for run in runs))
        assert model.asked == 40 * TURNS

    on_bus(nats_server, story)


def test_a_consumer_of_an_older_version_is_split_where_it_was(nats_server: NatsServer) -> None:
    async def story(bus: Bus) -> None:
        p = bus.subjects.prefix
        kinds = [f"{p}.run.*.{kind}.main" for kind in ("start", "turn", "result")]
        older = ConsumerSpec(name="harness-main", filters=[*kinds, f"{p}.task.*"])
        await bus.topology.ensure_consumer(bus.connection, older)
        async with working(bus, Talker()):
            run = await submit(bus)
            await bus.follow.done(run)
        await bus.topology.delete_consumer(bus.connection, "starts-main")
        await bus.topology.delete_consumer(bus.connection, "harness-main")
        # as the older version left it: all but the last start is settled
        await bus.topology.ensure_consumer(bus.connection, older)
        waiting = await submit(bus)
        info = await bus.topology.consumer_info(bus.connection, "harness-main")
        assert info is not None and info["num_pending"] > 1
        model = Talker()
        async with working(bus, model):
            await bus.follow.done(waiting)
        info = await bus.topology.consumer_info(bus.connection, "harness-main")
        assert info is not None and f"{p}.task.*" not in info["config"]["filter_subjects"]
        assert model.asked == TURNS

        async def is_settled() -> bool:
            starts = await bus.topology.consumer_info(bus.connection, "starts-main")
            return starts is not None and not starts["num_pending"]

        await eventually(is_settled, what="no start waits")

    on_bus(nats_server, story)
