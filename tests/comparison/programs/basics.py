"""Plain runs: instructions, input, settings, filters."""

from collections.abc import Callable
from typing import Any

from comparison.program import MODEL, Probe, program


@program(lambda m: [m.text("Hello.")])
async def plain_answer(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Greeter", instructions="Be brief.", model=MODEL)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.text("Hello.")])
async def default_model(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="Greeter"), probe.input)


@program(lambda m: [m.text("Hello.")])
async def implicit_settings_of_a_gpt_5_model(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="Greeter", model="gpt-5.1"), probe.input)


@program(lambda m: [m.text("Hello.")])
async def run_config_model_overrides(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Greeter", model="gpt-5.1")
    config = sdk.RunConfig(model=MODEL, model_settings=sdk.ModelSettings(temperature=0.5))
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.text("Hello.")])
async def run_config_as_dict(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Greeter", model=MODEL)
    config = {"model_settings": {"temperature": 0.25}, "workflow_name": "w"}
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.text("Hello.")])
def run_sync(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Greeter", model=MODEL)
    return sdk.Runner.run_sync(agent, probe.input)


@program(lambda m: [])
async def run_sync_inside_a_loop(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_sync(sdk.Agent(name="Greeter", model=MODEL), probe.input)


@program(lambda m: [m.text("Fine.")])
async def list_input(sdk: Any, probe: Probe) -> Any:
    items = [
        {"role": "user", "content": probe.input},
        {"role": "user", "content": [{"type": "input_text", "text": "How are you?"}]},
    ]
    return await sdk.Runner.run(sdk.Agent(name="Greeter", model=MODEL), items)


@program(lambda m: [m.text("One."), m.text("Two.")])
async def to_input_list_continuation(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Greeter", model=MODEL)
    first = await sdk.Runner.run(agent, probe.input)
    items = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
    return first, await sdk.Runner.run(agent, items)


@program(lambda m: [m.tool_call("count"), m.text("Done.")])
async def dynamic_instructions(sdk: Any, probe: Probe) -> Any:
    turns: list[int] = []

    async def instructions(ctx: Any, agent: Any) -> str:
        turns.append(len(turns))
        return f"You are {agent.name} of {ctx.context['user']}, turn {len(turns)}."

    @sdk.function_tool
    def count() -> int:
        return len(turns)

    agent = sdk.Agent(name="Dyn", instructions=instructions, model=MODEL, tools=[count])
    return await sdk.Runner.run(agent, probe.input, context={"user": "Ann"})


@program(lambda m: [])
async def instructions_of_wrong_arity(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Dyn", instructions=lambda ctx: "x", model=MODEL)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [])
async def instructions_raise(sdk: Any, probe: Probe) -> Any:
    def instructions(ctx: Any, agent: Any) -> str:
        raise KeyError("no such user")

    return await sdk.Runner.run(
        sdk.Agent(name="Dyn", instructions=instructions, model=MODEL), probe.input
    )


@program(lambda m: [m.text("Yes.")])
async def is_enabled(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(is_enabled=False)
    def never() -> str:
        return "never"

    @sdk.function_tool(is_enabled=lambda ctx, agent: ctx.context == "admin")
    def for_admins() -> str:
        return "admin"

    @sdk.function_tool(is_enabled=lambda ctx, agent: ctx.context == "user")
    def for_users() -> str:
        return "user"

    agent = sdk.Agent(name="Gate", model=MODEL, tools=[never, for_admins, for_users])
    return await sdk.Runner.run(agent, probe.input, context="user")


@program(lambda m: [m.tool_call("never")])
async def disabled_tool_is_called(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(is_enabled=lambda ctx, agent: False)
    def never() -> str:
        return "never"

    return await sdk.Runner.run(sdk.Agent(name="Gate", model=MODEL, tools=[never]), probe.input)


@program(lambda m: [m.tool_call("never"), m.text("Sorry.")])
async def disabled_tool_is_reported(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(is_enabled=lambda ctx, agent: False)
    def never() -> str:
        return "never"

    config = sdk.RunConfig(tool_not_found_behavior="return_error_to_model")
    agent = sdk.Agent(name="Gate", model=MODEL, tools=[never])
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.tool_call("look"), m.text("Seen.")])
async def call_model_input_filter(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def look() -> str:
        return "a long view"

    def shorten(data: Any) -> Any:
        probe.note("filter", data.agent.name, data.context, len(data.model_data.input))
        kind = type(data.model_data)
        extra = {"role": "user", "content": "Be quick."}
        return kind(input=[*data.model_data.input, extra], instructions="Filtered.")

    agent = sdk.Agent(name="Filtered", instructions="Original.", model=MODEL, tools=[look])
    config = sdk.RunConfig(call_model_input_filter=shorten)
    return await sdk.Runner.run(agent, probe.input, run_config=config, context="ctx")


@program(lambda m: [])
async def input_filter_returns_rubbish(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(call_model_input_filter=lambda data: "rubbish")
    return await sdk.Runner.run(sdk.Agent(name="F", model=MODEL), probe.input, run_config=config)


@program(lambda m: [m.text("Hello.")])
async def many_model_settings(sdk: Any, probe: Probe) -> Any:
    settings = sdk.ModelSettings(
        temperature=0.3,
        top_p=0.9,
        max_tokens=200,
        truncation="auto",
        store=False,
        metadata={"team": "blue"},
        parallel_tool_calls=True,
        verbosity="high",
        reasoning={"effort": "low", "summary": "auto"},
        prompt_cache_retention="24h",
        extra_body={"service_tier": "flex"},
        extra_query={"beta": "1"},
        extra_headers={"x-test-header": "yes"},
        extra_args={"user": "u-1", "max_tool_calls": 3},
        response_include=["reasoning.encrypted_content"],
    )
    agent = sdk.Agent(name="Set", model=MODEL, model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.text("Hello.")])
async def top_logprobs(sdk: Any, probe: Probe) -> Any:
    settings = sdk.ModelSettings(top_logprobs=2)
    agent = sdk.Agent(name="Set", model=MODEL, model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.text("Hello.")])
async def parallel_tool_calls_with_tools(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def noop() -> str:
        return ""

    for_one = sdk.ModelSettings(parallel_tool_calls=False, tool_choice="noop")
    agent = sdk.Agent(name="Set", model=MODEL, model_settings=for_one, tools=[noop])
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [])
async def extra_args_repeat_an_argument(sdk: Any, probe: Probe) -> Any:
    settings = sdk.ModelSettings(temperature=0.3, extra_args={"temperature": 0.5})
    agent = sdk.Agent(name="Set", model=MODEL, model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.text("Hello.")])
async def settings_as_dict(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Set", model=MODEL, model_settings={"max_tokens": 9})
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [])
async def unknown_setting(sdk: Any, probe: Probe) -> Any:
    return sdk.Agent(name="Set", model=MODEL, model_settings={"max_tokenz": 9})


@program(lambda m: [m.answer("Prompted.", usage=m.Usage(input_tokens=9, output_tokens=2))])
async def stored_prompt(sdk: Any, probe: Probe) -> Any:
    prompt = {"id": "pmpt_1", "version": "2", "variables": {"city": "Oslo"}}
    return await sdk.Runner.run(sdk.Agent(name="P", prompt=prompt), probe.input)


@program(lambda m: [m.answer("Prompted.", usage=m.Usage(input_tokens=9, output_tokens=2))])
async def dynamic_prompt(sdk: Any, probe: Probe) -> Any:
    def prompt(data: Any) -> dict[str, Any]:
        return {"id": "pmpt_1", "variables": {"user": data.context.context, "a": data.agent.name}}

    agent = sdk.Agent(name="P", prompt=prompt, model=MODEL)
    return await sdk.Runner.run(agent, probe.input, context="Ann")


@program(lambda m: [m.answer(m.reasoning("Hm."), m.tool_call("f")), m.text("Done.")])
async def reasoning_items(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "ok"

    agent = sdk.Agent(name="Thinker", model="gpt-5.1", tools=[f])
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.answer(m.reasoning("Hm."), m.tool_call("f")), m.text("Done.")])
async def reasoning_ids_omitted(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "ok"

    agent = sdk.Agent(name="Thinker", model="gpt-5.1", tools=[f])
    config = sdk.RunConfig(reasoning_item_id_policy="omit")
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(
    lambda m: [
        m.answer(
            "One. ",
            "Two.",
            usage=m.Usage(input_tokens=11, output_tokens=7, cached_tokens=4, reasoning_tokens=3),
        )
    ]
)
async def item_helpers_and_usage(sdk: Any, probe: Probe) -> Any:
    result = await sdk.Runner.run(sdk.Agent(name="Talker", model=MODEL), probe.input)
    helpers = sdk.ItemHelpers
    for item in result.new_items:
        probe.note(
            helpers.text_message_output(item),
            helpers.extract_last_text(item.raw_item),
            helpers.extract_last_content(item.raw_item),
            helpers.extract_text(item.raw_item),
            helpers.extract_refusal(item.raw_item),
            item.raw_item.content[0].text,
        )
    probe.note(helpers.text_message_outputs(result.new_items))
    probe.note(helpers.input_to_new_input_list("hi"))
    probe.note(helpers.input_to_new_input_list([{"role": "user", "content": "hi"}]))
    probe.note(result.final_output_as(str, raise_if_incorrect_type=True))
    try:
        result.final_output_as(int, raise_if_incorrect_type=True)
    except TypeError as error:
        probe.note(str(error))
    return result


@program(lambda m: [])
async def wrong_arguments(sdk: Any, probe: Probe) -> Any:
    attempts: dict[str, Callable[[], Any]] = {
        "name": lambda: sdk.Agent(name=1),
        "tools": lambda: sdk.Agent(name="A", tools="f"),
        "instructions": lambda: sdk.Agent(name="A", instructions=7),
        "model": lambda: sdk.Agent(name="A", model=7),
        "tool_use_behavior": lambda: sdk.Agent(name="A", tool_use_behavior=7),
        "run_config": lambda: sdk.RunConfig(tool_not_found_behavior="shrug"),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            probe.note(name, "accepted")
        except Exception as error:
            probe.note(name, type(error).__name__)
    return None


@program(lambda m: [])
async def excluding_conversation_options(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="A", model=MODEL)
    return await sdk.Runner.run(
        agent, probe.input, previous_response_id="resp_1", conversation_id="conv_1"
    )


@program(lambda m: [m.text("Hello.")])
async def clone_an_agent(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="A", instructions="Be brief.", model="gpt-5.1")
    return await sdk.Runner.run(agent.clone(name="B", model=MODEL), probe.input)
