"""Two that work on the same thing: what the log says counts, for both."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelAnswer, ModelRequest
from sandstream_actors.model.client import OnEvent
from sandstream_actors.run.cancellations import Cancellations
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import StateCache, States
from sandstream_actors.tool_host.actor import ToolHost
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    CancelRequested,
    ErrorInfo,
    ModelDeferred,
)
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import call, new_run, started
from support.scripted_log import RUN, answer, begin, log, says
from support.waiting import eventually


class NoModel:
    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        raise AssertionError("not asked here")


def test_of_two_answers_to_one_turn_both_replicas_go_on_with_the_stored_one(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            subject = bus.subjects.start(run, "main")
            await bus.log.append(run, subject, started(), after=0, msg_id="start")
            events = await bus.log.read(run)
            delivery: Any = SimpleNamespace(
                sequence=events[0].sequence, deliveries=1, attempt=1, given_back=0
            )
            states = [RunState.of(run, events) for _ in range(2)]
            for state, words in zip(states, ("first", "second"), strict=True):
                harness = Harness(bus, NoModel())
                message = answer(1, says(words))
                await harness._append(state, bus.subjects.model(run), message, "t1:model", delivery)
            texts = [state.answer.text if state.answer else None for state in states]
            assert texts == ["first", "first"]
            assert len(await bus.log.read(run)) == 2

    asyncio.run(main())


class Host:
    """User code that answers with how often it was asked; a ``stop`` call cancels itself."""

    def __init__(self) -> None:
        self.asked = 0

    async def admit(self, run: RunId, states: States) -> None:
        return

    async def invoke(self, run: RunId, call: CallRequested, states: States) -> CallFinished:
        self.asked += 1
        if call.kind == "stop":
            raise asyncio.CancelledError
        output = Raw(b"%d" % self.asked)
        return CallFinished(call=call.call, kind=call.kind, turn=call.turn, output=output)


async def results_of(host: Host, nats_server: NatsServer, *asked: CallRequested) -> list[Any]:
    """What a tool host writes for these requests of one run."""
    async with open_bus(nats_server) as bus:
        tools = ToolHost(bus, host, pool="h")
        await tools.start()
        run, s = new_run(), bus.subjects
        await bus.log.append(run, s.start(run, "main"), started(), after=0, msg_id="start")
        for number, request in enumerate(asked):
            await bus.log.send(s.call(run, "h"), request, msg_id=f"{number}")

        async def read() -> list[LogEvent]:
            return await bus.log.read_subject(s.result(run, "main"))

        async def complete() -> bool:
            return len(await read()) == len(asked)

        await eventually(complete, what="a result for each request")
        await tools.stop()
        return [it.event for it in await read()]


def test_a_call_that_is_asked_again_after_a_move_gets_a_result_again(
    nats_server: NatsServer,
) -> None:
    """The first result does not count any more; the second must not be taken for a repetition."""
    results = asyncio.run(results_of(Host(), nats_server, call(0), call(0)))
    assert sorted(bytes(result.output) for result in results) == [b"1", b"2"]


def test_user_code_that_cancels_itself_has_an_outcome(nats_server: NatsServer) -> None:
    asked = CallRequested(call="t1-stop", kind="stop", turn=1, agent="a", reply_pool="main")
    (result,) = asyncio.run(results_of(Host(), nats_server, asked))
    assert result.error is not None
    assert "cancelled itself" in result.error.message


def test_two_that_load_a_state_at_once_fold_each_event_once() -> None:
    error = ErrorInfo(code="model_http", message="slow down")
    wait = ModelDeferred(turn=1, attempt=1, delay_s=60, waited_s=60, error=error)

    class SlowLog:
        epoch = 0

        async def read(self, run: RunId, *, after: int = 0) -> list[LogEvent]:
            await asyncio.sleep(0)
            return [event for event in log(begin(), wait) if event.sequence > after]

    async def main() -> None:
        slow: Any = SlowLog()
        states = StateCache(slow)
        await asyncio.gather(states.load(RUN), states.load(RUN))
        assert (await states.load(RUN)).usage.requests == 1

    asyncio.run(main())


def test_a_cancel_whose_live_copy_got_lost_still_stops_the_model_call(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cancellations, "_on_request", lambda *_: None)
    asked = asyncio.Event()

    class Endless:
        async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
            asked.set()
            return await asyncio.Future()

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            mine, other = Harness(bus, Endless()), Harness(bus, Endless(), pool="other")
            await mine.start()
            await other.start()
            run, s = new_run(), bus.subjects
            await bus.log.append(run, s.start(run, "main"), started(), after=0, msg_id="start")
            await asked.wait()
            later = CancelRequested(mode="after_turn")
            await bus.log.send(s.cancel(run), later, msg_id="later")
            now = CancelRequested(mode="immediate", reason="after_turn")
            await bus.log.send(s.cancel(run), now, msg_id="now")
            async with asyncio.timeout(5):
                assert (await bus.follow.done(run)).status == "cancelled"
            await mine.stop()
            await other.stop()
            assert not other._states._states

    asyncio.run(main())
