"""Trees of runs: depth, width, cancellation, budgets; children in this process and in others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_actors.run.deployed import UnknownAgent, resolved
from sandstream_actors.run.state import RunState
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CallRequested, ModelAnswered, RunDone, RunStarted
from sandstream_bus.wire.specs import Budget
from sandstream_bus.wire.subjects import RunId, child_of

from sandstream import (
    Agent,
    BudgetExceeded,
    Client,
    DeployedAgent,
    RunConfig,
    RunContextWrapper,
    Runner,
    SQLiteSession,
    ToolExecutionConfig,
    UserError,
    function_tool,
)
from sandstream._run.plan import RunPlan
from sandstream.agent_tool import AgentTool
from sandstream.items import ToolCallOutputItem
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step, text, tool_call, tool_calls
from sandstream.worker import AgentWorker

pytestmark = pytest.mark.usefixtures("home")
MODEL = "gpt-4.1"


def agent(name: str, *tools: Any, **options: Any) -> Agent[Any]:
    about: dict[str, Any] = {"instructions": f"I am {name}.", "model": MODEL, "tools": list(tools)}
    return Agent(name, **about | options)


def ask(helper: Agent[Any], **options: Any) -> AgentTool:
    tool = helper.as_tool(f"ask_{helper.name.lower()}", f"Asks {helper.name}.", **options)
    assert isinstance(tool, AgentTool)
    return tool


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """An installation of the test's own on the shared server."""
    return f"tree{abs(hash(request.node.nodeid)) % 10**9}"


@asynccontextmanager
async def cluster(
    steps: list[Step],
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    workers: dict[str, list[Agent[Any]]] | None = None,
    pools: tuple[str, ...] = ("main",),
) -> AsyncIterator[tuple[Client, ScriptedModel]]:
    """Harness replicas of these pools, and a worker for each name, whose turns its pool takes."""
    environ = {"SANDSTREAM_PREFIX": prefix, "SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}
    monkeypatch.setenv("SANDSTREAM_PREFIX", prefix)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModel(steps, strict=False))
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        client = await stack.enter_async_context(await Client.connect(Settings.from_env(environ)))
        models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
        stack.push_async_callback(models.aclose)
        for pool in pools:
            harness = Harness(client.bus, models, pool=pool)
            await harness.start()
            stack.push_async_callback(harness.stop, 0.0)
        for name, agents in (workers or {}).items():
            harness_pool = name if name in pools else "main"
            offered = {it.name: it for it in agents}
            worker = AgentWorker(client.bus, offered, pool=name, harness_pool=harness_pool)
            await worker.start()
            stack.push_async_callback(worker.stop)
        yield client, model


async def state_of(client: Client, run: str) -> RunState:
    return RunState.of(RunId(run), await client.bus.log.read(RunId(run)))


async def children_of(client: Client, run: str) -> list[str]:
    events = await client.bus.log.read(RunId(run))
    return [
        it.event.child
        for it in events
        if isinstance(it.event, CallRequested) and it.event.kind == "child"
    ]


async def log_of_tree(client: Client, run: str) -> list[LogEvent]:
    """The events of a run and of its children, in the order of the stream."""
    runs = [run, *await children_of(client, run)]
    logs = [await client.bus.log.read(RunId(it)) for it in runs]
    return sorted((event for log in logs for event in log), key=lambda it: it.sequence)


def sent(model: ScriptedModel, index: int) -> Any:
    """The input of a request to the model."""
    return model.requests[index]["input"]


# --- depth ----------------------------------------------------------------------------------------


def test_three_levels_add_up(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lowest = agent("Lowest")
    middle = agent("Middle", ask(lowest))
    top = agent("Top", ask(middle))
    steps = [
        tool_call("ask_middle", {"input": "down"}).when("I am Top"),
        tool_call("ask_lowest", {"input": "deeper"}).when("I am Middle"),
        text("bottom").when("I am Lowest"),
        text("half way").when("I am Middle"),
        text("up").when("I am Top"),
    ]

    async def main() -> None:
        async with cluster(steps, prefix, monkeypatch) as (client, _):
            result = await Runner.run(top, "go")
            assert result.final_output == "up"
            assert result.context_wrapper.usage.requests == 5
            state = await state_of(client, result.run_id)
            assert (state.tree_turns, state.tool_calls_made) == (5, 2)
            (child,) = await children_of(client, result.run_id)
            (grandchild,) = await children_of(client, child)
            link = (await state_of(client, grandchild)).started
            assert link is not None and link.parent is not None
            assert (link.parent.run, link.parent.root) == (child, result.run_id)

    asyncio.run(main())


def test_an_agent_may_have_itself_as_a_tool(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nested = agent("Self")
    nested.tools.append(ask(nested))
    steps = [
        tool_call("ask_self", {"input": "one deeper"}).when("the start"),
        tool_call("ask_self", {"input": "the end"}).when("one deeper"),
        text("deepest").when("the end"),
        text("deeper").when("one deeper"),
        text("top").when("the start"),
    ]

    async def main() -> None:
        async with cluster(steps, prefix, monkeypatch):
            result = await Runner.run(nested, "the start")
            outputs = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
            assert (result.final_output, outputs) == ("top", ["deeper"])
            assert result.context_wrapper.usage.requests == 5

    asyncio.run(main())


# --- width ----------------------------------------------------------------------------------------


def wide(count: int) -> list[Step]:
    many = tool_calls(*(("ask_helper", {"input": f"Do {n}."}) for n in range(count)))
    return [many.when("I am Boss"), text("all done").when("I am Boss")]


def test_a_hundred_children_over_two_replicas(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = agent("Helper")
    boss = agent("Boss", ask(helper))
    steps = [*wide(100), *(text(f"did {n}").when(f"Do {n}.") for n in range(100))]

    async def main() -> None:
        pools = ("main", "main")
        async with cluster(steps, prefix, monkeypatch, pools=pools) as (client, _):
            result = await Runner.run(boss, "go", run_config=RunConfig(harness_pool="main"))
            outputs = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
            assert outputs == [f"did {n}" for n in range(100)]
            events = await log_of_tree(client, result.run_id)
            started = [it.subject for it in events if isinstance(it.event, RunStarted)]
            assert len(started) == len(set(started)) == 101
            answered = [it.event for it in events if isinstance(it.event, ModelAnswered)]
            ended = [it for it in events if isinstance(it.event, RunDone)]
            assert (len(answered), len(ended)) == (102, 101)
            tokens = sum(it.usage.total_tokens for it in answered)
            usage = result.context_wrapper.usage
            assert (usage.requests, usage.total_tokens) == (102, tokens)

    asyncio.run(main())


@pytest.mark.parametrize("limit", [1, 3])
def test_the_cap_bounds_children_that_are_open_at_once(
    prefix: str, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    boss = agent("Boss", ask(agent("Helper")))
    steps = [*wide(10), *(text(f"did {n}").when(f"Do {n}.") for n in range(10))]
    execution = ToolExecutionConfig(max_function_tool_concurrency=limit)

    async def main() -> None:
        async with cluster(steps, prefix, monkeypatch) as (client, _):
            result = await Runner.run(boss, "go", run_config=RunConfig(tool_execution=execution))
            is_open, most = 0, 0
            for event in await log_of_tree(client, result.run_id):
                if f".{result.run_id}." in event.subject:
                    continue
                is_open += isinstance(event.event, RunStarted)
                is_open -= isinstance(event.event, RunDone)
                most = max(most, is_open)
            assert (is_open, most) == (0, limit)

    asyncio.run(main())


# --- ends before the children's -------------------------------------------------------------------


def waiting_helper(begun: asyncio.Semaphore, went_on: list[str]) -> Agent[Any]:
    """An agent whose tool never returns."""

    @function_tool
    async def wait() -> str:
        begun.release()
        await asyncio.Event().wait()
        went_on.append("went on")
        return "never"

    return agent("Helper", wait)


async def reached(begun: asyncio.Semaphore, count: int) -> None:
    for _ in range(count):
        await begun.acquire()


def test_children_of_a_cancelled_run_end_too(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*wide(50)[:1], *(tool_call("wait").when(f"Do {n}.") for n in range(50))]

    async def main() -> None:
        async with cluster(steps, prefix, monkeypatch) as (client, model):
            begun, went_on = asyncio.Semaphore(0), list[str]()
            boss = agent("Boss", ask(waiting_helper(begun, went_on)))
            running = Runner.run_streamed(boss, "go")
            await reached(begun, 50)
            children = await children_of(client, running.run_id)
            asked = len(model.requests)
            running.cancel()
            ends = await asyncio.gather(*(client.wait(child) for child in children))
            assert [done.status for done in ends] == ["cancelled"] * 50
            assert (await client.wait(running.run_id)).status == "cancelled"
            assert (went_on, len(model.requests)) == ([], asked)
            async for _ in running.stream_events():
                pass

    asyncio.run(main())


def test_time_over_ends_the_tree(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*wide(2)[:1], *(tool_call("wait").when(f"Do {n}.") for n in range(2))]

    async def main() -> None:
        async with cluster(steps, prefix, monkeypatch) as (client, _):
            begun, went_on = asyncio.Semaphore(0), list[str]()
            boss = agent("Boss", ask(waiting_helper(begun, went_on)))
            config = RunConfig(budget=Budget(seconds=1), run_key=f"key-{prefix}")
            with pytest.raises(BudgetExceeded) as raised:
                await Runner.run(boss, "go", run_config=config)
            assert raised.value.budget == "seconds"
            run = f"key-{prefix}"
            assert (await client.wait(run)).status == "budget"
            ends = [await client.wait(child) for child in await children_of(client, run)]
            assert [done.status for done in ends] == ["cancelled"] * 2 and not went_on

    asyncio.run(main())


def test_time_of_a_child_is_its_own(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*wide(1), tool_call("wait").when("Do 0.")]

    async def main() -> None:
        async with cluster(steps, prefix, monkeypatch):
            helper = waiting_helper(asyncio.Semaphore(0), [])

            def told(ctx: RunContextWrapper[Any], error: Exception) -> str:
                return type(error).__name__

            hurried = ask(
                helper,
                run_config=RunConfig(budget=Budget(seconds=0.2)),
                failure_error_function=told,
            )
            result = await Runner.run(agent("Boss", hurried), "go")
            outputs = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
            assert (result.final_output, outputs) == ("all done", ["BudgetExceeded"])

    asyncio.run(main())


@function_tool
def tick() -> str:
    """Tick."""
    return "tock"


@pytest.mark.parametrize(
    ("budget", "name", "requests"),
    [
        (Budget(turns=4), "turns", 4),
        (Budget(tokens=1), "tokens", 1),
        (Budget(tool_calls=3), "tool_calls", 5),
    ],
)
def test_what_a_tree_uses_together_is_limited(
    prefix: str, monkeypatch: pytest.MonkeyPatch, budget: Budget, name: str, requests: int
) -> None:
    """The helper ticks for ever; its caller asks it again and again."""
    helper_steps = [tool_call("tick").when("I am Helper") for _ in range(6)]
    boss_steps = [tool_call("ask_helper", {"input": "x"}).when("I am Boss") for _ in range(3)]

    async def main() -> None:
        async with cluster([*boss_steps, *helper_steps], prefix, monkeypatch) as (_, model):
            boss = agent("Boss", ask(agent("Helper", tick)))
            with pytest.raises(BudgetExceeded) as raised:
                await Runner.run(boss, "go", run_config=RunConfig(budget=budget))
            assert raised.value.budget == name
            assert len(model.requests) == requests

    asyncio.run(main())


# --- other processes ------------------------------------------------------------------------------


@function_tool
def whereabouts(ctx: RunContextWrapper[Any]) -> str:
    """Where am I?"""
    return "in the worker"


def remote_steps(first: Step) -> list[Step]:
    return [
        first.when("I am Boss"),
        tool_call("whereabouts", call_id="c9").when("I am Remote"),
        text("far away").when("I am Remote"),
        text("Boss done").when("I am Boss"),
    ]


def test_a_deployed_agent_as_a_tool(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = remote_steps(tool_call("ask_remote", {"input": "x"}))
    workers = {"elsewhere": [agent("Remote", whereabouts)]}

    async def main() -> None:
        pools = ("main", "elsewhere")
        setup = cluster(steps, prefix, monkeypatch, workers=workers, pools=pools)
        async with setup as (client, model):

            async def extract(result: Any) -> str:
                return f"{result.last_agent.name}: {result.final_output} {len(result.new_items)}"

            tool = ask(DeployedAgent("Remote"), custom_output_extractor=extract)
            result = await Runner.run(agent("Boss", tool), "go")
            outputs = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
            assert outputs == ["Remote: far away 3"]
            assert sent(model, 2)[-1]["output"] == "in the worker"
            (child,) = await children_of(client, result.run_id)
            state = await state_of(client, child)
            assert (state.pool, state.host) == ("elsewhere", "elsewhere")
            assert result.context_wrapper.usage.requests == 4

    asyncio.run(main())


def test_a_handoff_to_a_deployed_agent(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = remote_steps(tool_call("transfer_to_remote"))[:3]
    # it has a helper of its own, named as one of the caller's
    helper = agent("Helper", instructions="I am the remote helper.")
    remote = agent("Remote", whereabouts, ask(helper), handoffs=[agent("Desk")])
    remote.handoffs.append(remote)

    async def main() -> None:
        pools = ("main", "elsewhere")
        workers = {"elsewhere": [remote]}
        setup = cluster(steps, prefix, monkeypatch, workers=workers, pools=pools)
        async with setup as (client, _):
            local = agent("Helper", instructions="I am the local helper.")
            boss = agent("Boss", ask(local), handoffs=[DeployedAgent("Remote"), agent("Desk")])
            result = await Runner.run(boss, "go")
            assert (result.final_output, result.last_agent.name) == ("far away", "Remote")
            state = await state_of(client, result.run_id)
            assert (state.pool, state.host, state.turn) == ("elsewhere", "elsewhere", 3)
            assert state.started is not None
            graph = state.started.graph
            assert set(graph.agents) == {"Boss", "Remote", "Desk", "Desk#2"}
            assert [it.agent for it in graph.agents["Boss"].handoffs] == ["Remote", "Desk"]
            assert [it.agent for it in graph.agents["Remote"].handoffs] == ["Desk#2", "Remote"]
            child = graph.agents["Remote"].tools[-1].child
            assert child is not None
            told = graph.children[child.graph].agents["Helper"].instructions
            assert told == "I am the remote helper."

    asyncio.run(main())


def test_an_agent_tool_of_a_deployed_agent(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def extract(result: Any) -> str:
        seen.append(result.final_output)
        return "extracted"

    helper = agent("Helper", whereabouts)
    remote = agent("Remote", ask(helper, custom_output_extractor=extract))
    steps = [
        tool_call("ask_remote", {"input": "x"}).when("I am Boss"),
        tool_call("ask_helper", {"input": "y"}).when("I am Remote"),
        tool_call("whereabouts").when("I am Helper"),
        text("helped").when("I am Helper"),
        text("far away").when("I am Remote"),
        text("Boss done").when("I am Boss"),
    ]

    async def main() -> None:
        workers = {"elsewhere": [remote]}
        async with cluster(steps, prefix, monkeypatch, workers=workers) as (_, model):
            result = await Runner.run(agent("Boss", ask(DeployedAgent("Remote"))), "go")
            assert result.final_output == "Boss done" and seen == ["helped"]
            assert sent(model, 4)[-1]["output"] == "extracted"

    asyncio.run(main())


def test_an_agent_that_nobody_offers_is_refused_before_anything_happens(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        workers = {"elsewhere": [agent("Remote")]}
        async with cluster([], prefix, monkeypatch, workers=workers) as (client, model):
            for boss in (
                agent("Boss", ask(DeployedAgent("Nobody"))),
                agent("Boss", handoffs=[DeployedAgent("Nobody")]),
            ):
                with pytest.raises(UnknownAgent, match=r"'Nobody'.*known: Remote"):
                    await Runner.run(boss, "go")
            assert await client.list() == [] and model.requests == []

    asyncio.run(main())


def test_deployed_agents_that_know_each_other(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles over registrations end: by handoffs, and by agents as tools."""
    ping = agent("Ping", ask(DeployedAgent("Pong")), handoffs=[DeployedAgent("Pong")])
    pong = agent("Pong", ask(DeployedAgent("Ping")), handoffs=[DeployedAgent("Ping")])

    async def main() -> None:
        workers = {"one": [ping], "two": [pong]}
        async with cluster([], prefix, monkeypatch, workers=workers) as (client, _):
            graph = await RunPlan(DeployedAgent("Ping"), RunConfig(), "r").graph("h")
            full = await resolved(graph, client.bus.agents)
            assert {key: it.host for key, it in full.agents.items()} == {
                "Ping": "one",
                "Pong": "two",
            }
            circles = [full.agents, *(it.agents for it in full.children.values())]
            assert not any(it.remote for circle in circles for it in circle.values())
            assert len(full.children) == 2

    asyncio.run(main())


def test_what_a_deployed_agent_cannot_have() -> None:
    session = SQLiteSession("s")
    with pytest.raises(UserError, match="BusSession"):
        ask(DeployedAgent("Remote"), session=session)


def test_ids_of_children_follow_from_the_call() -> None:
    assert child_of("r", "t1-0") == child_of("r", "t1-0") != child_of("r", "t1-1")
    deep = RunId("r")
    for _ in range(50):
        deep = child_of(deep, "t1-0")
    assert len(deep) <= 64
