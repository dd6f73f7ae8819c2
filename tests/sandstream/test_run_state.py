"""Saved states of runs: what they hold, where they go on, and what is said when they cannot."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sandstream_bus.wire.messages import RunMoved, RunRestored
from sandstream_bus.wire.subjects import RunId
from support.model_requests import input_of
from support.nats_server import NatsServer

from sandstream import (
    Agent,
    Client,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunState,
    SQLiteSession,
    ToolApprovalItem,
    UserError,
    function_tool,
    input_guardrail,
)
from sandstream._run.process import Process
from sandstream.items import ToolCallOutputItem
from sandstream.testing import ScriptedModel, Step, text, tool_call, tool_calls

pytestmark = pytest.mark.usefixtures("home")
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "run_state"


class Ledger:
    """An agent whose refunds wait for a person, and what it did."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @function_tool(needs_approval=True)
        def refund(amount: int) -> str:
            """Pay back."""
            self.done.append(f"refund {amount}")
            return f"refunded {amount}"

        @function_tool
        def look_up(n: int) -> str:
            """Find an invoice."""
            self.done.append(f"look_up {n}")
            return f"invoice {n}"

        self.clerk = Agent(name="Clerk", model="gpt-4.1", tools=[refund, look_up])
        self.boss = Agent(
            name="Boss",
            model="gpt-4.1",
            instructions="I am the boss.",
            tools=[self.clerk.as_tool("ask_clerk", "Asks the clerk.")],
        )


def play(
    steps: list[Step],
    program: Callable[[Ledger, ScriptedModel], Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    async def main() -> Any:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            return await program(Ledger(), model)

    return asyncio.run(main())


REFUND = [tool_call("refund", {"amount": 5}), text("Done.")]
NESTED = [
    tool_call("ask_clerk", {"input": "Refund."}).when("I am the boss."),
    text("The boss is done.").when("I am the boss."),
    tool_call("refund", {"amount": 5}).when("Refund."),
    text("The clerk is done.").when("Refund."),
]


def steps_end(steps: list[Step]) -> str:
    return "The boss is done." if steps is NESTED else "Done."


def kinds(result: Any) -> list[str]:
    return [item.type for item in result.new_items]


async def restored(agent: Agent[Any], state: RunState[Any], **options: Any) -> RunState[Any]:
    return await RunState.from_string(agent, state.to_string(), **options)


# --- going on -------------------------------------------------------------------------------------


def test_the_same_run_goes_on_and_its_result_shows_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        assert first.final_output is None and it.done == []
        [item] = first.interruptions
        assert isinstance(item, ToolApprovalItem)
        assert (item.tool_name, item.arguments, item.run_id) == (
            "refund",
            '{"amount":5}',
            first.run_id,
        )
        state = await restored(it.clerk, first.to_state())
        state.approve(state.get_interruptions()[0])
        second = await Runner.run(it.clerk, state)
        assert second.run_id == first.run_id and second.input == "go"
        assert second.final_output == "Done." and it.done == ["refund 5"]
        assert kinds(second) == [
            "tool_call_item",
            "tool_approval_item",
            "tool_call_output_item",
            "message_output_item",
        ]
        assert second.interruptions == []
        assert second.context_wrapper.usage.requests == 2 and len(model.requests) == 2

    play(REFUND, program, monkeypatch)


def test_a_state_without_answers_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        again = await Runner.run(it.clerk, first.to_state())
        assert [item.call_id for item in again.interruptions] == [
            item.call_id for item in first.interruptions
        ]
        assert len(model.requests) == 1

    play(REFUND[:1], program, monkeypatch)


def test_answers_to_some_calls_pause_the_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        result = await Runner.run(it.clerk, "go")
        state = result.to_state()
        state.approve(result.interruptions[1])
        result = await Runner.run(it.clerk, await restored(it.clerk, state))
        assert it.done == ["refund 7"]
        [left] = result.interruptions
        assert left.arguments == '{"amount":5}'
        state = result.to_state()
        state.reject(left, rejection_message="Not this one.")
        result = await Runner.run(it.clerk, state)
        assert result.final_output == "Done." and it.done == ["refund 7"]
        outputs = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
        assert outputs == ["refunded 7", "Not this one."]

    steps = [tool_calls(("refund", {"amount": 5}), ("refund", {"amount": 7})), text("Done.")]
    play(steps, program, monkeypatch)


@pytest.mark.parametrize("nested", [False, True])
def test_another_process_takes_the_run(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event loop has a process of its own, with a pool that nobody else serves."""
    steps = NESTED if nested else REFUND

    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.boss if nested else it.clerk, "go")
        other = Ledger()
        saved = first.to_state().to_string()
        done = await asyncio.to_thread(asyncio.run, resume(other, saved))
        assert done.run_id == first.run_id and done.final_output == steps_end(steps)
        assert other.done == ["refund 5"] and it.done == []
        process = await Process.of_this_loop()
        events = await process.bus.log.read(done.run_id)
        moves = [event.event for event in events if isinstance(event.event, RunMoved)]
        assert [move.host == process.pool for move in moves] == [False]

    async def resume(other: Ledger, saved: str) -> Any:
        agent = other.boss if nested else other.clerk
        state = await RunState.from_string(agent, saved)
        state.approve(state.get_interruptions()[0])
        return await Runner.run(agent, state)

    play(steps, program, monkeypatch)


@pytest.mark.parametrize("nested", [False, True])
def test_a_log_that_does_not_have_the_run_gets_it(
    nested: bool, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = REFUND if not nested else NESTED

    async def save(it: Ledger) -> str:
        agent = it.boss if nested else it.clerk
        result = await Runner.run(agent, "go")
        state = result.to_state()
        state.add_input("Hurry.")
        return state.to_string()

    async def resume(it: Ledger, saved: str) -> Any:
        agent = it.boss if nested else it.clerk
        state = await RunState.from_string(agent, saved)
        [item] = state.get_interruptions()
        state.approve(item)
        result = await Runner.run(agent, state)
        events = await (await Process.of_this_loop()).bus.log.read(RunId(result.run_id))
        again = await Runner.run(agent, state)  # the state that brought it here is known here
        return result, events, again

    async def main() -> None:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            it = Ledger()
            saved = await asyncio.to_thread(asyncio.run, save(it))
            nats_server.set_up("elsewhere")
            monkeypatch.setenv("NATS_URL", nats_server.url)
            monkeypatch.setenv("SANDSTREAM_PREFIX", "elsewhere")
            result, events, again = await asyncio.to_thread(asyncio.run, resume(it, saved))
            assert isinstance(events[0].event, RunRestored)
            assert result.final_output == again.final_output == steps_end(steps)
            assert it.done == ["refund 5"] and result.run_id == json.loads(saved)["run_id"]
            asked = [input_of(r) for r in model.requests]
            assert [sum("Hurry." in str(i) for i in items) for items in asked][-1] == 1

    asyncio.run(main())


def test_a_question_of_a_nested_agent_is_answered_at_the_top(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.boss, "go")
        [item] = first.interruptions
        assert item.agent is it.clerk and item.run_id != first.run_id
        state = await restored(it.boss, first.to_state())
        state.approve(state.get_interruptions()[0])
        second = await Runner.run(it.boss, state)
        assert second.final_output == "The boss is done." and it.done == ["refund 5"]

    play(NESTED, program, monkeypatch)


# --- input, and runs that were stopped ------------------------------------------------------------


def test_added_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        state = first.to_state()
        state.add_input("Hurry.")
        state.add_input([{"role": "user", "content": "Please."}])
        state = await restored(it.clerk, state)
        assert [item["content"] for item in state.pending_input] == ["Hurry.", "Please."]
        state.approve(state.get_interruptions()[0])
        await Runner.run(it.clerk, state)
        again = await Runner.run(it.clerk, state)  # the same state a second time: nothing new
        assert again.final_output == "Done."
        sent = input_of(model.requests[1])
        assert [item.get("content") for item in sent[-2:]] == ["Hurry.", "Please."]
        assert len(model.requests) == 2
        state.clear_pending_input()
        assert state.pending_input == []

    play(REFUND, program, monkeypatch)


def test_added_input_is_input_for_guardrails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        seen: list[Any] = []

        @input_guardrail
        def calm(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
            seen.append(given)
            return GuardrailFunctionOutput(None, tripwire_triggered="Hurry" in str(given))

        it.clerk.input_guardrails = [calm]
        first = await Runner.run(it.clerk, "go")
        state = first.to_state()
        state.add_input("Hurry.")
        state.approve(first.interruptions[0])
        with pytest.raises(InputGuardrailTripwireTriggered):
            await Runner.run(it.clerk, state)
        assert seen == ["go", [{"role": "user", "content": "Hurry."}]]
        assert len(model.requests) == 1 and it.done == ["refund 5"]

    play(REFUND[:1], program, monkeypatch)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_run_that_was_stopped_after_a_turn_goes_on(
    streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = Runner.run_streamed(it.clerk, "go")
        with pytest.raises(UserError, match="under way"):
            first.to_state()
        async for event in first.stream_events():
            if event.type == "run_item_stream_event" and event.name == "tool_called":
                first.cancel(mode="after_turn")
        assert it.done == ["look_up 1"] and first.final_output is None
        state = await restored(it.clerk, first.to_state())
        state.add_input("Be quick.")
        if streamed:
            second: Any = Runner.run_streamed(it.clerk, state)
            types = [event.type async for event in second.stream_events()]
            assert types[0] == "agent_updated_stream_event" and "raw_response_event" in types
        else:
            second = await Runner.run(it.clerk, state)
        assert second.final_output == "Done." and it.done == ["look_up 1"]
        assert second.run_id == first.run_id
        assert input_of(model.requests[1])[-1]["content"] == "Be quick."
        assert bool(model.requests[1].get("stream")) == streamed

    play([tool_call("look_up", {"n": 1}), text("Done.")], program, monkeypatch)


def test_the_model_of_a_finished_run_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        state = first.to_state()
        with pytest.raises(UserError, match="over"):
            state.add_input("More.")
        second = await Runner.run(it.clerk, state)
        assert second.final_output == "Again." and len(second.raw_responses) == 2

    play([text("Done."), text("Again.")], program, monkeypatch)


def test_a_result_that_released_its_agents_keeps_none_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        result = await Runner.run(it.clerk, "go")
        clerk = weakref.ref(it.clerk)
        del it.clerk, it.boss
        result.release_agents()
        gc.collect()
        assert clerk() is None
        with pytest.raises(UserError, match="call to_state\\(\\) first"):
            result.to_state()

    play([text("Done.")], program, monkeypatch)


def test_input_that_nobody_would_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go", max_turns=1)
        with pytest.raises(UserError, match="max_turns=1"):
            first.to_state().add_input("More.")
        it.clerk.tool_use_behavior = "stop_on_first_tool"
        second = await Runner.run(it.clerk, "go")
        state = second.to_state()
        with pytest.raises(UserError, match="may end the run"):
            state.add_input("More.")
        state.approve(second.interruptions[0])
        assert (await Runner.run(it.clerk, state)).final_output == "refunded 5"

    play([REFUND[0], REFUND[0]], program, monkeypatch)


# --- others decided meanwhile ---------------------------------------------------------------------


def test_what_others_decided_meanwhile_must_be_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        other, same = first.to_state(), first.to_state()
        other.reject(first.interruptions[0])
        same.approve(first.interruptions[0])
        async with await Client.connect() as client:
            await client.approve(first.run_id, by="Ann")
        with pytest.raises(UserError, match=r"approved by Ann at .* after the state was saved"):
            await Runner.run(it.clerk, other)
        assert (await Runner.run(it.clerk, same)).final_output == "Done."
        assert it.done == ["refund 5"]

    play(REFUND, program, monkeypatch)


def test_a_run_that_ended_meanwhile_takes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        async with await Client.connect() as client:
            await client.cancel(first.run_id, reason="too late")
        state = first.to_state()
        state.approve(first.interruptions[0])
        with pytest.raises(UserError, match=r"the run has ended \(cancelled: too late\)"):
            await Runner.run(it.clerk, state)

    play(REFUND[:1], program, monkeypatch)


def test_a_state_of_long_ago_does_not_fit_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        state = first.to_state()
        state.approve(first.interruptions[0])
        second = await Runner.run(it.clerk, state)
        assert [item.arguments for item in second.interruptions] == ['{"amount":7}']
        old = first.to_state()
        old.reject(first.interruptions[0])
        with pytest.raises(UserError, match="approved by state"):
            await Runner.run(it.clerk, old)

    play([REFUND[0], tool_call("refund", {"amount": 7})], program, monkeypatch)


# --- contexts -------------------------------------------------------------------------------------


@dataclass
class Basket:
    total: int = 3


class Opaque:
    pass


def test_contexts_are_stored_where_they_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go", context={"user": "Ann"})
        state = first.to_state()
        assert (await restored(it.clerk, state)).context.context == {"user": "Ann"}
        state.context.context = Basket()
        loaded = await restored(it.clerk, state)
        assert loaded.context.context == {"total": 3}
        loaded = await restored(it.clerk, state, context_deserializer=lambda it: Basket(**it))
        assert loaded.context.context == Basket(3)
        assert state.to_json()["context_meta"]["serialized_via"] == "asdict"
        with pytest.raises(UserError, match="context_deserializer"):
            await restored(it.clerk, state, strict_context=True)
        with pytest.raises(UserError, match="context_serializer"):
            state.to_json(strict_context=True)
        state.context.context = Opaque()
        data = state.to_json()
        assert data["context"] == {} and data["context_meta"]["omitted"] is True
        wrapped = RunContextWrapper(context="mine")
        loaded = await RunState.from_json(it.clerk, data, context_override=wrapped)
        assert loaded.context.context == "mine"
        data = state.to_json(context_serializer=lambda _: {"kept": 1}, strict_context=True)
        assert data["context"] == {"kept": 1}
        with pytest.raises(UserError, match="must return a mapping"):
            state.to_json(context_serializer=lambda _: [1])  # type: ignore[arg-type,return-value]
        state.context.context = {"bad": Opaque()}
        with pytest.raises(UserError, match="is not JSON"):
            state.to_json()

    play(REFUND[:1], program, monkeypatch)


def test_decisions_of_the_context_are_part_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        [item] = first.interruptions
        context, call_id = first.context_wrapper, item.call_id or ""
        assert context.is_tool_approved("refund", call_id) is None
        context.reject_tool(item, rejection_message="No.")
        assert context.get_approval_status("refund", call_id, existing_pending=item) is False
        assert context.get_rejection_message("refund", call_id) == "No."
        context.approve_tool(item, always_approve=True)
        assert context.is_tool_approved("refund", call_id) is True
        assert context.is_tool_approved("refund", "some other call") is True
        state = await restored(it.clerk, first.to_state())
        later = first.to_state()
        later.reject(item)
        assert context.is_tool_approved("refund", call_id) is True  # a state is a copy
        assert (await Runner.run(it.clerk, state)).final_output == "Done."
        assert it.done == ["refund 5", "refund 7"]

    play([REFUND[0], tool_call("refund", {"amount": 7}), text("Done.")], program, monkeypatch)


# --- what is no state -----------------------------------------------------------------------------


def test_texts_that_are_no_state_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        first = await Runner.run(it.clerk, "go")
        whole = first.to_state().to_string()
        data = json.loads(whole)
        edited = json.loads(whole.replace('\\"amount\\":5', '\\"amount\\":500'))
        assert edited != data
        wrong = {
            "not JSON": "no json",
            "not JSON ": whole[: len(whole) // 2],
            "JSON object": "[]",
            "has no \\$schemaVersion": "{}",
            "newer version": json.dumps(data | {"$schemaVersion": "sandstream-2"}),
            "not one of Sandstream's": json.dumps(data | {"$schemaVersion": "1.21"}),
            "events is missing": json.dumps({k: data[k] for k in data if k != "events"}),
            "was edited": json.dumps(edited),
            "cannot be read": json.dumps(data | {"events": "all"}),
        }
        for why, state in wrong.items():
            with pytest.raises(UserError, match=why):
                await RunState.from_string(it.clerk, state)
        other = Agent(name="Other", model="gpt-4.1")
        with pytest.raises(UserError, match="'Clerk' cannot be reached from 'Other'"):
            await RunState.from_string(other, whole)
        with pytest.raises(UserError, match="'Clerk' cannot be reached from 'Other'"):
            await Runner.run(other, first.to_state())
        reordered = json.dumps(json.loads(whole), sort_keys=True, indent=1)
        assert (await RunState.from_string(it.clerk, reordered)).run_id == first.run_id

    play(REFUND[:1], program, monkeypatch)


def test_another_run_of_that_id_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    async def save(it: Ledger, question: str) -> str:
        config = RunConfig(run_key="same-key")
        return (await Runner.run(it.clerk, question, run_config=config)).to_state().to_string()

    async def resume(it: Ledger, saved: str) -> None:
        await Runner.run(it.clerk, await RunState.from_string(it.clerk, saved))

    async def program(it: Ledger, model: ScriptedModel) -> None:
        monkeypatch.setenv("SANDSTREAM_PREFIX", "state-one")
        saved = await asyncio.to_thread(asyncio.run, save(it, "one"))
        monkeypatch.setenv("SANDSTREAM_PREFIX", "state-two")
        await asyncio.to_thread(asyncio.run, save(it, "two"))
        with pytest.raises(UserError, match="another run same-key"):
            await asyncio.to_thread(asyncio.run, resume(it, saved))

    play([REFUND[0], REFUND[0]], program, monkeypatch)


def test_the_conversation_of_a_resumed_run_is_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def program(it: Ledger, model: ScriptedModel) -> None:
        session = SQLiteSession("s1", tmp_path / "sessions.db")
        first = await Runner.run(it.clerk, "go", session=session)
        state = first.to_state()
        state.approve(first.interruptions[0])
        with pytest.raises(UserError, match=r"session=.* again"):
            await Runner.run(it.clerk, state)
        with pytest.raises(UserError, match="began with the session 's1'"):
            await Runner.run(it.clerk, state, session=SQLiteSession("s2"))
        with pytest.raises(UserError, match="conversation_id"):
            await Runner.run(it.clerk, state, session=session, conversation_id="c")
        assert (await Runner.run(it.clerk, state, session=session)).final_output == "Done."
        kinds = [item.get("type") or item["role"] for item in await session.get_items()]
        assert kinds == ["user", "function_call", "function_call_output", "message"]
        session.close()

    play(REFUND, program, monkeypatch)


# --- states of earlier versions -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["approval", "nested", "after_turn"])
def test_states_that_were_stored_once_are_read_for_ever(
    name: str, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were written by the first version that had states; the log here never had the runs."""
    nats_server.set_up()
    monkeypatch.setenv("NATS_URL", nats_server.url)
    steps = {
        "approval": REFUND[1:],
        "nested": NESTED[1:2] + NESTED[3:],
        "after_turn": [text("Done.")],
    }

    async def program(it: Ledger, model: ScriptedModel) -> None:
        agent = it.boss if name == "nested" else it.clerk
        saved = (GOLDEN / f"v1-{name}.json").read_text()
        state = await RunState.from_string(agent, saved)
        assert state.context.context == {"user": "Ann"}
        for item in state.get_interruptions():
            state.approve(item)
        result = await Runner.run(agent, state)
        assert result.final_output == ("The boss is done." if name == "nested" else "Done.")
        assert it.done == ([] if name == "after_turn" else ["refund 5"])

    play(steps[name], program, monkeypatch)
