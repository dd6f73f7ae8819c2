"""What the next agent reads after a handoff: filters, nesting, mappers, wrappers."""

from importlib import import_module
from typing import Any

from comparison.program import MODEL, Probe, program
from comparison.programs.handoffs import billing, rewritten, triage


def with_a_tool(m: Any) -> list[Any]:
    """A tool turn before the handoff, whose items a filter may take away."""
    return [
        m.answer(m.reasoning("Hm."), "Let me see.", m.tool_call("f", {"x": 1})).when("I am Triage"),
        m.tool_call("transfer_to_billing").when("I am Triage"),
        m.text("Paid.").when("I am Billing").forever(),
    ]


def tooled_triage(sdk: Any, probe: Probe, *handoffs: Any) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return f"f {x}"

    return triage(sdk, probe, *handoffs, tools=[f])


def shown(data: Any) -> list[Any]:
    history = data.input_history
    return [
        history if isinstance(history, str) else [item.get("role") for item in history],
        [item.type for item in data.pre_handoff_items],
        [item.type for item in data.new_items],
        data.run_context.context if data.run_context else None,
        data.input_items,
    ]


async def both_lists(probe: Probe, result: Any) -> Any:
    probe.note("normalized", result.to_input_list(mode="normalized"))
    return result


@program(with_a_tool)
async def filter_of_the_handoff(sdk: Any, probe: Probe) -> Any:
    def only_the_last(data: Any) -> Any:
        probe.note(*shown(data))
        return data.clone(pre_handoff_items=(), new_items=data.new_items[-2:])

    move = sdk.handoff(billing(sdk, probe), input_filter=only_the_last)
    result = await sdk.Runner.run(tooled_triage(sdk, probe, move), probe.input, context="ctx")
    return await both_lists(probe, result)


@program(with_a_tool)
async def filter_of_the_handoff_streamed(sdk: Any, probe: Probe) -> Any:
    async def rewrite(data: Any) -> Any:
        return data.clone(input_history="In short: pay.", pre_handoff_items=(), new_items=())

    move = sdk.handoff(billing(sdk, probe), input_filter=rewrite)
    return sdk.Runner.run_streamed(tooled_triage(sdk, probe, move), probe.input)


@program(with_a_tool)
async def filter_with_input_items(sdk: Any, probe: Probe) -> Any:
    def hidden(data: Any) -> Any:
        return data.clone(input_items=())

    move = sdk.handoff(billing(sdk, probe), input_filter=hidden)
    result = await sdk.Runner.run(tooled_triage(sdk, probe, move), probe.input)
    return await both_lists(probe, result)


@program(with_a_tool)
async def filter_of_the_run_config(sdk: Any, probe: Probe) -> Any:
    def history_only(data: Any) -> Any:
        return data.clone(pre_handoff_items=(), new_items=())

    config = sdk.RunConfig(handoff_input_filter=history_only)
    agent = tooled_triage(sdk, probe, billing(sdk, probe))
    return await both_lists(probe, await sdk.Runner.run(agent, probe.input, run_config=config))


@program(rewritten)
async def own_filter_beats_the_run_configs(sdk: Any, probe: Probe) -> Any:
    def own(data: Any) -> Any:
        probe.note("own")
        return data

    def of_the_run(data: Any) -> Any:
        probe.note("of the run")
        return data

    config = sdk.RunConfig(handoff_input_filter=of_the_run, nest_handoff_history=True)
    move = sdk.handoff(billing(sdk, probe), input_filter=own)
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input, run_config=config)


@program(lambda m: [m.tool_call("transfer_to_billing")])
async def filter_returns_rubbish(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(billing(sdk, probe), input_filter=lambda data: "rubbish")
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(lambda m: [m.tool_call("transfer_to_billing")])
async def filter_is_no_function(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(billing(sdk, probe), input_filter="no function")
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(lambda m: [m.tool_call("transfer_to_billing")])
async def filter_raises(sdk: Any, probe: Probe) -> Any:
    def fail(data: Any) -> Any:
        raise ValueError("no")

    move = sdk.handoff(billing(sdk, probe), input_filter=fail)
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(with_a_tool)
async def remove_all_tools(sdk: Any, probe: Probe) -> Any:
    filters = import_module(f"{sdk.__name__}.extensions.handoff_filters")
    move = sdk.handoff(billing(sdk, probe), input_filter=filters.remove_all_tools)
    result = await sdk.Runner.run(tooled_triage(sdk, probe, move), probe.input)
    return await both_lists(probe, result)


@program(
    lambda m: [
        m.tool_call("transfer_to_middle").when("I am Triage"),
        m.tool_call("transfer_to_billing", call_id="call_2").when("I am Middle").forever(),
        m.text("Paid.").when("I am Billing").forever(),
    ]
)
async def items_before_a_second_handoff(sdk: Any, probe: Probe) -> Any:
    def look(data: Any) -> Any:
        probe.note(*shown(data))
        return data

    def short(data: Any) -> Any:
        probe.note(*shown(data))
        return data.clone(input_history="Short.", pre_handoff_items=(), new_items=())

    second = sdk.handoff(billing(sdk, probe), input_filter=look)
    about = f"I am Middle of <{probe.name}>."
    middle = sdk.Agent(name="Middle", instructions=about, model=MODEL, handoffs=[second])
    agent = triage(sdk, probe, sdk.handoff(middle, input_filter=short))
    return await both_lists(probe, await sdk.Runner.run(agent, probe.input))


@program(with_a_tool)
async def nested_history(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(nest_handoff_history=True)
    agent = tooled_triage(sdk, probe, billing(sdk, probe))
    return await both_lists(probe, await sdk.Runner.run(agent, probe.input, run_config=config))


@program(with_a_tool)
async def nested_history_streamed(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(nest_handoff_history=True)
    agent = tooled_triage(sdk, probe, billing(sdk, probe))
    return sdk.Runner.run_streamed(agent, probe.input, run_config=config)


@program(
    lambda m: [
        m.tool_call("transfer_to_billing").when("I am Triage").forever(),
        m.text("Paid.").when("I am Billing").forever(),
    ]
)
async def nested_history_of_list_input(sdk: Any, probe: Probe) -> Any:
    items = [
        {"role": "user", "content": probe.input},
        {"role": "assistant", "content": "What for?"},
        {"role": "user", "content": [{"type": "input_text", "text": "For a friend."}]},
    ]
    config = sdk.RunConfig(nest_handoff_history=True)
    agent = triage(sdk, probe, billing(sdk, probe))
    return await sdk.Runner.run(agent, items, run_config=config)


@program(rewritten)
async def nesting_of_one_handoff(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(billing(sdk, probe), nest_handoff_history=True)
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(rewritten)
async def no_nesting_of_one_handoff(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(billing(sdk, probe), nest_handoff_history=False)
    config = sdk.RunConfig(nest_handoff_history=True)
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input, run_config=config)


@program(
    lambda m: [
        m.tool_call("transfer_to_middle").when("I am Triage"),
        m.tool_call("transfer_to_billing", call_id="call_2").when("I am Middle").forever(),
        m.text("Paid.").when("I am Billing").forever(),
    ]
)
async def nested_history_of_two_handoffs(sdk: Any, probe: Probe) -> Any:
    about = f"I am Middle of <{probe.name}>."
    middle = sdk.Agent(
        name="Middle", instructions=about, model=MODEL, handoffs=[billing(sdk, probe)]
    )
    config = sdk.RunConfig(nest_handoff_history=True)
    result = await sdk.Runner.run(triage(sdk, probe, middle), probe.input, run_config=config)
    return await both_lists(probe, result)


@program(with_a_tool)
async def history_mapper(sdk: Any, probe: Probe) -> Any:
    def mapper(transcript: Any) -> Any:
        probe.note([item.get("type") or item.get("role") for item in transcript])
        return [{"role": "user", "content": f"{len(transcript)} things happened."}]

    config = sdk.RunConfig(nest_handoff_history=True, handoff_history_mapper=mapper)
    agent = tooled_triage(sdk, probe, billing(sdk, probe))
    return await both_lists(probe, await sdk.Runner.run(agent, probe.input, run_config=config))


@program(rewritten)
async def default_history_mapper_by_name(sdk: Any, probe: Probe) -> Any:
    mapper = sdk.default_handoff_history_mapper
    probe.note(mapper([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]))
    config = sdk.RunConfig(nest_handoff_history=True, handoff_history_mapper=mapper)
    return await sdk.Runner.run(
        triage(sdk, probe, billing(sdk, probe)), probe.input, run_config=config
    )


@program(rewritten)
async def nest_handoff_history_as_a_filter(sdk: Any, probe: Probe) -> Any:
    move = sdk.handoff(billing(sdk, probe), input_filter=sdk.nest_handoff_history)
    return await sdk.Runner.run(triage(sdk, probe, move), probe.input)


@program(rewritten)
async def history_wrappers(sdk: Any, probe: Probe) -> Any:
    probe.note(sdk.get_conversation_history_wrappers())
    sdk.set_conversation_history_wrappers(start="<<", end=">>")
    try:
        probe.note(sdk.get_conversation_history_wrappers())
        config = sdk.RunConfig(nest_handoff_history=True)
        return await sdk.Runner.run(
            triage(sdk, probe, billing(sdk, probe)), probe.input, run_config=config
        )
    finally:
        sdk.reset_conversation_history_wrappers()
        probe.note(sdk.get_conversation_history_wrappers())


@program(rewritten)
async def nesting_with_auto_previous_response_id(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(nest_handoff_history=True)
    return await sdk.Runner.run(
        triage(sdk, probe, billing(sdk, probe)),
        probe.input,
        run_config=config,
        auto_previous_response_id=True,
    )


@program(lambda m: [m.text("Hello.")])
async def handoff_prompt(sdk: Any, probe: Probe) -> Any:
    prompts = import_module(f"{sdk.__name__}.extensions.handoff_prompt")
    prefix = prompts.RECOMMENDED_PROMPT_PREFIX
    text = prompts.prompt_with_handoff_instructions("Be kind.")
    probe.note(text == f"{prefix}\n\nBe kind.", bool(prefix))
    return await sdk.Runner.run(sdk.Agent(name="A", model=MODEL), probe.input)
