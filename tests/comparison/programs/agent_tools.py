"""Agents as tools: their input, their output, what fails, what the outer run sees of them."""

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from comparison.program import MODEL, Probe, program


class Trip(BaseModel):
    """Where to go."""

    city: str = Field(description="The city.")
    days: int = 2


@dataclass
class Order:
    article: str
    count: int = 1


class Answer(BaseModel):
    text: str
    score: float


def asked(m: Any, *inner: Any, arguments: Any = None) -> list[Any]:
    """The outer agent asks once, the inner one answers with its own steps."""
    given = {"input": "Translate this."} if arguments is None else arguments
    return [
        m.tool_call("ask_inner", given).when("I am Outer"),
        m.text("Outer done.").when("I am Outer"),
        *(step.when("I am Inner") for step in inner),
    ]


def inner(sdk: Any, probe: Probe, **options: Any) -> Any:
    about = f"I am Inner of <{probe.name}>."
    return sdk.Agent(**{"name": "Inner", "instructions": about, "model": MODEL} | options)


def outer(sdk: Any, probe: Probe, *tools: Any, **options: Any) -> Any:
    about = f"I am Outer of <{probe.name}>."
    defaults = {"name": "Outer", "instructions": about, "model": MODEL, "tools": list(tools)}
    return sdk.Agent(**defaults | options)


def as_tool(agent: Any, **options: Any) -> Any:
    return agent.as_tool(**{"tool_name": "ask_inner", "tool_description": "Asks."} | options)


@program(lambda m: asked(m, m.text("Inner says hello.")))
async def agent_tool_plain(sdk: Any, probe: Probe) -> Any:
    agent = outer(sdk, probe, as_tool(inner(sdk, probe)))
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: asked(m, m.text("Inner says hello.")))
async def agent_tool_streamed(sdk: Any, probe: Probe) -> Any:
    agent = outer(sdk, probe, as_tool(inner(sdk, probe)))
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [m.text("Hello.")])
async def agent_tool_names(sdk: Any, probe: Probe) -> Any:
    named = inner(sdk, probe, name="Mr. Inner-2 (EU)").as_tool(None, None)
    probe.note(named.name, named.description, named.params_json_schema, named.strict_json_schema)
    return await sdk.Runner.run(outer(sdk, probe, named), probe.input)


@program(lambda m: asked(m, m.tool_call("f", {"x": 2}, call_id="call_in"), m.text("It is two.")))
async def agent_tool_with_tools(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(ctx: sdk.RunContextWrapper[Any], x: int) -> str:
        probe.note("f", ctx.context)
        return f"f {x}"

    agent = outer(sdk, probe, as_tool(inner(sdk, probe, tools=[f])))
    return await sdk.Runner.run(agent, probe.input, context="shared")


@program(lambda m: asked(m, m.text("Go."), arguments={"city": "Oslo"}))
async def structured_parameters(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe), parameters=Trip)
    probe.note(tool.params_json_schema)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Go."), arguments={"city": "Oslo", "days": 3}))
async def structured_parameters_with_schema(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe), parameters=Trip, include_input_schema=True)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Go."), arguments={"article": "pen", "count": 4}))
async def structured_parameters_of_a_dataclass(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe), parameters=Order)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Go."), arguments={"article": "pen", "count": 4}))
async def input_builder(sdk: Any, probe: Probe) -> Any:
    def build(options: Any) -> Any:
        probe.note(options["params"], options["summary"], options["json_schema"])
        return f"{options['params']['count']} times {options['params']['article']}"

    tool = as_tool(inner(sdk, probe), parameters=Order, input_builder=build)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Go."), arguments={"city": "Oslo", "days": 1}))
async def input_builder_of_items(sdk: Any, probe: Probe) -> Any:
    async def build(options: Any) -> Any:
        probe.note(options["summary"], bool(options["json_schema"]))
        return [{"role": "user", "content": f"Go to {options['params']['city']}."}]

    tool = as_tool(
        inner(sdk, probe), parameters=Trip, input_builder=build, include_input_schema=True
    )
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m))
async def input_builder_raises(sdk: Any, probe: Probe) -> Any:
    def build(options: Any) -> Any:
        raise ValueError("cannot build")

    tool = as_tool(inner(sdk, probe), input_builder=build)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m))
async def input_builder_returns_rubbish(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe), input_builder=lambda options: 7, failure_error_function=told)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


def told(ctx: Any, error: Exception) -> str:
    """A failure function that shows the class, as the texts may differ."""
    return f"failed: {type(error).__name__}"


@program(lambda m: asked(m, arguments={"city": 5}))
async def invalid_structured_parameters(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe), parameters=Trip, failure_error_function=told)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, arguments='{"input": '))
async def broken_input_of_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(outer(sdk, probe, as_tool(inner(sdk, probe))), probe.input)


@program(lambda m: [])
async def wrong_options_of_as_tool(sdk: Any, probe: Probe) -> Any:
    wrong: list[dict[str, Any]] = [
        {"parameters": dict},
        {"parameters": "Trip"},
        {"on_stream": "no function"},
        {"on_stream_max_pending_events": 0},
        {"run_config": {"no_such_option": 1}},
    ]
    for options in wrong:
        try:
            as_tool(inner(sdk, probe), **options)
            probe.note(sorted(options), "accepted")
        except Exception as error:
            probe.note(sorted(options), type(error).__name__)
    return None


@program(lambda m: asked(m, m.text("Inner says hello.")))
async def custom_output_extractor(sdk: Any, probe: Probe) -> Any:
    async def extract(result: Any) -> str:
        probe.note(type(result).__name__, result.final_output, result.last_agent.name)
        invocation = result.agent_tool_invocation
        probe.note(invocation.tool_name, invocation.tool_call_id, invocation.tool_arguments)
        return f"extracted from {len(result.new_items)} items"

    tool = as_tool(inner(sdk, probe), custom_output_extractor=extract)
    result = await sdk.Runner.run(outer(sdk, probe, tool), probe.input)
    probe.note(result.agent_tool_invocation)
    return result


@program(lambda m: asked(m, m.structured({"text": "yes", "score": 0.5})))
async def typed_output_of_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe, output_type=Answer))
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.answer("Thinking.", m.tool_call("f", call_id="call_in")), m.text("")))
async def empty_output_of_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "what f says"

    tool = as_tool(inner(sdk, probe, tools=[f]))
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.tool_call("f", call_id="call_in")))
async def agent_tool_reaches_max_turns(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    tool = as_tool(inner(sdk, probe, tools=[f]), max_turns=1)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.tool_call("f", call_id="call_in")))
async def agent_tool_failure_function(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    async def explain(ctx: Any, error: Exception) -> str:
        probe.note(type(error).__name__, ctx.context)
        return f"failed: {error}"

    tool = as_tool(inner(sdk, probe, tools=[f]), max_turns=1, failure_error_function=explain)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input, context="ctx")


@program(lambda m: asked(m, m.tool_call("f", call_id="call_in")))
async def agent_tool_failure_is_raised(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    tool = as_tool(inner(sdk, probe, tools=[f]), max_turns=1, failure_error_function=None)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.error(400, code="bad", message="No.")))
async def agent_tool_whose_model_fails(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe), failure_error_function=told)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.tool_call("f", call_id="call_in"), m.text("Inner done.")))
async def on_stream(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    async def see(payload: Any) -> None:
        event = payload["event"]
        name = event.data.type if event.type == "raw_response_event" else event.type
        probe.note(payload["agent"].name, payload["tool_call"].name, name)

    tool = as_tool(inner(sdk, probe, tools=[f]), on_stream=see)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Inner done.")))
async def on_stream_in_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    def see(payload: Any) -> None:
        if payload["event"].type != "raw_response_event":
            probe.note(sorted(payload), payload["event"].type)

    tool = as_tool(inner(sdk, probe), on_stream=see)
    return sdk.Runner.run_streamed(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Inner done.")))
async def on_stream_raises(sdk: Any, probe: Probe) -> Any:
    calls: list[str] = []

    def see(payload: Any) -> None:
        calls.append(payload["event"].type)
        raise ValueError("not seen")

    tool = as_tool(inner(sdk, probe), on_stream=see)
    result = await sdk.Runner.run(outer(sdk, probe, tool), probe.input)
    probe.note(calls[0], calls[-1])
    return result


@program(
    lambda m: asked(m, m.tool_call("transfer_to_other", call_id="call_in"), m.text("Other done."))
)
async def on_stream_over_a_handoff(sdk: Any, probe: Probe) -> Any:
    def see(payload: Any) -> None:
        if payload["event"].type != "raw_response_event":
            probe.note(payload["agent"].name, payload["event"].type)

    other = inner(sdk, probe, name="Other")
    tool = as_tool(inner(sdk, probe, handoffs=[other]), on_stream=see)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Inner done.")))
async def run_config_of_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(model="gpt-4.1-mini", model_settings=sdk.ModelSettings(temperature=0.2))
    tool = as_tool(inner(sdk, probe), run_config=config)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Inner done.")))
async def run_config_is_inherited(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(model="gpt-4.1-mini", model_settings=sdk.ModelSettings(temperature=0.2))
    agent = outer(sdk, probe, as_tool(inner(sdk, probe)))
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.text("Nobody to ask.")])
async def disabled_agent_tools(sdk: Any, probe: Probe) -> Any:
    questions: set[tuple[str, str]] = set()

    async def allowed(ctx: Any, agent: Any) -> bool:
        questions.add((agent.name, ctx.context))
        return False

    agent = outer(
        sdk,
        probe,
        as_tool(inner(sdk, probe), tool_name="one", is_enabled=False),
        as_tool(inner(sdk, probe), tool_name="two", is_enabled=allowed),
        as_tool(inner(sdk, probe), tool_name="three", is_enabled=lambda ctx, agent: True),
    )
    result = await sdk.Runner.run(agent, probe.input, context="ctx")
    probe.note(sorted(questions))
    return result


@program(
    lambda m: (
        [
            *asked(
                m,
                m.tool_call("ask_innermost", {"input": "Deeper."}, call_id="call_in"),
                m.text("Inner done."),
            ),
            m.text("Innermost done.").when("I am the innermost"),
        ]
    )
)
async def agent_tool_in_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    deepest = inner(
        sdk, probe, name="Innermost", instructions=f"I am the innermost of <{probe.name}>."
    )
    middle = inner(sdk, probe, tools=[as_tool(deepest, tool_name="ask_innermost")])
    return await sdk.Runner.run(outer(sdk, probe, as_tool(middle)), probe.input)


@program(
    lambda m: [
        m.tool_calls(("ask_slow", {"input": "1"}), ("ask_quick", {"input": "2"})).when(
            "I am Outer"
        ),
        m.text("Outer done.").when("I am Outer"),
        m.text("Slow done.").when("I am slow"),
        m.text("Quick done.").when("I am quick"),
    ]
)
async def parallel_agent_tools(sdk: Any, probe: Probe) -> Any:
    quick_is_done = asyncio.Event()

    async def after_quick(ctx: Any, agent: Any) -> str:
        await quick_is_done.wait()
        return f"I am slow of <{probe.name}>."

    async def extract(result: Any) -> str:
        quick_is_done.set()
        return str(result.final_output)

    slow = inner(sdk, probe, name="Slow", instructions=after_quick)
    quick = inner(sdk, probe, name="Quick", instructions=f"I am quick of <{probe.name}>.")
    agent = outer(
        sdk,
        probe,
        as_tool(slow, tool_name="ask_slow"),
        as_tool(quick, tool_name="ask_quick", custom_output_extractor=extract),
    )
    return await sdk.Runner.run(agent, probe.input)


@program(
    lambda m: [
        m.answer(
            m.tool_call("ask_inner", {"input": "Hi."}),
            usage=m.Usage(input_tokens=10, output_tokens=1),
        ).when("I am Outer"),
        m.answer("Done.", usage=m.Usage(input_tokens=20, output_tokens=2)).when("I am Outer"),
        m.answer("In.", usage=m.Usage(input_tokens=5, output_tokens=3, reasoning_tokens=1)).when(
            "I am Inner"
        ),
    ]
)
async def usage_of_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    async def extract(result: Any) -> str:
        probe.note(result.context_wrapper.usage.requests, len(result.raw_responses))
        return "in"

    tool = as_tool(inner(sdk, probe), custom_output_extractor=extract)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(lambda m: asked(m, m.text("Inner has the last word.")))
async def agent_tool_ends_the_run(sdk: Any, probe: Probe) -> Any:
    agent = outer(sdk, probe, as_tool(inner(sdk, probe)), tool_use_behavior="stop_on_first_tool")
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: asked(m, m.structured({"text": "yes", "score": 1.0})))
async def typed_agent_tool_ends_the_run(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe, output_type=Answer))
    agent = outer(sdk, probe, tool, tool_use_behavior="stop_on_first_tool")
    return await sdk.Runner.run(agent, probe.input)


@program(
    lambda m: asked(
        m,
        m.tool_call("f", call_id="call_in"),
        m.text("Go."),
        arguments={"city": "Oslo", "days": 3},
    )
)
async def tool_input_in_the_context(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(ctx: sdk.RunContextWrapper[Any]) -> str:
        probe.note(ctx.tool_input, ctx.context)
        return "f"

    tool = as_tool(inner(sdk, probe, tools=[f]), parameters=Trip)
    result = await sdk.Runner.run(outer(sdk, probe, tool), probe.input, context="ctx")
    probe.note(result.context_wrapper.tool_input)
    return result


@program(
    lambda m: asked(m, m.tool_call("transfer_to_other", call_id="call_in"), m.text("Other done."))
)
async def handoff_inside_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    other = inner(sdk, probe, name="Other")
    agent = outer(sdk, probe, as_tool(inner(sdk, probe, handoffs=[other])))
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: asked(m, m.text("Inner says hello.")))
async def session_is_not_shared_with_agent_tools(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession("outer")
    own = sdk.SQLiteSession("inner")
    agent = outer(sdk, probe, as_tool(inner(sdk, probe), session=own))
    result = await sdk.Runner.run(agent, probe.input, session=session)
    probe.note([item.get("type") or item["role"] for item in await session.get_items()])
    probe.note(await own.get_items())
    return result


@program(lambda m: asked(m, m.text("Inner says hello.")))
async def conversation_is_not_shared_with_agent_tools(sdk: Any, probe: Probe) -> Any:
    agent = outer(sdk, probe, as_tool(inner(sdk, probe)))
    return await sdk.Runner.run(agent, probe.input, auto_previous_response_id=True)


@program(lambda m: asked(m, m.text("Inner says hello.")))
async def agent_tool_with_guardrails_of_its_own(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail(run_in_parallel=False)
    def no(ctx: Any, agent: Any, text: Any) -> Any:
        return sdk.GuardrailFunctionOutput("no", tripwire_triggered=True)

    tool = as_tool(inner(sdk, probe, input_guardrails=[no]), failure_error_function=told)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)


@program(
    lambda m: [
        m.tool_call("ask_inner", {"input": "One."}).when("I am Outer"),
        m.tool_call("ask_inner", {"input": "Two."}).when("I am Outer"),
        m.text("Outer done.").when("I am Outer"),
        m.text("First.").when("One."),
        m.text("Second.").when("Two."),
    ]
)
async def agent_tool_twice(sdk: Any, probe: Probe) -> Any:
    agent = outer(sdk, probe, as_tool(inner(sdk, probe)))
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: asked(m, m.refusal("I will not.")))
async def agent_tool_refuses(sdk: Any, probe: Probe) -> Any:
    tool = as_tool(inner(sdk, probe), failure_error_function=told)
    return await sdk.Runner.run(outer(sdk, probe, tool), probe.input)
