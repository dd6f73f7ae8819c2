"""Calls that wait for a person: who is asked, what is answered, what the model is told."""

from typing import Any

from comparison.program import MODEL, Probe, program
from comparison.report import result_report


def one_refund(m: Any) -> list[Any]:
    return [m.tool_call("refund", {"amount": 5}), m.text("Done.")]


def refund_twice(m: Any) -> list[Any]:
    return [
        m.tool_call("refund", {"amount": 5}),
        m.tool_call("refund", {"amount": 7}),
        m.text("Done."),
    ]


def two_refunds(m: Any) -> list[Any]:
    return [m.tool_calls(("refund", {"amount": 5}), ("refund", {"amount": 7})), m.text("Done.")]


def clerk(sdk: Any, probe: Probe, needs_approval: Any = True, **options: Any) -> Any:
    @sdk.function_tool(needs_approval=needs_approval)
    async def refund(amount: int) -> str:
        probe.note("refunded", amount)
        return f"refunded {amount}"

    @sdk.function_tool
    def look_up(n: int) -> str:
        probe.note("looked up", n)
        return f"invoice {n}"

    defaults = {"name": "Clerk", "model": MODEL, "tools": [refund, look_up]}
    return sdk.Agent(**defaults | options)


@program(one_refund)
async def approval_is_given(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    probe.note(len(state.get_interruptions()))
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(one_refund)
async def approval_is_rejected(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.reject(state.get_interruptions()[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def approval_is_rejected_with_a_message(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.reject(first.interruptions[0], rejection_message="Not before Friday.")
    return await sdk.Runner.run(agent, state)


@program(two_refunds)
async def approval_depends_on_the_arguments(sdk: Any, probe: Probe) -> Any:
    async def large(ctx: Any, arguments: dict[str, Any], call_id: str) -> bool:
        probe.note("asked", ctx.context, arguments, call_id)
        return bool(arguments["amount"] > 5)

    agent = clerk(sdk, probe, large)
    first = await sdk.Runner.run(agent, probe.input, context="ctx")
    state = first.to_state()
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(lambda m: [m.tool_call("refund", '{"amount": '), m.text("Done.")])
async def malformed_arguments_need_approval(sdk: Any, probe: Probe) -> Any:
    async def never(ctx: Any, arguments: dict[str, Any], call_id: str) -> bool:
        probe.note("asked", arguments)
        return False

    agent = clerk(sdk, probe, never)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(lambda m: [m.tool_call("refund", {"amount": "5"}), m.text("Done.")])
async def coerced_arguments_need_approval(sdk: Any, probe: Probe) -> Any:
    async def never(ctx: Any, arguments: dict[str, Any], call_id: str) -> bool:
        probe.note("asked", arguments)
        return False

    agent = clerk(sdk, probe, never)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.tool_call("refund", {"amount": 5})])
async def needs_approval_raises(sdk: Any, probe: Probe) -> Any:
    async def fails(ctx: Any, arguments: dict[str, Any], call_id: str) -> bool:
        raise ValueError("cannot say")

    return await sdk.Runner.run(clerk(sdk, probe, fails), probe.input)


@program(
    lambda m: [
        m.answer("Both.", m.tool_call("refund", {"amount": 5}), m.tool_call("look_up", {"n": 1})),
        m.text("Done."),
    ]
)
async def calls_that_need_no_approval_run_at_once(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    probe.note("paused")
    state = first.to_state()
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(two_refunds)
async def one_is_approved_and_one_rejected(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    state.reject(first.interruptions[1])
    return await sdk.Runner.run(agent, state)


@program(two_refunds)
async def one_decision_of_two(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[1])
    second = await sdk.Runner.run(agent, state)
    probe.note("paused again")
    state = second.to_state()
    state.reject(second.interruptions[0])
    return second, await sdk.Runner.run(agent, state)


@program(one_refund)
async def no_decision_at_all(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    return await sdk.Runner.run(agent, first.to_state())


@program(refund_twice)
async def always_approve(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0], always_approve=True)
    return await sdk.Runner.run(agent, state)


@program(refund_twice)
async def always_reject(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.reject(first.interruptions[0], always_reject=True, rejection_message="Never.")
    return await sdk.Runner.run(agent, state)


@program(refund_twice)
async def approval_is_for_one_call(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    result = await sdk.Runner.run(agent, probe.input)
    rounds = []
    while result.interruptions:
        rounds.append([item.arguments for item in result.interruptions])
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await sdk.Runner.run(agent, state)
    probe.note(rounds)
    return result


@program(two_refunds)
async def always_approve_one_of_two(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0], always_approve=True)
    state.reject(first.interruptions[1])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def approve_twice(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    state.approve(first.interruptions[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def reject_after_approve(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    state.reject(first.interruptions[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def rejection_formatter(sdk: Any, probe: Probe) -> Any:
    def formatter(args: Any) -> str:
        probe.note(args.kind, args.tool_type, args.tool_name, args.call_id, args.default_message)
        return f"formatted {args.kind}"

    agent = clerk(sdk, probe)
    config = sdk.RunConfig(tool_error_formatter=formatter)
    first = await sdk.Runner.run(agent, probe.input, run_config=config)
    state = first.to_state()
    state.reject(first.interruptions[0])
    return await sdk.Runner.run(agent, state, run_config=config)


@program(one_refund)
async def rejection_message_beats_the_formatter(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    config = sdk.RunConfig(tool_error_formatter=lambda args: "formatted")
    first = await sdk.Runner.run(agent, probe.input, run_config=config)
    state = first.to_state()
    state.reject(first.interruptions[0], rejection_message="By hand.")
    return await sdk.Runner.run(agent, state, run_config=config)


@program(one_refund)
async def approval_in_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = sdk.Runner.run_streamed(agent, probe.input)
    names = [event.type async for event in first.stream_events()]
    probe.note([name for name in names if name != "raw_response_event"])
    state = first.to_state()
    state.approve(first.interruptions[0])
    return result_report(first), sdk.Runner.run_streamed(agent, state)


@program(one_refund)
async def rejection_in_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.reject(first.interruptions[0])
    return sdk.Runner.run_streamed(agent, state)


def asks_inner(m: Any) -> list[Any]:
    return [
        m.tool_call("ask_inner", {"input": "Refund."}).when("I am Outer"),
        m.text("Outer done.").when("I am Outer"),
        m.tool_call("refund", {"amount": 5}, call_id="call_in").when("I am Inner"),
        m.text("Inner done.").when("I am Inner"),
    ]


def nested_clerk(sdk: Any, probe: Probe, **options: Any) -> Any:
    inner = clerk(sdk, probe, name="Inner", instructions=f"I am Inner of <{probe.name}>.")
    return sdk.Agent(
        name="Outer",
        instructions=f"I am Outer of <{probe.name}>.",
        model=MODEL,
        tools=[inner.as_tool("ask_inner", "Asks.", **options)],
    )


@program(asks_inner)
async def approval_inside_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    agent = nested_clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(asks_inner)
async def rejection_inside_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    agent = nested_clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.reject(first.interruptions[0], rejection_message="Not inside.")
    return await sdk.Runner.run(agent, state)


@program(asks_inner)
async def approval_of_an_agent_tool_and_inside_it(sdk: Any, probe: Probe) -> Any:
    agent = nested_clerk(sdk, probe, needs_approval=True)
    result = await sdk.Runner.run(agent, probe.input)
    while result.interruptions:
        probe.note([[item.agent.name, item.name] for item in result.interruptions])
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await sdk.Runner.run(agent, state)
    return result


@program(asks_inner)
async def rejection_of_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    agent = nested_clerk(sdk, probe, needs_approval=True)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.reject(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(lambda m: [m.tool_call("transfer_to_clerk"), *one_refund(m)])
async def approval_after_a_handoff(sdk: Any, probe: Probe) -> Any:
    first_agent = sdk.Agent(name="First", model=MODEL, handoffs=[clerk(sdk, probe)])
    first = await sdk.Runner.run(first_agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(first_agent, state)


@program(
    lambda m: [
        m.tool_calls(("transfer_to_other", {}), ("refund", {"amount": 5})),
        m.text("Other done."),
    ]
)
async def handoff_beside_an_approval(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe, handoffs=[sdk.Agent(name="Other", model=MODEL)])
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(one_refund)
async def approval_of_the_tool_that_ends_a_run(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe, tool_use_behavior="stop_on_first_tool")
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    return await sdk.Runner.run(agent, state)


@program(one_refund)
async def hooks_around_an_approval(sdk: Any, probe: Probe) -> Any:
    class Watching(sdk.RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            probe.note("agent start")

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            probe.note("tool start")

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            probe.note("tool end", result)

        async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
            probe.note("agent end")

    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input, hooks=Watching())
    probe.note("paused")
    state = first.to_state()
    state.approve(first.interruptions[0])
    return await sdk.Runner.run(agent, state, hooks=Watching())


@program(one_refund)
async def guardrails_around_an_approval(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail(run_in_parallel=False)
    def checks(ctx: Any, agent: Any, given: Any) -> Any:
        probe.note("input guardrail")
        return sdk.GuardrailFunctionOutput("in", tripwire_triggered=False)

    @sdk.output_guardrail
    def judges(ctx: Any, agent: Any, output: Any) -> Any:
        probe.note("output guardrail")
        return sdk.GuardrailFunctionOutput("out", tripwire_triggered=False)

    agent = clerk(sdk, probe, input_guardrails=[checks], output_guardrails=[judges])
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(one_refund)
async def tool_guardrail_before_an_approval(sdk: Any, probe: Probe) -> Any:
    @sdk.tool_input_guardrail
    def check(data: Any) -> Any:
        probe.note("guardrail", data.context.tool_call_id)
        return sdk.ToolGuardrailFunctionOutput.allow()

    @sdk.function_tool(needs_approval=True, tool_input_guardrails=[check])
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    agent = sdk.Agent(name="Clerk", model=MODEL, tools=[refund])
    execution = sdk.ToolExecutionConfig(pre_approval_tool_input_guardrails=True)
    config = sdk.RunConfig(tool_execution=execution)
    first = await sdk.Runner.run(agent, probe.input, run_config=config)
    probe.note("paused")
    state = first.to_state()
    state.approve(first.interruptions[0])
    return await sdk.Runner.run(agent, state, run_config=config)


@program(lambda m: [m.custom_tool_call("write", "some text"), m.text("Done.")])
async def approval_of_a_custom_tool(sdk: Any, probe: Probe) -> Any:
    async def write(ctx: Any, text: str) -> str:
        probe.note("written", text)
        return "written"

    tool = sdk.CustomTool(
        name="write", description="Writes.", on_invoke_tool=write, needs_approval=True
    )
    agent = sdk.Agent(name="Writer", model=MODEL, tools=[tool])
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    return first, await sdk.Runner.run(agent, state)


@program(lambda m: [m.custom_tool_call("write", "some text"), m.text("Done.")])
async def custom_tool_asks_a_function(sdk: Any, probe: Probe) -> Any:
    async def write(ctx: Any, text: str) -> str:
        return "never"

    def decide(ctx: Any, item: Any) -> Any:
        probe.note(item.name)
        return {"approve": False, "reason": "Not this text."}

    tool = sdk.CustomTool(
        name="write",
        description="Writes.",
        on_invoke_tool=write,
        needs_approval=True,
        on_approval=decide,
    )
    agent = sdk.Agent(name="Writer", model=MODEL, tools=[tool])
    return await sdk.Runner.run(agent, probe.input)


@program(one_refund)
async def decisions_of_the_context(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    item = first.interruptions[0]
    context = first.context_wrapper
    probe.note(context.is_tool_approved("refund", item.call_id))
    context.reject_tool(item, rejection_message="No.")
    probe.note(context.is_tool_approved("refund", item.call_id))
    probe.note(context.get_rejection_message("refund", item.call_id))
    context.approve_tool(item)
    probe.note(context.is_tool_approved("refund", item.call_id))
    return await sdk.Runner.run(agent, first.to_state())


@program(one_refund)
async def waiting_calls_are_not_input(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input)
    try:
        first.interruptions[0].to_input_item()
    except Exception as error:
        probe.note(type(error).__name__)
    probe.note([item.get("type") or item.get("role") for item in first.to_input_list()])
    return first


@program(lambda m: [m.tool_call("refund", {"amount": 5})])
async def approval_and_max_turns(sdk: Any, probe: Probe) -> Any:
    agent = clerk(sdk, probe)
    first = await sdk.Runner.run(agent, probe.input, max_turns=1)
    state = first.to_state()
    state.approve(first.interruptions[0])
    return await sdk.Runner.run(agent, state, max_turns=10)
