"""Handoffs in real runs: who answers, what the next agent reads, what the result shows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel
from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_bus.wire.messages import RunStarted

from sandstream import (
    Agent,
    Client,
    Handoff,
    HandoffCallItem,
    HandoffInputData,
    HandoffOutputItem,
    ModelBehaviorError,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolCallItem,
    ToolCallOutputItem,
    UserError,
    function_tool,
    handoff,
)
from sandstream.deployed_agent import DeployedAgent
from sandstream.lifecycle import AgentHooks, RunHooks
from sandstream.memory import SQLiteSession
from sandstream.result import RunResult
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step, answer, text, tool_call, tool_calls
from sandstream.worker import AgentWorker

pytestmark = pytest.mark.usefixtures("home")


@function_tool
def look_up() -> str:
    """Find the invoice."""
    return "invoice 7"


def agent(name: str, *handoffs: Any, **options: Any) -> Agent[Any]:
    return Agent(
        name=name,
        instructions=f"I am {name}.",
        model="gpt-4.1",
        handoffs=list(handoffs),
        **options,
    )


def play(
    steps: list[Step],
    program: Callable[[ScriptedModel], Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    async def main() -> Any:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            return await program(model)

    return asyncio.run(main())


def run(
    first: Agent[Any], steps: list[Step], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[RunResult, list[Any]]:
    """The result of a run, and the bodies of its requests."""

    async def program(model: ScriptedModel) -> Any:
        result = await Runner.run(first, "pay", **options)
        return result, list(model.requests)

    found: tuple[RunResult, list[Any]] = play(steps, program, monkeypatch)
    return found


def types(result: Any) -> list[str]:
    return [item.type for item in result.new_items]


TO_BILLING = [tool_call("transfer_to_billing"), text("Paid.")]


def test_the_next_agent_goes_on_with_the_whole_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    billing = agent("Billing")
    triage = agent("Triage", billing)
    result, requests = run(triage, list(TO_BILLING), monkeypatch)
    assert result.final_output == "Paid." and result.last_agent is billing
    called, taken, _ = result.new_items
    assert isinstance(called, HandoffCallItem) and called.agent is triage
    assert isinstance(taken, HandoffOutputItem)
    assert (taken.source_agent, taken.target_agent) == (triage, billing)
    assert taken.to_input_item()["output"] == '{"assistant": "Billing"}'
    assert [it["instructions"] for it in requests] == ["I am Triage.", "I am Billing."]
    assert [it.get("type") for it in requests[1]["input"]] == [
        None,
        "function_call",
        "function_call_output",
    ]
    assert result.to_input_list(mode="normalized") == result.to_input_list()


def test_a_chain_ends_with_its_last_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    last = agent("C")
    first = agent("A", agent("B", last))
    steps = [tool_call("transfer_to_b"), tool_call("transfer_to_c"), text("C here.")]
    result, requests = run(first, steps, monkeypatch)
    assert result.last_agent is last and result.final_output == "C here."
    assert [it["instructions"] for it in requests] == ["I am A.", "I am B.", "I am C."]


def test_agents_may_hand_over_in_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    ping, pong = agent("Ping"), agent("Pong")
    ping.handoffs, pong.handoffs = [pong], [ping]
    steps = [tool_call("transfer_to_pong"), tool_call("transfer_to_ping"), text("Enough.")]
    result, _ = run(ping, steps, monkeypatch)
    assert result.last_agent is ping
    assert types(result).count("handoff_output_item") == 2


def test_agents_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    second = agent("Twin")
    first = agent("Twin", handoff(second, tool_name_override="go"))
    second.instructions = "I am the second."
    result, requests = run(first, [tool_call("go"), text("Two.")], monkeypatch)
    assert result.last_agent is second
    assert [it["instructions"] for it in requests] == ["I am Twin.", "I am the second."]


def test_the_first_of_two_handoffs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed: list[str] = []
    sales, billing = agent("Sales"), agent("Billing")
    triage = agent(
        "Triage",
        handoff(billing, on_handoff=lambda ctx: noticed.append("billing")),
        handoff(sales, on_handoff=lambda ctx: noticed.append("sales")),
    )
    steps = [tool_calls(("transfer_to_sales", {}), ("transfer_to_billing", {})), text("Sold.")]
    result, _ = run(triage, steps, monkeypatch)
    assert noticed == ["sales"] and result.last_agent is sales
    ignored = result.new_items[2]
    assert isinstance(ignored, ToolCallOutputItem)
    assert ignored.output == "Multiple handoffs detected, ignoring this one."
    assert isinstance(result.new_items[3], HandoffOutputItem)


def test_streamed_items_beside_a_tool_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    billing = agent("Billing")
    triage = agent("Triage", billing, tools=[look_up])
    calls = [tool_call("transfer_to_billing"), tool_call("look_up")]

    async def program(model: ScriptedModel) -> None:
        streamed = Runner.run_streamed(triage, "pay")
        seen: list[str] = []
        async for event in streamed.stream_events():
            if event.type == "run_item_stream_event":
                seen.append(event.name)
            elif event.type == "agent_updated_stream_event":
                seen.append(event.new_agent.name)
        assert seen == [
            "Triage",
            "handoff_requested",
            "tool_called",
            "tool_output",
            "handoff_occured",
            "Billing",
            "message_output_created",
        ]
        assert streamed.last_agent is billing and streamed.current_turn == 2

    play([answer(*calls), text("Paid.")], program, monkeypatch)


class Reason(BaseModel):
    why: str


def test_a_handoff_may_need_input(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed: list[Any] = []

    async def notice(ctx: RunContextWrapper[Any], reason: Reason) -> None:
        noticed.append((ctx.context, reason.why, ctx.usage.requests))

    triage = agent("Triage", handoff(agent("Billing"), on_handoff=notice, input_type=Reason))
    steps = [tool_call("transfer_to_billing", {"why": "late"}), text("Paid.")]
    run(triage, steps, monkeypatch, context="ctx")
    assert noticed == [("ctx", "late", 1)]
    with pytest.raises(ModelBehaviorError):
        run(triage, [tool_call("transfer_to_billing", {"because": 1})], monkeypatch)


def test_what_a_callback_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(ctx: Any) -> None:
        raise ZeroDivisionError("not today")

    triage = agent("Triage", handoff(agent("Billing"), on_handoff=fail))
    with pytest.raises(ZeroDivisionError, match="not today"):
        run(triage, TO_BILLING[:1], monkeypatch)


def test_the_hooks_of_the_run_and_of_the_source_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    class OfRun(RunHooks[Any]):
        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
            seen.append(("run", from_agent.name, to_agent.name))

    class OfAgent(AgentHooks[Any]):
        async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
            seen.append((agent.name, source.name))

    triage = agent("Triage", agent("Billing", hooks=OfAgent()), hooks=OfAgent())
    run(triage, list(TO_BILLING), monkeypatch, hooks=OfRun())
    assert sorted(seen) == [("Billing", "Triage"), ("run", "Triage", "Billing")]


def test_a_disabled_handoff_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_now(ctx: RunContextWrapper[Any], source: Agent[Any]) -> bool:
        return bool(ctx.context == "open")

    triage = agent(
        "Triage",
        handoff(agent("One"), is_enabled=False),
        handoff(agent("Two"), is_enabled=open_now),
    )
    for context, offered in (("open", ["transfer_to_two"]), ("closed", [])):
        _, requests = run(triage, [text("Hm.")], monkeypatch, context=context)
        assert [tool["name"] for tool in requests[0].get("tools", [])] == offered
    with pytest.raises(ModelBehaviorError, match="transfer_to_two not found"):
        run(triage, [tool_call("transfer_to_two")], monkeypatch, context="closed")


# --- what the next agent reads --------------------------------------------------------------------


def test_a_filter_decides_what_the_model_and_the_result_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[HandoffInputData] = []

    def shorten(data: HandoffInputData) -> HandoffInputData:
        given.append(data)
        return data.clone(input_history="In short.", pre_handoff_items=(), input_items=())

    billing = agent("Billing")
    triage = agent("Triage", handoff(billing, input_filter=shorten), tools=[look_up])
    steps = [tool_call("look_up"), tool_call("transfer_to_billing"), text("Paid.")]
    result, requests = run(triage, steps, monkeypatch, context="ctx")
    (data,) = given
    assert data.input_history == "pay" and data.run_context is not None
    assert [item.type for item in data.pre_handoff_items] == [
        "tool_call_item",
        "tool_call_output_item",
    ]
    assert [item.type for item in data.new_items] == ["handoff_call_item", "handoff_output_item"]
    assert requests[2]["input"] == [{"content": "In short.", "role": "user"}]
    assert result.input == "In short."
    assert types(result) == [
        "tool_call_item",
        "tool_call_output_item",
        "handoff_call_item",
        "handoff_output_item",
        "message_output_item",
    ]
    assert len(result.to_input_list()) == 6
    assert [it.get("type") for it in result.to_input_list(mode="normalized")] == [None, "message"]


def test_items_keep_what_data_cannot_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter passes through the log; the items of this process are found again behind it."""
    billing = agent("Billing")
    triage = agent("Triage", handoff(billing, input_filter=lambda data: data), tools=[look_up])
    steps = [tool_call("look_up"), tool_call("transfer_to_billing"), text("Paid.")]
    result, _ = run(triage, steps, monkeypatch)
    called, looked_up, _, taken, _ = result.new_items
    assert isinstance(called, ToolCallItem) and called.description == "Find the invoice."
    assert isinstance(looked_up, ToolCallOutputItem) and looked_up.output == "invoice 7"
    assert isinstance(taken, HandoffOutputItem) and taken.target_agent is billing


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"new_items": ()}, ["message"]),
        ({"input_items": ()}, ["function_call", "function_call_output", "message"]),
    ],
)
def test_a_session_gets_of_a_turn_what_the_filter_keeps(
    changes: dict[str, Any], kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = partial(HandoffInputData.clone, **changes)
    triage = agent("Triage", handoff(agent("Billing"), input_filter=keep), tools=[look_up])

    async def program(model: ScriptedModel) -> Any:
        session = SQLiteSession("any")
        await Runner.run(triage, "pay", session=session)
        return await session.get_items()

    steps = [tool_call("look_up"), tool_call("transfer_to_billing"), text("Paid.")]
    stored = play(steps, program, monkeypatch)
    before = [None, "function_call", "function_call_output"]
    assert [item.get("type") for item in stored] == [*before, *kept]


def test_folded_messages_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    triage = agent("Triage", agent("Billing"))
    steps = [answer("One moment.", tool_call("transfer_to_billing")), text("Paid.")]
    config = RunConfig(nest_handoff_history=True)
    result, requests = run(triage, steps, monkeypatch, run_config=config)
    assert [it["role"] for it in requests[1]["input"]] == ["assistant"] * 3
    assert isinstance(result.input, list) and len(result.input) == 3
    said = [it for it in result.to_input_list() if "One moment." in str(it)]
    assert len(said) == 1 and "message_output_item" in types(result)
    assert len(result.to_input_list(mode="normalized")) == 4


def test_a_mapper_makes_the_whole_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(transcript: list[Any]) -> list[Any]:
        return [{"role": "user", "content": f"{len(transcript)} things"}]

    config = RunConfig(nest_handoff_history=True, handoff_history_mapper=count)
    _, requests = run(
        agent("Triage", agent("Billing")), list(TO_BILLING), monkeypatch, run_config=config
    )
    assert requests[1]["input"] == [{"role": "user", "content": "3 things"}]


def test_the_past_that_a_server_keeps_cannot_be_changed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filtered = agent("Triage", handoff(agent("Billing"), input_filter=lambda data: data))
    with pytest.raises(UserError, match="the server keeps this conversation"):
        run(filtered, TO_BILLING[:1], monkeypatch, auto_previous_response_id=True)
    config = RunConfig(nest_handoff_history=True)
    plain = agent("Triage", agent("Billing"))
    _, requests = run(
        plain, list(TO_BILLING), monkeypatch, auto_previous_response_id=True, run_config=config
    )
    assert [it["type"] for it in requests[1]["input"]] == ["function_call_output"]
    assert "nest_handoff_history has no effect" in caplog.text


# --- agents that are not known from the start -----------------------------------------------------


def made_by_hand(choose: Callable[[], Any]) -> Handoff[Any, Any]:
    async def go(ctx: RunContextWrapper[Any], arguments: str) -> Any:
        return choose()

    return Handoff(
        tool_name="pass_on",
        tool_description="",
        input_json_schema={"type": "object", "properties": {}, "additionalProperties": False},
        on_invoke_handoff=go,
        agent_name="whoever",
    )


def test_a_new_agent_becomes_part_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    boss = agent("Boss")
    stranger = agent("Triage", boss, tools=[look_up])  # has the name of an agent of the run
    stranger.instructions = "I am new here."
    triage = agent("Triage", made_by_hand(lambda: stranger))
    steps = [tool_call("pass_on"), tool_call("look_up"), tool_call("transfer_to_boss"), text("So.")]
    result, requests = run(triage, steps, monkeypatch)
    assert result.last_agent is boss
    assert [it["instructions"] for it in requests] == [
        "I am Triage.",
        "I am new here.",
        "I am new here.",
        "I am Boss.",
    ]
    assert result.new_items[1].target_agent is stranger  # type: ignore[union-attr]


def test_a_handoff_must_lead_to_an_agent_that_can_take_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for choice, problem in (
        ("nobody", "must return an Agent"),
        (DeployedAgent(name="Elsewhere"), "deployed agent 'Elsewhere', which the run does not"),
    ):
        triage = agent("Triage", made_by_hand(lambda choice=choice: choice))  # type: ignore[misc]
        with pytest.raises(UserError, match=problem):
            run(triage, [tool_call("pass_on")], monkeypatch)


def test_a_worker_hands_off_by_name_to_an_agent_of_its_own() -> None:
    """The stand-in for the deployed agent does not hide the agent, which the same worker hosts."""
    back = agent("Back", tools=[look_up])
    front = agent("Front", DeployedAgent(name="Back"))

    async def main() -> None:
        home = {"SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}
        settings = Settings.from_env({"SANDSTREAM_PREFIX": "onepool", **home})
        steps = [tool_call("transfer_to_back"), tool_call("look_up"), text("Here.")]
        async with ScriptedModel(steps) as model, await Client.connect(settings) as client:
            models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
            parts: list[Any] = [
                Harness(client.bus, models, pool="main"),
                AgentWorker(client.bus, {"Back": back, "Front": front}, pool="both"),
            ]
            for part in parts:
                await part.start()
            try:
                done = await client.wait(await client.submit("Front", "hi"))
            finally:
                for part in reversed(parts):
                    await part.stop()
                await models.aclose()
            assert (done.status, done.agent) == ("completed", "Back")
            assert "invoice 7" in model.journal[2].text

    asyncio.run(main())


def test_agents_of_two_harness_pools_and_two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run moves with the handoff: the other agent's turns are the other pool's."""
    noticed: list[str] = []
    back = agent("Back", tools=[look_up])
    front = agent(
        "Front",
        handoff(DeployedAgent(name="Back"), on_handoff=lambda ctx: noticed.append("passed on")),
    )

    async def main() -> None:
        home = {"SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"]}
        settings = Settings.from_env({"SANDSTREAM_PREFIX": "twopools", **home})
        steps = [tool_call("transfer_to_back"), tool_call("look_up"), text("Here.")]
        async with ScriptedModel(steps) as model, await Client.connect(settings) as client:
            models = ModelClient([Route(prefix="openai", base_url=model.base_url)], environ={})
            parts: list[Any] = [
                Harness(client.bus, models, pool="main"),
                Harness(client.bus, models, pool="other"),
                AgentWorker(client.bus, {"Back": back}, pool="back", harness_pool="other"),
                AgentWorker(client.bus, {"Front": front}, pool="front"),
            ]
            for part in parts:
                await part.start()
            try:
                run_id = await client.submit("Front", "hi")
                done = await client.wait(run_id)
                events = await client.events(run_id)
            finally:
                for part in reversed(parts):
                    await part.stop()
                await models.aclose()
        assert (done.status, done.agent, bytes(done.output)) == ("completed", "Back", b'"Here."')
        assert noticed == ["passed on"]
        assert isinstance(events[0].event, RunStarted)
        turns = [it.subject for it in events if ".turn." in it.subject]
        assert [it.rpartition(".")[2] for it in turns] == ["other"]
        results = [it.subject.rpartition(".")[2] for it in events if ".result." in it.subject]
        assert results == ["main", "other"]

    asyncio.run(main())
