"""Custom tools: the model writes one text, the tool answers with one."""

import asyncio
from typing import Any

from comparison.program import MODEL, Probe, program

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}


def one_call(m: Any) -> list[Any]:
    return [m.custom_tool_call("patch", "*** Begin\n+a\n", call_id="call_own"), m.text("Done.")]


def patcher(sdk: Any, invoke: Any, **options: Any) -> Any:
    tool = sdk.CustomTool(
        name="patch", description="Changes files.", on_invoke_tool=invoke, **options
    )
    return sdk.Agent(name="Patcher", model=MODEL, tools=[tool])


@program(one_call)
async def custom_tool(sdk: Any, probe: Probe) -> Any:
    def invoke(ctx: Any, text: str) -> str:
        probe.note(ctx.tool_name, ctx.tool_call_id, ctx.tool_arguments, ctx.context, text)
        probe.note(ctx.usage.requests, ctx.agent.name, ctx.qualified_tool_name, ctx.tool_call)
        return "ok"

    agent = patcher(sdk, invoke, format=GRAMMAR)
    return await sdk.Runner.run(agent, probe.input, context="ctx")


@program(one_call)
async def custom_tool_streamed(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(patcher(sdk, lambda ctx, text: text.upper()), probe.input)


@program(one_call)
async def custom_tool_returns_no_text(sdk: Any, probe: Probe) -> Any:
    async def invoke(ctx: Any, text: str) -> Any:
        return {"lines": [1, 2], "ok": True}

    return await sdk.Runner.run(patcher(sdk, invoke), probe.input)


@program(one_call)
async def custom_tool_raises(sdk: Any, probe: Probe) -> Any:
    def invoke(ctx: Any, text: str) -> str:
        raise ValueError("there is no such file")

    def format_error(args: Any) -> str:
        probe.note("asked to format", args.kind)
        return "formatted"

    config = sdk.RunConfig(tool_error_formatter=format_error)
    return await sdk.Runner.run(patcher(sdk, invoke), probe.input, run_config=config)


@program(one_call)
async def custom_tool_raises_without_words(sdk: Any, probe: Probe) -> Any:
    async def invoke(ctx: Any, text: str) -> str:
        raise sdk.UserError("")

    return await sdk.Runner.run(patcher(sdk, invoke), probe.input)


@program(one_call)
async def custom_tool_data(sdk: Any, probe: Probe) -> Any:
    def extract(data: Any) -> dict[str, Any]:
        probe.note(data.tool.name, data.input, data.output, data.raw_item)
        return {"call": data.tool_context.tool_call_id}

    agent = patcher(sdk, lambda ctx, text: 7, custom_data_extractor=extract)
    return await sdk.Runner.run(agent, probe.input)


@program(one_call)
async def custom_tool_does_not_end_a_run(sdk: Any, probe: Probe) -> Any:
    agent = patcher(sdk, lambda ctx, text: "ok")
    agent.tool_use_behavior = "stop_on_first_tool"
    return await sdk.Runner.run(agent, probe.input)


@program(one_call)
async def custom_tool_is_no_matter_of_the_behavior(sdk: Any, probe: Probe) -> Any:
    agent = patcher(sdk, lambda ctx, text: "ok")
    agent.tool_use_behavior = lambda ctx, results: probe.note("asked")
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.tool_calls(m.custom_tool_call("patch", "a"), ("f", {}))])
async def custom_tool_beside_the_function_that_ends_a_run(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = patcher(sdk, lambda ctx, text: "ok")
    agent.tools.append(f)
    agent.tool_use_behavior = "stop_on_first_tool"
    return await sdk.Runner.run(agent, probe.input)


@program(
    lambda m: [
        m.tool_calls(m.custom_tool_call("patch", "slow"), m.custom_tool_call("patch", "quick")),
        m.text("Both."),
    ]
)
async def custom_tools_run_one_after_the_other(sdk: Any, probe: Probe) -> Any:
    async def invoke(ctx: Any, text: str) -> str:
        probe.note("begins", text)
        for _ in range(20 if text == "slow" else 1):
            await asyncio.sleep(0.001)
        probe.note("ends", text)
        return text

    return await sdk.Runner.run(patcher(sdk, invoke), probe.input)


@program(lambda m: [*one_call(m), m.text("Still done.")])
async def custom_tool_in_the_input_of_the_next_run(sdk: Any, probe: Probe) -> Any:
    agent = patcher(sdk, lambda ctx, text: "ok")
    first = await sdk.Runner.run(agent, probe.input)
    again = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
    return await sdk.Runner.run(agent, again)


@program(lambda m: [m.custom_tool_call("ghost", "boo")])
async def unknown_custom_tool(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(tool_not_found_behavior="return_error_to_model")
    agent = patcher(sdk, lambda ctx, text: "ok")
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(lambda m: [m.tool_call("patch", {})])
async def custom_tool_called_as_a_function(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(patcher(sdk, lambda ctx, text: "ok"), probe.input)


@program(lambda m: [m.custom_tool_call("f", "{}")])
async def function_called_as_a_custom_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    return await sdk.Runner.run(sdk.Agent(name="Mixed", model=MODEL, tools=[f]), probe.input)


@program(lambda m: [])
async def custom_tool_on_chat_completions(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    return await sdk.Runner.run(patcher(sdk, lambda ctx, text: "ok"), probe.input)
