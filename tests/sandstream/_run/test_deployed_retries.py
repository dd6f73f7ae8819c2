"""Retries of deployed runs: who may, what is refused, child runs, conversations, tasks that never
began, and that nobody takes the old end for the new one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.harness.retries import retry_run
from sandstream_actors.model import ModelClient, Route
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_bus.logs.codec import encode
from sandstream_bus.logs.open_runs import is_over
from sandstream_bus.wire.messages import (
    CancelRequested,
    Claim,
    RetryRequested,
    RunDone,
    RunReopened,
    RunStarted,
    Task,
)
from sandstream_bus.wire.specs import Budget
from sandstream_bus.wire.subjects import RunId, child_of
from support.waiting import eventually

from sandstream import Agent, Client, function_tool
from sandstream._inspect.run_lists import list_open, list_runs
from sandstream.exceptions import RetryRefused
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step, error, script_for, text, tool_call, tool_calls
from sandstream.tool import Tool
from sandstream.worker import AgentWorker

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.timeout(60)]


class Desk:
    """Agents whose tools count their calls; what is in ``broken`` fails."""

    def __init__(self, *broken: str, hangs: bool = False) -> None:
        self.calls: Counter[str] = Counter()
        self.broken = set(broken)
        self.hangs = hangs
        self.started = asyncio.Event()
        self.go = asyncio.Event()

        def effect(name: str) -> str:
            self.calls[name] += 1
            if name in self.broken:
                raise RuntimeError(f"{name} is down")
            return name

        @function_tool(failure_error_function=None)
        def good() -> str:
            """Work."""
            return effect("good")

        @function_tool(failure_error_function=None)
        def bad() -> str:
            """Work, mostly."""
            return effect("bad")

        @function_tool(failure_error_function=None, delivery="at_most_once")
        def once() -> str:
            """Work at most once."""
            return effect("once")

        @function_tool
        async def slow() -> str:
            """Take for ever."""
            effect("slow")
            self.started.set()
            if self.hangs:
                await self.go.wait()
            return "slow"

        tools: list[Tool] = [good, bad, once, slow]
        self.below: Agent[Any] = Agent(name="below", tools=tools, model="gpt-4.1")
        below = self.below.as_tool("below", "Ask below.", failure_error_function=None)
        self.above: Agent[Any] = Agent(name="above", tools=[*tools, below], model="gpt-4.1")


@asynccontextmanager
async def deployed(
    prefix: str, desk: Desk, *scripts: tuple[str, list[Step]], serve: bool = True
) -> AsyncIterator[tuple[Client, ScriptedModel]]:
    environment = {"SANDSTREAM_PREFIX": prefix, "SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}
    conversations = [script_for(match, steps) for match, steps in scripts]
    async with (
        ScriptedModel(conversations=conversations, strict=False) as model,
        await Client.connect(Settings.from_env(environment)) as client,
    ):
        models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
        harness = Harness(client.bus, models)
        agents = {it.name: it for it in (desk.above, desk.below)}
        worker = AgentWorker(client.bus, agents, pool="app")
        await harness.start()
        if serve:
            await worker.start()
        try:
            async with asyncio.timeout(20):
                yield client, model
        finally:
            if serve:
                await worker.stop()
            await harness.stop()
            await models.aclose()


async def ended(client: Client, run: str, status: str) -> RunDone:
    done = await client.wait(run)
    assert done.status == status, done.error
    return done


async def count(client: Client, run: str, kind: type[Any]) -> int:
    return sum(isinstance(it.event, kind) for it in await client.events(run))


async def traced_status(client: Client, run: str) -> str:
    """How the run is shown; what has ended in its trace has a beginning and an end."""
    trace = RunTrace.of(run, await client.events(run))
    facts = trace.facts()
    ids = [span.span_id for span in trace.spans()]
    assert len(set(ids)) == len(ids)
    if facts.is_over:
        assert all(span.end_ns for span in trace.spans())
    return facts.status


BAD = [tool_call("good", {}), tool_call("bad", {}), text("done")]


def test_a_retried_run_is_open_again_for_everybody() -> None:
    async def main() -> None:
        desk = Desk("bad")
        script = ("go", [tool_call("bad", {}), tool_call("slow", {}), text("done")])
        async with deployed("ret1", desk, script) as (client, _):
            run = await client.submit("above", "go", key="open")
            await ended(client, run, "failed")
            await eventually(lambda: _is_closed(client, run), what="closed")
            desk.broken, desk.hangs = set(), True
            summary = await client.retry(run, reason="it is up again")
            assert summary.status == "running"
            await desk.started.wait()
            assert (await client.get(run)).status == "running"
            assert await traced_status(client, run) == "running"
            assert [it.run_id for it in await list_open(client.bus, limit=5)] == [run]
            assert [it.status for it in await list_runs(client.bus, limit=5)] == ["running"]
            with pytest.raises(TimeoutError):  # the old end is not the end
                async with asyncio.timeout(0.3):
                    await client.wait(run)
            await client.cancel(run)
            await ended(client, run, "cancelled")
            assert desk.calls == {"bad": 2, "slow": 1}
            assert await traced_status(client, run) == "cancelled"
            followed = [type(it.event) async for it in client.follow(run)]
            assert followed.count(RunDone) == 2 and followed[-1] is RunDone
            await eventually(lambda: _is_closed(client, run), what="closed")

    asyncio.run(main())


async def _is_closed(client: Client, run: str) -> bool:
    return not await client.bus.open_runs.has(run)


def test_what_has_not_failed_is_not_retried() -> None:
    async def main() -> None:
        desk = Desk(hangs=True)
        scripts = [("fine", [text("ok")]), ("wait", [tool_call("slow", {})])]
        async with deployed("ret2", desk, *scripts) as (client, _):
            fine = await client.submit("above", "fine", key="fine")
            await client.wait(fine)
            slow = await client.submit("above", "wait", key="slow")
            await desk.started.wait()
            with pytest.raises(RetryRefused, match="run fine has completed"):
                await client.retry(fine)
            with pytest.raises(RetryRefused, match="run slow is running"):
                await client.retry(slow)
            await client.cancel(slow)
            with pytest.raises(RetryRefused, match=r"run slow was cancelled.*result.to_state"):
                await client.retry(slow)
            for run in (fine, slow):
                assert await count(client, run, RunReopened) == 0

    asyncio.run(main())


def test_of_two_retries_one_wins_and_the_same_request_again_is_none() -> None:
    async def main() -> None:
        desk = Desk("bad")
        async with deployed("ret3", desk, ("go", BAD)) as (client, _):
            run = await client.submit("above", "go", key="two")
            await ended(client, run, "failed")
            desk.broken = set()
            outcomes = await asyncio.gather(
                *(client.retry(run) for _ in range(4)), return_exceptions=True
            )
            refused = [it for it in outcomes if isinstance(it, BaseException)]
            assert len(refused) == 3 and all(isinstance(it, RetryRefused) for it in refused)
            await ended(client, run, "completed")
            assert await count(client, run, RunReopened) == 1
            assert desk.calls == {"good": 1, "bad": 2}

    asyncio.run(main())


def test_a_request_that_is_delivered_twice_retries_once() -> None:
    async def main() -> None:
        desk = Desk("bad")
        async with deployed("ret4", desk, ("go", BAD)) as (client, _):
            await remember_message_ids(client, for_s=0.1)
            run = RunId(await client.submit("above", "go", key="twice"))
            for _ in range(2):  # the run fails again, and the second delivery comes after that
                await ended(client, run, "failed")
                await asyncio.sleep(0.3)  # the server has forgotten the message id
                await retry_run(client.bus, run, RetryRequested(), msg_id="ask:1:2")
            await ended(client, run, "failed")
            assert await count(client, run, RunReopened) == 1
            assert desk.calls["bad"] == 2

    asyncio.run(main())


async def remember_message_ids(client: Client, *, for_s: float) -> None:
    """Have the server of the log forget message ids soon."""
    stream = client.bus.topology.log
    info = await client.bus.connection.request(f"$JS.API.STREAM.INFO.{stream}", b"")
    config = json.loads(info.data)["config"] | {"duplicate_window": int(for_s * 1e9)}
    reply = await client.bus.connection.request(
        f"$JS.API.STREAM.UPDATE.{stream}", json.dumps(config).encode()
    )
    assert "error" not in json.loads(reply.data), reply.data


def test_a_call_at_most_once_that_is_known_to_have_failed_is_made_again() -> None:
    async def main() -> None:
        desk = Desk("once")
        script = ("go", [tool_call("once", {}), text("done")])
        async with deployed("ret5", desk, script) as (client, model):
            run = await client.submit("above", "go", key="once")
            await ended(client, run, "failed")
            desk.broken = set()
            await client.retry(run)
            await ended(client, run, "completed")
            assert desk.calls["once"] == 2
            assert '"output":"once"' in str(model.journal[-1].body).replace("'", '"').replace(
                ": ", ":"
            )

    asyncio.run(main())


# --- limits ---


def test_turns_and_budgets_may_only_grow() -> None:
    async def main() -> None:
        desk = Desk()
        steps = [tool_call("good", {}), tool_call("good", {}), text("done")]
        async with deployed("ret6", desk, ("go", steps)) as (client, _):
            run = await client.submit("above", "go", key="turns", max_turns=1)
            await ended(client, run, "max_turns")
            with pytest.raises(RetryRefused, match="would fail again at once: Max turns"):
                await client.retry(run)
            with pytest.raises(RetryRefused, match="a limit of 1 of turns, and 1 is not more"):
                await client.retry(run, max_turns=1)
            await client.retry(run, max_turns=2)
            await ended(client, run, "max_turns")
            await client.retry(run, max_turns=None)
            await ended(client, run, "completed")
            assert desk.calls["good"] == 2

            tight = await client.submit("above", "go", key="calls", budget=Budget(tool_calls=1))
            await ended(client, tight, "budget")
            with pytest.raises(RetryRefused, match=r"used up: 1 tool call; give a larger budget"):
                await client.retry(tight)
            await client.retry(tight, budget=Budget(tool_calls=2))
            await ended(client, tight, "completed")

    asyncio.run(main())


def test_a_budget_of_time_begins_anew() -> None:
    async def main() -> None:
        desk = Desk(hangs=True)
        steps = [tool_call("good", {}), tool_call("slow", {}), text("done")]
        async with deployed("ret7", desk, ("go", steps)) as (client, _):
            run = await client.submit("above", "go", key="time", budget=Budget(seconds=1))
            await ended(client, run, "budget")
            await client.retry(run)
            assert (await ended(client, run, "budget")).error is not None
            desk.hangs = False
            await client.retry(run, budget=Budget(seconds=30))
            await ended(client, run, "completed")
            assert desk.calls == {"good": 1, "slow": 3}
            assert await count(client, run, CancelRequested) == 2

    asyncio.run(main())


def test_the_alarm_of_the_first_budget_does_not_stop_a_retried_run() -> None:
    async def main() -> None:
        desk = Desk("bad", hangs=True)
        steps = [tool_call("bad", {}), tool_call("slow", {}), text("done")]
        async with deployed("ret15", desk, ("go", steps)) as (client, _):
            run = await client.submit("above", "go", key="alarm", budget=Budget(seconds=2))
            await ended(client, run, "failed")
            desk.broken = set()
            await client.retry(run, budget=Budget(seconds=60))
            await desk.started.wait()
            await asyncio.sleep(3)  # the time of the first budget is over
            desk.go.set()
            await ended(client, run, "completed")
            assert await count(client, run, CancelRequested) == 0

    asyncio.run(main())


# --- child runs ---


def test_a_child_goes_on_where_it_failed() -> None:
    async def main() -> None:
        desk = Desk("bad")
        above = [tool_call("good", {}), tool_call("below", {"input": "sub"}), text("all done")]
        async with deployed("ret8", desk, ("top", above), ("sub", BAD)) as (client, model):
            run = await client.submit("above", "top", key="tree")
            await ended(client, run, "failed")
            child = child_of(run, "t2-0")
            with pytest.raises(RetryRefused, match=r"run tree_t2-0 is part of run tree.*retry tr"):
                await client.retry(child)
            desk.broken = set()
            await client.retry(run)
            done = await ended(client, run, "completed")
            assert desk.calls == {"good": 2, "bad": 2}
            assert len(model.requests) == 6  # each answer once
            assert done.usage.requests == 6
            assert await count(client, child, RunStarted) == 1
            assert await count(client, child, RunReopened) == 1
            assert (await client.get(child)).status == "completed"
            assert await traced_status(client, run) == "completed"
            assert await traced_status(client, child) == "completed"

    asyncio.run(main())


def test_a_child_that_was_cut_short_by_its_parents_end_goes_on() -> None:
    async def main() -> None:
        desk = Desk(hangs=True)
        above = [tool_calls(("below", {"input": "sub"}), ("bad", {})), text("all done")]
        below = [tool_call("good", {}), tool_call("slow", {}), text("sub done")]
        async with deployed("ret9", desk, ("top", above), ("sub", below)) as (client, _):
            desk.broken = {"bad"}
            bad = desk.above.tools[1]
            original = bad.on_invoke_tool

            async def invoke(*arguments: Any) -> Any:
                await desk.started.wait()
                return await original(*arguments)

            bad.on_invoke_tool = invoke
            run = await client.submit("above", "top", key="cut")
            await ended(client, run, "failed")
            child = child_of(run, "t1-0")
            await ended(client, child, "cancelled")
            desk.broken, desk.hangs = set(), False
            await client.retry(run)
            await ended(client, run, "completed")
            assert desk.calls == {"good": 1, "slow": 2, "bad": 2}
            assert (await client.get(child)).status == "completed"

    asyncio.run(main())


def test_a_child_that_used_up_its_own_turns_cannot_be_helped() -> None:
    async def main() -> None:
        desk = Desk()
        tool = desk.below.as_tool("few", "Ask.", max_turns=1, failure_error_function=None)
        desk.above.tools.append(tool)
        scripts = [("top", [tool_call("few", {"input": "sub"})]), ("sub", [tool_call("good", {})])]
        async with deployed("ret10", desk, *scripts) as (client, _):
            run = await client.submit("above", "top", key="few")
            await ended(client, run, "max_turns")
            with pytest.raises(RetryRefused, match=r"child run few_t1-0 has used up the turns"):
                await client.retry(run, max_turns=50)

    asyncio.run(main())


# --- conversations ---


def test_a_retried_run_takes_its_turn_in_the_conversation() -> None:
    async def main() -> None:
        desk = Desk(hangs=True)
        talk = [text("two"), tool_call("slow", {}), text("three"), text("one")]
        scripts = [("first", [error(400)]), ("second", talk)]  # by what comes first in a request
        async with deployed("ret11", desk, *scripts) as (client, model):
            first = await client.submit("above", "first", key="c1", session="talk")
            await ended(client, first, "failed")
            second = await client.submit("above", "second", key="c2", session="talk")
            await ended(client, second, "completed")
            third = await client.submit("above", "third", key="c3", session="talk")
            await desk.started.wait()
            await client.retry(first)
            await eventually(lambda: _is_queued(client, first), what="queued")
            assert (await client.get(first)).status == "running"
            desk.go.set()
            await ended(client, third, "completed")
            await ended(client, first, "completed")
            after = await client.bus.conversations.read("talk")
            assert not after.waiting
            said = [bytes(it).decode() for it in after.history]
            assert sum('"first"' in it for it in said) == 1
            assert "three" in str(model.requests[-1]["input"])  # it has read what was said since
            assert '"first"' in said[-2] and "one" in said[-1]

    asyncio.run(main())


async def _is_queued(client: Client, run: str) -> bool:
    return (await client.bus.conversations.read("talk")).place_of(run) == 1


def test_a_conversation_has_what_a_retried_run_said_once() -> None:
    async def main() -> None:
        desk = Desk("bad")
        async with deployed("ret12", desk, ("go", BAD)) as (client, _):
            run = await client.submit("above", "go", key="said", session="talk")
            await ended(client, run, "failed")
            desk.broken = set()
            await client.retry(run)
            await ended(client, run, "completed")
            talk = await client.bus.conversations.read("talk")
            said = [bytes(it).decode() for it in talk.history]
            assert [sum(word in it for it in said) for word in ('"go"', '"done"')] == [1, 1]
            outputs = [it for it in said if "function_call_output" in it]
            assert len(outputs) == 2 and len(said) == 6

    asyncio.run(main())


# --- tasks that never began ---


def test_a_task_of_an_unknown_agent_begins_once_there_is_one() -> None:
    async def main() -> None:
        desk = Desk()
        async with deployed("ret13", desk, ("go", [text("done")]), serve=False) as (client, _):
            run = await client.submit("above", "go", key="early")
            done = await ended(client, run, "failed")
            assert done.error is not None and done.error.code == "unknown_agent"
            with pytest.raises(RetryRefused, match="would be refused again: no agent 'above'"):
                await client.retry(run)
            assert not await client.parked()
            assert await count(client, run, RunReopened) == 0
            worker = AgentWorker(client.bus, {"above": desk.above}, pool="app")
            await worker.start()
            try:
                await client.retry(run)
                await ended(client, run, "completed")
            finally:
                await worker.stop()
            kinds = [type(it.event) for it in await client.events(run)]
            assert kinds[:3] == [RunDone, RunReopened, RunStarted]
            assert [it.status for it in await list_runs(client.bus, limit=5)] == ["completed"]
            assert is_over([it.event for it in await client.events(run)])
            assert await traced_status(client, run) == "completed"
            with pytest.raises(RetryRefused, match="has completed"):
                await client.retry(run)

    asyncio.run(main())


@pytest.mark.parametrize("key", ["named", ""])
def test_a_parked_task_that_is_redriven_becomes_its_own_run(key: str) -> None:
    async def main() -> None:
        desk = Desk()
        prefix = f"ret14{key}"
        async with deployed(prefix, desk, ("go", [text("done")])) as (client, _):
            bus = client.bus
            # an object that is not there yet: nobody can read the task, and it is parked
            body = await bus.codec.encode_task(Task(input="go"))
            digest = hashlib.sha256(body).hexdigest()
            claim = Claim(of="task", digest=digest, size_bytes=len(body))
            headers = {"Sandstream-Key": key} if key else {}
            ack = await bus.connection.publish(
                bus.subjects.task("above"), encode(claim), msg_id="", headers=headers
            )
            run = key or f"task-{ack.seq}"
            done = await ended(client, run, "failed")
            assert done.error is not None and done.error.code == "parked"
            [entry] = await client.parked()
            await bus.objects.put(body)
            await client.redrive(entry.id)
            await ended(client, run, "completed")
            assert not await client.parked()
            assert [it.run_id for it in await list_runs(bus, limit=5)] == [run]

    asyncio.run(main())
