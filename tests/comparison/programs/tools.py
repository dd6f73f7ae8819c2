"""Function tools: loops, errors, timeouts, outputs, what ends a run."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from comparison.program import MODEL, Probe, program


def one_call(m: Any) -> list[Any]:
    return [m.tool_call("f", {"x": 1}), m.text("Done.")]


def only_call(m: Any) -> list[Any]:
    return [m.tool_call("f", {"x": 1})]


@program(
    lambda m: [
        m.tool_call("get_weather", {"city": "Oslo"}),
        m.tool_call("get_weather", {"city": "Rome"}),
        m.text("Cold and warm."),
    ]
)
async def tool_loop(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def get_weather(city: Annotated[str, Field(description="A city.")], unit: str = "C") -> str:
        """The weather of a city.

        Args:
            city: Where.
            unit: C or F.
        """
        return f"{city}: 7 {unit}"

    agent = sdk.Agent(name="Weather", instructions="Use tools.", model=MODEL, tools=[get_weather])
    return await sdk.Runner.run(agent, probe.input)


@program(
    lambda m: [m.tool_calls(("slow", {}), ("quick", {}), ("quick", {"n": 2})), m.text("All done.")]
)
async def parallel_tools(sdk: Any, probe: Probe) -> Any:
    quick_ran = asyncio.Event()

    @sdk.function_tool
    async def slow() -> str:
        await quick_ran.wait()
        return "slow"

    @sdk.function_tool
    async def quick(n: int = 1) -> str:
        quick_ran.set()
        return f"quick {n}"

    agent = sdk.Agent(name="Par", model=MODEL, tools=[slow, quick])
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.tool_calls(("f", {"x": 1}), ("f", {"x": 2}), ("f", {"x": 3})), m.text("Ok.")])
async def limited_concurrency(sdk: Any, probe: Probe) -> Any:
    running: list[int] = []

    @sdk.function_tool
    async def f(x: int) -> str:
        running.append(x)
        probe.note(len(running))
        await asyncio.sleep(0.01)
        running.remove(x)
        return str(x)

    config = sdk.RunConfig(tool_execution=sdk.ToolExecutionConfig(max_function_tool_concurrency=1))
    return await sdk.Runner.run(
        sdk.Agent(name="Par", model=MODEL, tools=[f]), probe.input, run_config=config
    )


@program(lambda m: [m.tool_calls(("sync_tool", {}), ("async_tool", {})), m.text("Both.")])
async def sync_and_async_tools(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def sync_tool() -> str:
        return "sync"

    @sdk.function_tool
    async def async_tool() -> str:
        return "async"

    agent = sdk.Agent(name="Both", model=MODEL, tools=[sync_tool, async_tool])
    return await sdk.Runner.run(agent, probe.input)


@program(one_call)
async def tool_error_default(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        raise ValueError("secret detail")

    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL, tools=[f]), probe.input)


@program(one_call)
async def tool_error_custom(sdk: Any, probe: Probe) -> Any:
    async def explain(ctx: Any, error: Exception) -> str:
        return f"{type(error).__name__}: {error} ({ctx.context})"

    @sdk.function_tool(failure_error_function=explain)
    def f(x: int) -> str:
        raise ValueError("told")

    agent = sdk.Agent(name="E", model=MODEL, tools=[f])
    return await sdk.Runner.run(agent, probe.input, context="ctx")


@program(only_call)
async def tool_error_none(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(failure_error_function=None)
    def f(x: int) -> str:
        raise ValueError("up")

    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL, tools=[f]), probe.input)


@program(only_call)
async def tool_raises_an_sdk_error(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(failure_error_function=None)
    def f(x: int) -> str:
        raise sdk.UserError("not like this")

    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL, tools=[f]), probe.input)


@program(one_call)
async def tool_error_formatter(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        raise ValueError("why")

    def formatter(args: Any) -> str:
        probe.note(args.kind, args.tool_type, args.tool_name, args.default_message)
        return f"formatted {args.kind} {args.error}"

    config = sdk.RunConfig(tool_error_formatter=formatter)
    agent = sdk.Agent(name="E", model=MODEL, tools=[f])
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.tool_call("f", '{"x": '), m.tool_call("f", {"x": "no"}), m.text("Sorry.")])
async def bad_arguments_default(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return "never"

    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL, tools=[f]), probe.input)


@program(lambda m: [m.tool_call("f", '{"x": ')])
async def bad_arguments_raise(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(failure_error_function=None)
    def f(x: int) -> str:
        return "never"

    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL, tools=[f]), probe.input)


@program(lambda m: [m.tool_call("f", {"x": "no"})])
async def invalid_arguments_raise(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(failure_error_function=None)
    def f(x: int) -> str:
        return "never"

    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL, tools=[f]), probe.input)


@program(one_call)
async def tool_timeout_as_result(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(timeout=0.05)
    async def f(x: int) -> str:
        await asyncio.sleep(10)
        return "late"

    return await sdk.Runner.run(sdk.Agent(name="T", model=MODEL, tools=[f]), probe.input)


@program(one_call)
async def tool_timeout_custom_text(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(timeout=0.05, timeout_error_function=lambda ctx, error: f"late: {error}")
    async def f(x: int) -> str:
        await asyncio.sleep(10)
        return "late"

    return await sdk.Runner.run(sdk.Agent(name="T", model=MODEL, tools=[f]), probe.input)


@program(only_call)
async def tool_timeout_raises(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(timeout=0.05, timeout_behavior="raise_exception")
    async def f(x: int) -> str:
        await asyncio.sleep(10)
        return "late"

    return await sdk.Runner.run(sdk.Agent(name="T", model=MODEL, tools=[f]), probe.input)


@program(lambda m: [])
async def timeout_of_a_sync_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(timeout=1.0)
    def f(x: int) -> str:
        return "x"

    return None


@program(lambda m: [m.tool_call("add", {"n": 2}), m.tool_call("add", {"n": 3}), m.text("Five.")])
async def context_mutation(sdk: Any, probe: Probe) -> Any:
    class Cart:
        total = 0

    @sdk.function_tool
    def add(ctx: sdk.RunContextWrapper[Cart], n: int) -> str:
        ctx.context.total += n
        return str(ctx.context.total)

    cart = Cart()
    agent = sdk.Agent(name="Shop", model=MODEL, tools=[add])
    result = await sdk.Runner.run(agent, probe.input, context=cart)
    probe.note(cart.total, result.context_wrapper.context is cart)
    return result


@program(lambda m: [m.tool_call("who", {"x": 1}, call_id="call_own"), m.text("Done.")])
async def tool_context(sdk: Any, probe: Probe) -> Any:
    from importlib import import_module

    if TYPE_CHECKING:
        from sandstream.tool_context import ToolContext
    else:
        ToolContext = import_module(f"{sdk.__name__}.tool_context").ToolContext

    @sdk.function_tool
    def who(ctx: ToolContext[Any], x: int) -> str:
        probe.note(ctx.tool_name, ctx.tool_call_id, ctx.tool_arguments, ctx.context)
        assert ctx.agent is not None and ctx.tool_call is not None
        probe.note(ctx.usage.requests, ctx.agent.name, ctx.qualified_tool_name)
        probe.note(ctx.tool_call.name, ctx.tool_call.call_id)
        return "ok"

    agent = sdk.Agent(name="Who", model=MODEL, tools=[who])
    return await sdk.Runner.run(agent, probe.input, context="ctx")


@program(lambda m: [m.tool_call("raw", {"q": "a"}), m.text("Done.")])
async def function_tool_object(sdk: Any, probe: Probe) -> Any:
    async def invoke(ctx: Any, arguments: str) -> Any:
        return f"{ctx.tool_name} {arguments}"

    tool = sdk.FunctionTool(
        name="raw",
        description="Takes anything.",
        params_json_schema={"type": "object", "properties": {"q": {"type": "string"}}},
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
    return await sdk.Runner.run(sdk.Agent(name="Raw", model=MODEL, tools=[tool]), probe.input)


@program(lambda m: [m.tool_call("book", {"trip": {"to": "Oslo", "days": 3}}), m.text("Booked.")])
async def pydantic_arguments(sdk: Any, probe: Probe) -> Any:
    class Trip(BaseModel):
        to: str
        days: int = 1
        note: str | None = None

    @sdk.function_tool(name_override="book", description_override="Book a trip.")
    def book_trip(trip: Trip, *, urgent: bool = False) -> str:
        return f"{trip.to} {trip.days} {urgent}"

    return await sdk.Runner.run(sdk.Agent(name="Book", model=MODEL, tools=[book_trip]), probe.input)


def _outputs(m: Any) -> list[Any]:
    names = ("none", "number", "data", "raw_bytes", "model", "many")
    return [m.tool_calls(*((name, {}) for name in names)), m.text("Seen.")]


@program(_outputs)
async def tool_outputs_as_text(sdk: Any, probe: Probe) -> Any:
    class Point(BaseModel):
        x: int

    values: dict[str, Any] = {
        "none": None,
        "number": 1.5,
        "data": {"a": [1, None]},
        "raw_bytes": b"\x00\xff",
        "model": Point(x=1),
        "many": [1, "two"],
    }

    def tool(name: str) -> Any:
        def f() -> Any:
            return values[name]

        return sdk.function_tool(f, name_override=name)

    agent = sdk.Agent(name="Out", model=MODEL, tools=[tool(name) for name in values])
    return await sdk.Runner.run(agent, probe.input)


def _contents(m: Any) -> list[Any]:
    names = ("text", "image", "file", "image_dict", "several")
    return [m.tool_calls(*((name, {}) for name in names)), m.text("Seen.")]


@program(_contents)
async def tool_outputs_as_content(sdk: Any, probe: Probe) -> Any:
    values: dict[str, Any] = {
        "text": sdk.ToolOutputText(text="plain"),
        "image": sdk.ToolOutputImage(image_url="data:image/png;base64,AA==", detail="low"),
        "file": sdk.ToolOutputFileContent(file_data="QUJD", filename="a.txt"),
        "image_dict": {"type": "image", "file_id": "file_1"},
        "several": [
            sdk.ToolOutputText(text="first"),
            sdk.ToolOutputImage(image_url="https://example.org/a.png"),
        ],
    }

    def tool(name: str) -> Any:
        def f() -> Any:
            return values[name]

        return sdk.function_tool(f, name_override=name)

    agent = sdk.Agent(name="Out", model=MODEL, tools=[tool(name) for name in values])
    return await sdk.Runner.run(agent, probe.input)


@program(only_call)
async def stop_on_first_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return "final"

    agent = sdk.Agent(name="Stop", model=MODEL, tools=[f], tool_use_behavior="stop_on_first_tool")
    return await sdk.Runner.run(agent, probe.input)


@program(only_call)
async def stop_on_first_tool_with_a_number(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> int:
        return x

    agent = sdk.Agent(name="Stop", model=MODEL, tools=[f], tool_use_behavior="stop_on_first_tool")
    return await sdk.Runner.run(agent, probe.input)


@program(only_call)
async def stop_on_first_tool_with_output_type(sdk: Any, probe: Probe) -> Any:
    class Point(BaseModel):
        x: int

    @sdk.function_tool
    def f(x: int) -> Any:
        return Point(x=x)

    agent = sdk.Agent(
        name="Stop",
        model=MODEL,
        tools=[f],
        tool_use_behavior="stop_on_first_tool",
        output_type=Point,
    )
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.tool_call("f", {"x": 1}), m.tool_calls(("f", {"x": 2}), ("g", {}))])
async def stop_at_tool_names(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return f"f {x}"

    @sdk.function_tool
    def g() -> str:
        return "g ends it"

    agent = sdk.Agent(
        name="Stop", model=MODEL, tools=[f, g], tool_use_behavior={"stop_at_tool_names": ["g"]}
    )
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.tool_call("f", {"x": 1}), m.tool_call("f", {"x": 2})])
async def tool_use_function(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return f"f {x}"

    async def decide(ctx: Any, results: list[Any]) -> Any:
        probe.note([[r.tool.name, r.output, r.run_item.type] for r in results])
        if results[0].output == "f 2":
            return sdk.ToolsToFinalOutputResult(is_final_output=True, final_output={"n": 2})
        return sdk.ToolsToFinalOutputResult(is_final_output=False)

    agent = sdk.Agent(name="Stop", model=MODEL, tools=[f], tool_use_behavior=decide)
    return await sdk.Runner.run(agent, probe.input)


@program(only_call)
async def tool_use_function_returns_rubbish(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return "f"

    agent = sdk.Agent(
        name="Stop", model=MODEL, tools=[f], tool_use_behavior=lambda ctx, results: True
    )
    return await sdk.Runner.run(agent, probe.input)


@program(one_call)
async def reset_tool_choice(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return "f"

    settings = sdk.ModelSettings(tool_choice="required")
    agent = sdk.Agent(name="Reset", model=MODEL, tools=[f], model_settings=settings)
    return await sdk.Runner.run(agent, probe.input)


@program(one_call)
async def keep_tool_choice(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return "f"

    settings = sdk.ModelSettings(tool_choice="f")
    agent = sdk.Agent(
        name="Keep", model=MODEL, tools=[f], model_settings=settings, reset_tool_choice=False
    )
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.tool_call("ghost", {})])
async def unknown_tool_raises(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="Lost", model=MODEL), probe.input)


@program(lambda m: [m.tool_calls(("ghost", {}), ("f", {"x": 1})), m.text("Sorry.")])
async def unknown_tool_is_reported(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return "f"

    config = sdk.RunConfig(tool_not_found_behavior="return_error_to_model")
    agent = sdk.Agent(name="Lost", model=MODEL, tools=[f])
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.text("Hello.")])
async def two_tools_of_one_name(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(name_override="same", description_override="first")
    def first() -> str:
        return "1"

    @sdk.function_tool(name_override="same", description_override="second")
    def second() -> str:
        return "2"

    agent = sdk.Agent(name="Two", model=MODEL, tools=[first, second])
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [])
async def two_tools_of_one_name_error(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(name_override="same")
    def first() -> str:
        return "1"

    @sdk.function_tool(name_override="same")
    def second() -> str:
        return "2"

    agent = sdk.Agent(name="Two", model=MODEL, tools=[first, second])
    config = sdk.RunConfig(tool_name_collision_policy="error")
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.tool_calls(("bad", {}), ("good", {}))])
async def one_of_two_tools_raises(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(failure_error_function=None)
    async def bad() -> str:
        raise RuntimeError("broken")

    @sdk.function_tool
    async def good() -> str:
        return "good"

    return await sdk.Runner.run(sdk.Agent(name="E", model=MODEL, tools=[bad, good]), probe.input)


@program(one_call)
async def custom_data(sdk: Any, probe: Probe) -> Any:
    def extract(context: Any) -> dict[str, Any]:
        return {"seen": context.tool_name if hasattr(context, "tool_name") else "?"}

    @sdk.function_tool(custom_data_extractor=extract)
    def f(x: int) -> str:
        return "f"

    return await sdk.Runner.run(sdk.Agent(name="Cd", model=MODEL, tools=[f]), probe.input)
