"""Run states: stored as text and read again, with context, staged input, and what cannot resume."""

import dataclasses
import json
from typing import Any

from pydantic import BaseModel

from comparison.program import MODEL, Probe, program
from comparison.programs.approvals import (
    asks_inner,
    clerk,
    nested_clerk,
    one_refund,
    refund_twice,
    two_refunds,
)
from comparison.report import result_report


async def stored(sdk: Any, agent: Any, state: Any, **options: Any) -> Any:
    """The state as it comes back from wherever its text was kept."""
    return await sdk.RunState.from_string(agent, state.to_string(), **options)


@program(one_refund)
async def state_is_stored_before_the_decision(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = await stored(sdk, agent, first.to_state())
    waiting = state.get_interruptions()
    probe.note([[item.name, item.arguments, item.agent.name] for item in waiting])
    state.approve(waiting[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def state_is_stored_after_the_decision(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.reject(first.interruptions[0], rejection_message="Not now.")
    return await sdk.Runner.run(agent, await stored(sdk, agent, state))


@program(one_refund)
async def state_as_json(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    data = json.loads(json.dumps(first.to_state().to_json()))
    state = await sdk.RunState.from_json(agent, data)
    state.approve(state.get_interruptions()[0])
    return await sdk.Runner.run(agent, state)


@program(refund_twice)
async def sticky_decision_is_stored(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0], always_approve=True)
    return await sdk.Runner.run(agent, await stored(sdk, agent, state))


@program(two_refunds)
async def state_is_stored_between_two_decisions(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    result = await sdk.Runner.run(agent, probe.input)
    while result.interruptions:
        state = await stored(sdk, agent, result.to_state())
        waiting = state.get_interruptions()
        probe.note([item.arguments for item in waiting])
        state.approve(waiting[-1])
        result = await sdk.Runner.run(agent, await stored(sdk, agent, state))
    return result


@program(asks_inner)
async def nested_approval_is_stored(sdk: Any, probe: Probe) -> Any:
    agent = nested_clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = await stored(sdk, agent, first.to_state())
    probe.note([[item.name, item.agent.name] for item in state.get_interruptions()])
    state.approve(state.get_interruptions()[0])
    return await sdk.Runner.run(agent, state)


@program(asks_inner)
async def nested_decision_is_stored(sdk: Any, probe: Probe) -> Any:
    agent = nested_clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.reject(first.interruptions[0], rejection_message="Not inside.")
    return await sdk.Runner.run(agent, await stored(sdk, agent, state))


@program(lambda m: [m.tool_call("transfer_to_clerk"), *one_refund(m)])
async def state_after_a_handoff_is_stored(sdk: Any, probe: Probe) -> Any:
    first_agent = sdk.Agent(name="First", model=MODEL, handoffs=[clerk(sdk, probe)])
    first = await sdk.Runner.run(first_agent, probe.input)
    state = await stored(sdk, first_agent, first.to_state())
    state.approve(state.get_interruptions()[0])
    return await sdk.Runner.run(first_agent, state)


@program(one_refund)
async def resumed_run_is_streamed(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = await stored(sdk, agent, first.to_state())
    state.approve(state.get_interruptions()[0])
    return sdk.Runner.run_streamed(agent, state)


class Cart(BaseModel):
    total: int = 0


@dataclasses.dataclass
class Basket:
    total: int = 0


class Opaque:
    total = 1


def spender(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(needs_approval=True)
    def refund(ctx: sdk.RunContextWrapper[Any], amount: int) -> str:
        probe.note(type(ctx.context).__name__, ctx.context)
        return f"refunded {amount}"

    return sdk.Agent(name="Spender", model=MODEL, tools=[refund])


async def resumed_with(sdk: Any, probe: Probe, context: Any, **options: Any) -> Any:
    agent = spender(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input, context=context)
    state = await stored(sdk, agent, first.to_state(), **options)
    state.approve(state.get_interruptions()[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def context_that_is_a_dict_is_stored(sdk: Any, probe: Probe) -> Any:
    return await resumed_with(sdk, probe, {"user": "Ann", "n": [1, 2]})


@program(one_refund)
async def context_that_is_a_model_is_stored(sdk: Any, probe: Probe) -> Any:
    return await resumed_with(sdk, probe, Cart(total=3))


@program(one_refund)
async def context_that_is_a_dataclass_is_stored(sdk: Any, probe: Probe) -> Any:
    return await resumed_with(sdk, probe, Basket(total=3))


@program(one_refund)
async def context_is_made_again(sdk: Any, probe: Probe) -> Any:
    return await resumed_with(
        sdk, probe, Cart(total=3), context_deserializer=lambda data: Cart(**data)
    )


@program(one_refund)
async def context_is_replaced(sdk: Any, probe: Probe) -> Any:
    return await resumed_with(sdk, probe, {"old": True}, context_override={"new": True})


@program(one_refund)
async def context_that_cannot_be_stored(sdk: Any, probe: Probe) -> Any:
    return await resumed_with(sdk, probe, Opaque())


@program(one_refund)
async def context_that_must_be_stored(sdk: Any, probe: Probe) -> Any:
    first = await sdk.Runner.run(spender(sdk, probe), probe.input, context=Opaque())
    try:
        first.to_state().to_string(strict_context=True)
    except Exception as error:
        probe.note(type(error).__name__)
    return None


@program(one_refund)
async def context_serializer(sdk: Any, probe: Probe) -> Any:
    agent = spender(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input, context=Opaque())
    text = first.to_state().to_string(context_serializer=lambda context: {"kept": context.total})
    state = await sdk.RunState.from_string(agent, text)
    state.approve(state.get_interruptions()[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def context_given_to_the_resumed_run(sdk: Any, probe: Probe) -> Any:
    agent = spender(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input, context={"run": 1})
    state = first.to_state()
    state.approve(first.interruptions[0])
    return await sdk.Runner.run(agent, state, context={"run": 2})


@program(one_refund)
async def input_is_added(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.add_input("Hurry, please.")
    state.add_input([{"role": "user", "content": "Thanks."}])
    probe.note(state.pending_input)
    state = await stored(sdk, agent, state)
    probe.note(len(state.pending_input))
    state.approve(state.get_interruptions()[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def added_input_is_taken_back(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.add_input("Hurry, please.")
    state.clear_pending_input()
    probe.note(state.pending_input)
    state.approve(first.interruptions[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def added_input_is_checked_by_guardrails(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail(run_in_parallel=False)
    def checks(ctx: Any, agent: Any, given: Any) -> Any:
        probe.note("checked", given)
        return sdk.GuardrailFunctionOutput(None, tripwire_triggered="Hurry" in str(given))

    agent = clerk(sdk, probe, input_guardrails=[checks])
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.add_input("Hurry, please.")
    state.approve(first.interruptions[0])
    return await sdk.Runner.run(agent, state)


@program(lambda m: [m.text("Done.")])
async def input_is_added_to_a_finished_run(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    probe.note(state.get_interruptions())
    try:
        state.add_input("More.")
    except Exception as error:
        probe.note(type(error).__name__)
    return None


@program(lambda m: [m.tool_call("refund", {"amount": 5}), m.tool_call("refund", {"amount": 7})])
async def turns_are_counted_over_a_resume(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input, max_turns=2)
    state = first.to_state()
    state.approve(first.interruptions[0])
    second = await sdk.Runner.run(agent, await stored(sdk, agent, state))
    probe.note([item.arguments for item in second.interruptions])
    state = second.to_state()
    state.approve(second.interruptions[0])
    return await sdk.Runner.run(agent, state)


@program(
    lambda m: [
        m.answer(
            m.tool_call("refund", {"amount": 5}), usage=m.Usage(input_tokens=5, output_tokens=1)
        ),
        m.answer("Done.", usage=m.Usage(input_tokens=7, output_tokens=2)),
    ]
)
async def usage_over_a_resume(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = await stored(sdk, agent, first.to_state())
    state.approve(state.get_interruptions()[0])
    second = await sdk.Runner.run(agent, state)
    probe.note(first.context_wrapper.usage.requests, second.context_wrapper.usage.requests)
    return second


@program(
    lambda m: [m.tool_call("look_up", {"n": 1}), *one_refund(m)],
)
async def tool_choice_is_reset_over_a_resume(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe, model_settings=sdk.ModelSettings(tool_choice="required"))
    first = await sdk.Runner.run(agent, probe.input)
    state = await stored(sdk, agent, first.to_state())
    state.approve(state.get_interruptions()[0])
    return await sdk.Runner.run(agent, state)


@program(lambda m: [m.tool_call("look_up", {"n": 1}), m.text("Done.")])
async def cancelled_after_a_turn_and_resumed(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    result = sdk.Runner.run_streamed(agent, probe.input)
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.name == "tool_called":
            result.cancel(mode="after_turn")
    probe.note(result.final_output, result.is_complete)
    state = await stored(sdk, agent, result.to_state())
    return result_report(result), await sdk.Runner.run(agent, state)


@program(lambda m: [m.tool_call("look_up", {"n": 1}), m.text("Done.")])
async def cancelled_after_a_turn_and_told_more(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    result = sdk.Runner.run_streamed(agent, probe.input)
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.name == "tool_called":
            result.cancel(mode="after_turn")
    state = result.to_state()
    state.add_input("And be quick.")
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def text_that_is_no_state(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    data = first.to_state().to_json()
    wrong = {
        "no json": "no json",
        "a list": "[]",
        "nothing": "{}",
        "newer": json.dumps(data | {"$schemaVersion": "99.0"}),
        "no version": json.dumps({key: data[key] for key in data if key != "$schemaVersion"}),
    }
    for name, text in wrong.items():
        try:
            await sdk.RunState.from_string(agent, text)
            probe.note(name, "accepted")
        except Exception as error:
            probe.note(name, type(error).__name__)
    return None


@program(one_refund)
async def state_of_other_agents(sdk: Any, probe: Probe) -> Any:
    first = await sdk.Runner.run(clerk(sdk, probe), probe.input)
    other = sdk.Agent(name="Other", model=MODEL)
    try:
        await stored(sdk, other, first.to_state())
        probe.note("accepted")
    except Exception as error:
        probe.note(type(error).__name__)
    return None


@program(one_refund)
async def state_with_auto_previous_response_id(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input, auto_previous_response_id=True)
    state = await stored(sdk, agent, first.to_state())
    state.approve(state.get_interruptions()[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def approval_of_a_call_that_is_not_there(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    item = first.interruptions[0]
    raw = item.raw_item.model_copy(update={"call_id": "call_gone"})
    gone = sdk.ToolApprovalItem(agent=item.agent, raw_item=raw)
    try:
        state.approve(gone)
        probe.note("accepted")
    except Exception as error:
        probe.note(type(error).__name__)
    return await sdk.Runner.run(agent, state)


@program(lambda m: [m.text("Done."), m.text("Asked again.")])
async def state_of_a_finished_run(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    return await sdk.Runner.run(agent, await stored(sdk, agent, first.to_state()))
