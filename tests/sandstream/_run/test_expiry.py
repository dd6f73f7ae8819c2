"""Runs that would outlive the log are ended with a reason, whole, before they are cut in two."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.harness.expiry import (
    EXPIRED,
    end_expiring,
    read_horizon,
    remove_ended,
    stored_at,
)
from sandstream_actors.model import ModelClient, Route
from sandstream_bus.bus import Bus
from sandstream_bus.nats.topology import Retention
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    CancelRequested,
    RunDone,
    RunReopened,
    RunWaiting,
)
from sandstream_bus.wire.open_runs import OpenRun
from sandstream_bus.wire.sandboxes import Opened, SandboxSpec, SandboxUse
from sandstream_bus.wire.subjects import RunId, sandbox_of
from support.nats_server import NatsServer, open_bus
from support.runs import done, new_run, started
from support.scripted_log import RUN, begin
from support.waiting import eventually

from sandstream import Agent, Client, function_tool
from sandstream.approvals import ApprovalNotFound, open_approvals
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step, text, tool_call
from sandstream.worker import AgentWorker

pytestmark = pytest.mark.usefixtures("home")
AT_ONCE_S = 1e-6


@function_tool(needs_approval=True)
def refund(amount: int) -> str:
    """Pay back."""
    return f"refunded {amount}"


CLERK = Agent(name="Clerk", model="gpt-4.1", tools=[refund])
BOSS = Agent(
    name="Boss",
    model="gpt-4.1",
    instructions="I am the boss.",
    tools=[CLERK.as_tool("ask_clerk", "Asks the clerk.")],
)
REFUND = [tool_call("refund", {"amount": 5})]
NESTED = [
    tool_call("ask_clerk", {"input": "Refund."}).when("I am the boss."),
    tool_call("refund", {"amount": 5}).when("Refund."),
]


@asynccontextmanager
async def at_work(server: NatsServer, steps: list[Step]) -> AsyncIterator[Client]:
    environment = {"NATS_URL": server.url, "SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}
    server.set_up()
    async with (
        ScriptedModel(steps) as model,
        await Client.connect(Settings.from_env(environment)) as client,
    ):
        models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
        harness = Harness(client.bus, models)
        worker = AgentWorker(client.bus, {it.name: it for it in (CLERK, BOSS)}, pool="app")
        await harness.start()
        await worker.start()
        try:
            yield client
        finally:
            await worker.stop()
            await harness.stop()
            await models.aclose()


async def until_waiting(client: Client, run: str) -> None:
    async with aclosing(client.follow(run)) as events:
        async for event in events:
            if isinstance(event.event, RunWaiting):
                return
    raise AssertionError("the run ended")


async def limit_age(bus: Bus, seconds: float) -> None:
    """What an operator does who lowers the log's age limit, without a thought for open runs."""
    info = await bus.topology.stream_info(bus.connection, bus.topology.log)
    config = info["config"] | {
        "max_age": int(seconds * 1e9),
        "duplicate_window": int(min(seconds, 1) * 1e9),
    }
    reply = await bus.connection.request(
        f"$JS.API.STREAM.UPDATE.{bus.topology.log}", msgspec.json.encode(config)
    )
    assert b'"error"' not in reply.data, reply.data


def test_a_run_that_waits_for_a_person_is_ended_before_the_log_loses_it(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with at_work(nats_server, REFUND) as client:
            run = await client.submit("Clerk", "go")
            await until_waiting(client, run)
            assert await end_expiring(client.bus) == 0  # there are 30 days
            assert len(await client.approvals()) == 1
            assert await end_expiring(client.bus, max_age_s=AT_ONCE_S) == 1
            end = await client.wait(run)
            assert end.status == "failed" and end.error is not None
            assert end.error.code == EXPIRED
            assert "the log's age limit of" in end.error.message
            assert "sandstream setup --max-age-days" in end.error.message
            assert await client.approvals() == []
            with pytest.raises(ApprovalNotFound, match=r"it has ended \(failed\)"):
                await client.approve(run)
            assert await end_expiring(client.bus, max_age_s=AT_ONCE_S) == 0

    asyncio.run(main())


def test_a_whole_tree_ends_with_its_root(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with at_work(nats_server, NESTED) as client:
            run = await client.submit("Boss", "go")
            await until_waiting(client, run)
            [question] = await client.approvals()
            child = question.run_id
            assert question.root_run == run and child != run
            assert await end_expiring(client.bus, max_age_s=AT_ONCE_S) >= 1
            root, below = await asyncio.gather(client.wait(run), client.wait(child))
            assert root.error is not None and root.error.code == EXPIRED
            assert below.status in ("failed", "cancelled")
            events = await client.events(child)
            assert any(isinstance(it.event, CancelRequested) for it in events)
            assert await client.approvals() == []
            await eventually(lambda: _is_empty(client.bus), what="an index without entries")

    asyncio.run(main())


async def _has_joined(bus: Bus, run: str) -> bool:
    conversation = await bus.conversations.read("talk")
    return conversation.place_of(run) is not None


async def _is_empty(bus: Bus) -> bool:
    return await bus.open_runs.all() == []


def test_the_next_run_gets_the_conversation_of_an_expired_one(nats_server: NatsServer) -> None:
    async def main() -> None:
        steps = [tool_call("refund", {"amount": 5}), text("I am next.")]
        async with at_work(nats_server, steps) as client:
            first = await client.submit("Clerk", "go", session="talk")
            await until_waiting(client, first)
            second = await client.submit("Clerk", "and I?", session="talk")
            await eventually(lambda: _has_joined(client.bus, second), what="a run in the queue")
            entries = {it.run: it for it in await client.bus.open_runs.all()}
            assert entries.keys() == {first, second}
            horizon = await read_horizon(client.bus)
            older, younger = (stored_at(entries[RunId(it)].since) for it in (first, second))
            age_s = (horizon.now - older - (younger - older) * 0.1).total_seconds()
            assert await end_expiring(client.bus, max_age_s=age_s / 0.9) == 1
            assert (await client.wait(first)).status == "failed"
            assert bytes((await client.wait(second)).output) == b'"I am next."'

    asyncio.run(main())


def test_a_run_whose_beginning_is_lost_is_ended_by_the_next_harness(
    nats_server: NatsServer,
) -> None:
    async def main() -> None:
        async with at_work(nats_server, REFUND) as client:
            run = await client.submit("Clerk", "go")
            await until_waiting(client, run)
            first = (await client.events(run))[0].sequence
        async with open_bus(nats_server) as bus:
            await bus.connection.publish(  # something of the run is younger than its beginning
                bus.subjects.input(run), b'{"type":"input.staged","input":"more"}', msg_id="more"
            )
            await limit_age(bus, 1.0)

            async def is_lost() -> bool:
                state = await bus.topology.stream_state(bus.connection, bus.topology.log)
                return int(state["first_seq"]) > first

            await eventually(is_lost, what="a log without the run's first event")
        async with open_bus(nats_server, retention=Retention(max_age_days=1 / 86_400)) as bus:
            # it cannot be answered, so it is not listed
            assert await open_approvals(bus, limit=10) == []
            models = ModelClient([], environ={})
            harness = Harness(bus, models)
            await harness.start()
            await eventually(lambda: _is_empty(bus), what="an index without the run")
            await harness.stop()
            await models.aclose()

    asyncio.run(main())


def test_entries_of_runs_that_are_gone_are_removed(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            gone, ended = new_run(), new_run()
            await bus.open_runs.enter(gone, OpenRun(agent="a"))
            first = await bus.log.append(
                ended, bus.subjects.start(ended, "main"), started(), after=0, msg_id=f"{ended}:1"
            )
            await bus.log.append(
                ended, bus.subjects.done(ended), done(), after=first, msg_id=f"{ended}:2"
            )
            assert {it.run for it in await bus.open_runs.all()} == {gone, ended}
            assert await end_expiring(bus, max_age_s=AT_ONCE_S) == 0
            assert await bus.open_runs.all() == []
            last = await bus.log.last(bus.subjects.done(RunId(ended)))
            assert last is not None and isinstance(last.event, RunDone)
            assert last.event.status == "completed"

    asyncio.run(main())


def test_the_sandboxes_of_an_expired_run_are_closed(nats_server: NatsServer) -> None:
    async def main() -> None:
        box = sandbox_of(RUN, "a")
        opened = Opened(sandbox=box, provider="local", node="n1", generation=1, root="/workspace")
        asked = CallRequested(
            call="t1-open", kind="open", turn=1, agent="a", reply_pool="main", sandbox=box
        )
        output = msgspec.Raw(msgspec.json.encode(opened))
        answer = CallFinished(call="t1-open", kind="open", turn=1, output=output)
        async with open_bus(nats_server) as bus:
            s = bus.subjects
            last = 0
            for subject, event in (
                (s.start(RUN, "main"), begin(sandbox=SandboxUse(spec=SandboxSpec()))),
                (s.run_sandbox(RUN, "local"), asked),
                (s.result(RUN, "main"), answer),
            ):
                last = await bus.log.append(RUN, subject, event, after=last, msg_id=f"{RUN}:{last}")
            assert await end_expiring(bus, max_age_s=AT_ONCE_S) == 1
            [closing] = await bus.log.read_subject(s.run_sandbox(RUN, "local", "n1"))
            assert isinstance(closing.event, CallRequested)
            assert (closing.event.kind, closing.event.sandbox) == ("close", box)

    asyncio.run(main())


def test_a_run_that_has_ended_does_not_stay_in_the_index(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            s = bus.subjects
            for name in ("ended", "again", "going"):
                run = RunId(name)
                last = await bus.log.append(
                    run, s.start(run, "main"), started(), after=0, msg_id=f"{run}:1"
                )
                if name != "going":
                    last = await bus.log.append(
                        run, s.done(run), done(), after=last, msg_id=f"{run}:2"
                    )
                if name == "again":
                    again = RunReopened(reason="re-driven")
                    await bus.log.append(
                        run, s.turn(run, "main"), again, after=last, msg_id=f"{run}:3"
                    )
            await remove_ended(bus)
            assert {it.run for it in await bus.open_runs.all()} == {"again", "going"}

    asyncio.run(main())


def test_the_margin_is_a_tenth_of_the_age_but_at_most_a_day(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            month = await read_horizon(bus)
            assert month.max_age_s == 30 * 86_400 and month.margin_s == 86_400
            assert (await read_horizon(bus, 100.0)).margin_s == 10
            forever = await read_horizon(bus, 0.0)
            assert forever.limit == forever.oldest

    asyncio.run(main())


def test_a_young_run_is_not_ended_because_its_entry_is_older_than_the_log(
    nats_server: NatsServer,
) -> None:
    """Entry and start go to two streams: the entry may be stored first."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            await bus.open_runs.enter(run, OpenRun(agent="a"))
            await asyncio.sleep(0.01)
            subject = bus.subjects.start(run, "main")
            await bus.log.append(run, subject, started(), after=0, msg_id=f"{run}:1")
            assert await end_expiring(bus) == 0
            assert len(await bus.log.read(run)) == 1
            assert [it.run for it in await bus.open_runs.all()] == [run]

    asyncio.run(main())
