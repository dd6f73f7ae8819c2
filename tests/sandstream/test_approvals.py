"""Runs that wait for people: nothing works for them meanwhile, anybody answers, and they go on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.wire.messages import ApprovalDecided, ApprovalRequested, RunDone, RunWaiting
from sandstream_bus.wire.open_runs import OpenRun, Question
from sandstream_bus.wire.subjects import RunId, sandbox_of
from support.model_requests import input_of
from support.nats_server import NatsServer, open_bus
from support.runs import new_run, started
from support.waiting import eventually

from sandstream import Agent, Client, RunConfig, Runner, RunState, UserError, function_tool
from sandstream._run.process import Process
from sandstream.approvals import AlreadyDecided, ApprovalNotFound, open_approvals
from sandstream.exceptions import ApprovalExpired
from sandstream.items import ToolCallOutputItem
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step, script_for, text, tool_call, tool_calls
from sandstream.worker import AgentWorker

pytestmark = pytest.mark.usefixtures("home")
DONE: list[int] = []


@function_tool(needs_approval=True)
def refund(amount: int) -> str:
    """Pay back."""
    DONE.append(amount)
    return f"refunded {amount}"


@function_tool
def look_up(n: int) -> str:
    """Find an invoice."""
    return f"invoice {n}"


CLERK = Agent(name="Clerk", model="gpt-4.1", tools=[refund, look_up])
BOSS = Agent(
    name="Boss",
    model="gpt-4.1",
    instructions="I am the boss.",
    tools=[CLERK.as_tool("ask_clerk", "Asks the clerk.")],
)
REFUND = [tool_call("refund", {"amount": 5}), text("Done.")]
TWO = tool_calls(("refund", {"amount": 5}), ("refund", {"amount": 7}))
NESTED = [
    tool_call("ask_clerk", {"input": "Refund."}).when("I am the boss."),
    text("The boss is done.").when("I am the boss."),
    tool_call("refund", {"amount": 5}).when("Refund."),
    text("The clerk is done.").when("Refund."),
]


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


class Site:
    """An installation: a client, and the actors that work while they are started."""

    def __init__(self, model: ScriptedModel, settings: Settings, config: RunConfig) -> None:
        self._model = model
        self._settings = settings
        self._config = config

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with await Client.connect(self._settings) as client:
            yield client

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Client]:
        async with self.client() as client:
            route = Route(prefix="openai", base_url=self._model.base_url)
            models = ModelClient([route], environ={})
            harness = Harness(client.bus, models)
            agents = {agent.name: agent for agent in (CLERK, BOSS)}
            worker = AgentWorker(client.bus, agents, pool="app", config=self._config)
            await harness.start()
            await worker.start()
            try:
                yield client
            finally:
                await worker.stop()
                await harness.stop()
                await models.aclose()


@asynccontextmanager
async def site(
    steps: list[Step], prefix: str, *, url: str = "", config: RunConfig | None = None, **more: Any
) -> AsyncIterator[Site]:
    environment = {
        "SANDSTREAM_PREFIX": prefix,
        "SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"],
    } | ({"NATS_URL": url} if url else {})
    async with ScriptedModel(steps, **more) as model:
        yield Site(model, Settings.from_env(environment), config or RunConfig())


async def until_waiting(client: Client, run: str, *, after: int = 0) -> RunWaiting:
    async with aclosing(client.follow(run, after=after)) as events:
        async for event in events:
            if isinstance(event.event, RunWaiting):
                return event.event
    raise AssertionError("the run ended")


async def output_of(client: Client, run: str) -> str:
    done = await client.wait(run)
    assert done.status == "completed", done
    return bytes(done.output).decode()


# --- nobody works, anybody answers ----------------------------------------------------------------


def test_a_waiting_run_outlives_everything(nats_server: NatsServer) -> None:
    async def main() -> None:
        nats_server.set_up("alone")
        async with site(REFUND, "alone", url=nats_server.url) as place:
            async with place.at_work() as client:
                run = await client.submit("Clerk", "go", approval_expires_s=3600)
                waiting = await until_waiting(client, run)
                assert [it.name for it in waiting.approvals] == ["refund"] and DONE == []
            await asyncio.to_thread(nats_server.kill)
            await asyncio.to_thread(nats_server.start)
            async with place.client() as client:
                [question] = await client.approvals()
                assert (question.run_id, question.root_run, question.agent) == (run, run, "Clerk")
                assert (question.tool, question.arguments) == ("refund", '{"amount":5}')
                assert question.since and question.expires_s == 3600
                answered = await client.approve(run, by="Ann")
                assert answered == question
                assert await client.approvals() == []
            async with place.at_work() as client:
                assert await output_of(client, run) == '"Done."' and DONE == [5]

    asyncio.run(main())


def test_the_first_answer_counts_and_the_second_hears_of_it() -> None:
    async def main() -> None:
        async with site(REFUND, "ap-first") as place, place.at_work() as client:
            run = await client.submit("Clerk", "go")
            await until_waiting(client, run)
            results = await asyncio.gather(
                *(client.approve(run, by=f"person {n}") for n in range(4)),
                *(client.reject(run, "t1-0", by=f"critic {n}") for n in range(4)),
                return_exceptions=True,
            )
            late = [it for it in results if isinstance(it, AlreadyDecided)]
            assert len(late) == 7
            events = await client.events(run)
            decided = [it for it in events if isinstance(it.event, ApprovalDecided)]
            assert len(decided) == 1
            first = decided[0].event
            assert isinstance(first, ApprovalDecided)
            assert {(it.by, it.approved, it.decided_at) for it in late} == {
                (first.by, first.approve, decided[0].stored.time)
            }
            assert f"by {first.by} at" in str(late[0])
            await client.wait(run)
            assert ([5] if first.approve else []) == DONE

    asyncio.run(main())


def test_answers_to_nothing_say_what_there_is() -> None:
    async def main() -> None:
        steps = [TWO, text("Done.")]
        async with site(steps, "ap-nothing") as place, place.at_work() as client:
            with pytest.raises(ApprovalNotFound, match="there is no run 'nowhere'"):
                await client.approve("nowhere")
            run = await client.submit("Clerk", "go")
            waiting = await until_waiting(client, run)
            with pytest.raises(ApprovalNotFound, match=r"2 calls of run .* say which: t1-0"):
                await client.approve(run)
            with pytest.raises(ApprovalNotFound, match="no waiting call 't9-9'"):
                await client.reject(run, "t9-9")
            await client.approve(run, "t1-1")

            async def waits_for_one() -> bool:
                events = [it.event for it in await client.events(run)]
                waits = [it for it in events if isinstance(it, RunWaiting)]
                return len(waits[-1].approvals) == 1

            await eventually(waits_for_one, what="the run waits for the other answer")
            await client.reject(run, waiting.approvals[0].call_id, message="Never.", by="Bob")
            await client.wait(run)
            assert DONE == [7]
            with pytest.raises(AlreadyDecided, match="was rejected by Bob"):
                await client.approve(run, "t1-0")
            with pytest.raises(AlreadyDecided, match="was rejected by Bob"):
                await client.approve(run)  # what it waited for last

    asyncio.run(main())


def test_a_rejection_is_told_to_the_model() -> None:
    async def main() -> None:
        async with ScriptedModel([REFUND[0], REFUND[0], text("Done.")]) as model:
            settings = Settings.from_env(
                {"SANDSTREAM_PREFIX": "ap-told", "SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}
            )
            async with Site(model, settings, RunConfig()).at_work() as client:
                run = await client.submit("Clerk", "go")
                await until_waiting(client, run)
                await client.reject(run, message="Not before Friday.")
                last = (await client.events(run))[-1].sequence
                await until_waiting(client, run, after=last)
                await client.send_input(run, "Then do not.", by="Ann")
                await client.reject(run)
                await client.wait(run)
                sent = input_of(model.requests[-1])
                outputs = [it["output"] for it in sent if it.get("type") == "function_call_output"]
                assert outputs == ["Not before Friday.", "Tool execution was not approved."]
                assert sent[-1]["content"] == "Then do not." and DONE == []
                with pytest.raises(UserError, match=r"has ended \(completed\)"):
                    await client.send_input(run, "Too late.")

    asyncio.run(main())


def test_an_answer_for_good_is_for_one_tool_of_one_agent() -> None:
    steps = [REFUND[0], tool_call("refund", {"amount": 7}), text("Done.")]

    async def main() -> None:
        async with site(steps, "ap-sticky") as place, place.at_work() as client:
            run = await client.submit("Clerk", "go")
            await until_waiting(client, run)
            await client.approve(run, always=True)
            assert await output_of(client, run) == '"Done."' and DONE == [5, 7]
            waits = [it for it in await client.events(run) if isinstance(it.event, RunWaiting)]
            assert len(waits) == 1

    asyncio.run(main())


def test_a_partly_answered_run_waits_for_the_rest() -> None:
    async def main() -> None:
        async with site([TWO, text("Done.")], "ap-part") as place, place.at_work() as client:
            run = await client.submit("Clerk", "go")
            await until_waiting(client, run)
            last = (await client.events(run))[-1].sequence
            await client.approve(run, "t1-1")
            waiting = await until_waiting(client, run, after=last)
            assert [it.call for it in waiting.approvals] == ["t1-0"] and DONE == [7]
            assert [it.call for it in await client.approvals()] == ["t1-0"]
            await client.approve(run)
            assert await output_of(client, run) == '"Done."' and DONE == [7, 5]

    asyncio.run(main())


def test_the_question_of_the_first_run_of_a_log_is_listed(nats_server: NatsServer) -> None:
    """The entry of a run is a moment older than its first event, and so than the whole log."""

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run = new_run()
            asked = ApprovalRequested(call="t1-0", turn=1, agent="a", name="pay", call_id="c")
            entry = OpenRun(waited=True, questions=[Question(asked=asked, since="now")])
            await bus.open_runs.enter(run, entry)
            start = bus.subjects.start(run, "main")
            await bus.log.append(run, start, started(), after=0, msg_id=f"{run}:start")
            assert [it.run_id for it in await open_approvals(bus, limit=9)] == [run]

    asyncio.run(main())


@pytest.mark.parametrize("where", ["top", "child"])
def test_a_question_of_a_child_run_is_answered_at_the_top_or_at_the_child(where: str) -> None:
    async def main() -> None:
        async with site(NESTED, f"ap-{where}") as place, place.at_work() as client:
            run = await client.submit("Boss", "go")
            waiting = await until_waiting(client, run)
            [question] = await client.approvals()
            assert question.root_run == run and question.agent == "Clerk"
            assert question.run_id == waiting.approvals[0].run != run
            await client.approve(run if where == "top" else question.run_id)
            with pytest.raises(AlreadyDecided):
                await client.reject(question.run_id if where == "top" else run, question.call)
            assert await output_of(client, run) == '"The boss is done."' and DONE == [5]
            assert await client.approvals() == []

    asyncio.run(main())


@pytest.mark.parametrize("outcome", ["reject", "approve", "fail"])
def test_a_question_expires(outcome: Literal["reject", "approve", "fail"]) -> None:
    config = RunConfig(approval_expires_s=0.3, approval_expiry=outcome)

    async def main() -> None:
        prefix = f"ap-expires-{outcome}"
        place_at = site(REFUND, prefix, config=config, strict=False)
        async with place_at as place, place.at_work() as client:
            run = await client.submit("Clerk", "go")
            done = await client.wait(run)
            events = [it.event for it in await client.events(run)]
            decided = [it for it in events if isinstance(it, ApprovalDecided)]
            assert [(it.by, it.expired) for it in decided] == [("timer", True)]
            assert ([5] if outcome == "approve" else []) == DONE
            if outcome == "fail":
                assert done.error is not None and done.error.code == "approval_expired"
            else:
                assert done.status == "completed"

    asyncio.run(main())


def test_a_caller_hears_that_its_question_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(approval_expires_s=0.2, approval_expiry="fail")

    async def main() -> None:
        async with ScriptedModel(REFUND[:1]) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            first = await Runner.run(CLERK, "go", run_config=config)
            bus = (await Process.of_this_loop()).bus
            await bus.follow.done(RunId(first.run_id))
            with pytest.raises(ApprovalExpired):
                await Runner.run(CLERK, first.to_state(), run_config=config)
            state = first.to_state()
            state.approve(first.interruptions[0])
            with pytest.raises(UserError, match="rejected by timer"):
                await Runner.run(CLERK, state, run_config=config)

    asyncio.run(main())


def test_a_keyed_run_that_waits_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with ScriptedModel(REFUND) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            config = RunConfig(run_key="ap-keyed")
            first = await Runner.run(CLERK, "go", run_config=config)
            again = await Runner.run(CLERK, "go", run_config=config)
            assert [it.call_id for it in again.interruptions] == [
                it.call_id for it in first.interruptions
            ]
            async with await Client.connect() as client:
                await client.approve(first.run_id)
            last = await Runner.run(CLERK, "go", run_config=config)
            assert last.final_output == "Done." and DONE == [5]

    asyncio.run(main())


# --- what a waiting run costs ---------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_sandbox_does_not_run_while_people_think(
    elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        tool_call("exec_command", {"cmd": "echo kept > note.txt"}),
        REFUND[0],
        tool_call("exec_command", {"cmd": "cat note.txt"}),
        text("Done."),
    ]
    agent = SandboxAgent(name="coder", model="gpt-4.1", tools=[refund])

    def config() -> RunConfig:
        return RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))

    async def begin() -> RunState[Any]:
        result = await Runner.run(agent, "go", run_config=config())
        bus = (await Process.of_this_loop()).bus
        name = sandbox_of(result.run_id, "coder")
        sandbox = SandboxRecord.of(name, await bus.sandboxes.read(name))
        assert not sandbox.is_live
        assert not await asyncio.to_thread(Path(sandbox.root).exists)
        return result.to_state()

    async def go_on(state: RunState[Any]) -> None:
        state.approve(state.get_interruptions()[0])
        result = await Runner.run(agent, state, run_config=config())
        assert result.final_output == "Done." and DONE == [5]
        outputs = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
        assert "kept" in outputs[-1]

    async def both() -> None:
        await go_on(await begin())

    async def main() -> None:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            if elsewhere:
                state = await asyncio.to_thread(asyncio.run, begin())
                await asyncio.to_thread(asyncio.run, go_on(state))
            else:
                await both()

    asyncio.run(main())


def test_fifty_runs_wait_at_once() -> None:
    jobs = [f"Refund number {n}." for n in range(50)]
    scripts = [script_for(job, REFUND) for job in jobs]

    async def main() -> None:
        async with site([], "ap-fifty", conversations=scripts, strict=False) as place:
            async with place.at_work() as client:
                runs = [await client.submit("Clerk", job) for job in jobs]
                await asyncio.gather(*(until_waiting(client, run) for run in runs))
            async with place.client() as client:
                found = await client.approvals(limit=100)
                assert {it.run_id for it in found} == set(runs) and len(found) == 50
                assert len(await client.approvals(limit=7)) == 7
                await asyncio.gather(*(client.approve(run) for run in runs))
            async with place.at_work() as client:
                ends = await asyncio.gather(*(client.wait(run) for run in runs))
                assert {end.status for end in ends} == {"completed"} and DONE == [5] * 50
                assert isinstance(ends[0], RunDone) and await client.approvals() == []

    asyncio.run(main())
