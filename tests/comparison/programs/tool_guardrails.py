"""Guardrails of function tools: what they allow, reject and end."""

from typing import Any

from comparison.program import MODEL, Probe, program


def one_call(m: Any) -> list[Any]:
    return [m.tool_call("f", {"x": 1}), m.text("Done.")]


def before(sdk: Any, probe: Probe, name: str, **answer: Any) -> Any:
    @sdk.tool_input_guardrail(name=name)
    def check(data: Any) -> Any:
        probe.note(name, data.context.tool_name, data.context.tool_arguments, data.agent.name)
        return decision(sdk, **answer)

    return check


def after(sdk: Any, probe: Probe, name: str, **answer: Any) -> Any:
    @sdk.tool_output_guardrail(name=name)
    async def check(data: Any) -> Any:
        probe.note(name, data.output, data.context.tool_call_id, data.agent.name)
        return decision(sdk, **answer)

    return check


def decision(sdk: Any, reject: str | None = None, ends: bool = False) -> Any:
    output = sdk.ToolGuardrailFunctionOutput
    if ends:
        return output.raise_exception(output_info={"ends": True})
    return output.reject_content(reject, "rejected") if reject else output.allow("fine")


def tool(sdk: Any, probe: Probe, *guardrails: Any, **options: Any) -> Any:
    inputs = [one for one in guardrails if isinstance(one, sdk.ToolInputGuardrail)]
    outputs = [one for one in guardrails if isinstance(one, sdk.ToolOutputGuardrail)]

    @sdk.function_tool(tool_input_guardrails=inputs, tool_output_guardrails=outputs, **options)
    def f(x: int) -> str:
        probe.note("f", x)
        return f"f {x}"

    return f


async def run(sdk: Any, probe: Probe, *guardrails: Any, **options: Any) -> Any:
    f = tool(sdk, probe, *guardrails, **options)
    return await sdk.Runner.run(sdk.Agent(name="Guarded", model=MODEL, tools=[f]), probe.input)


@program(one_call)
async def tool_guardrails_allow(sdk: Any, probe: Probe) -> Any:
    first, second = before(sdk, probe, "first"), before(sdk, probe, "second")
    return await run(sdk, probe, first, second, after(sdk, probe, "after"))


@program(one_call)
async def tool_input_guardrail_rejects(sdk: Any, probe: Probe) -> Any:
    rejects = before(sdk, probe, "no", reject="Not like this.")
    return await run(
        sdk, probe, rejects, before(sdk, probe, "never"), after(sdk, probe, "never either")
    )


@program(one_call)
async def tool_input_guardrail_ends_the_run(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, before(sdk, probe, "fine"), before(sdk, probe, "no", ends=True))


@program(one_call)
async def tool_output_guardrail_rejects(sdk: Any, probe: Probe) -> Any:
    return await run(
        sdk, probe, after(sdk, probe, "no", reject="Withheld."), after(sdk, probe, "later")
    )


@program(one_call)
async def tool_output_guardrail_ends_the_run(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, after(sdk, probe, "no", ends=True))


@program(one_call)
async def tool_input_guardrail_rejects_in_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    f = tool(sdk, probe, before(sdk, probe, "no", reject="Not like this."))
    return sdk.Runner.run_streamed(sdk.Agent(name="Guarded", model=MODEL, tools=[f]), probe.input)


@program(one_call)
async def tool_output_guardrail_ends_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    f = tool(sdk, probe, after(sdk, probe, "no", ends=True))
    return sdk.Runner.run_streamed(sdk.Agent(name="Guarded", model=MODEL, tools=[f]), probe.input)


@program(one_call)
async def tool_guardrail_raises(sdk: Any, probe: Probe) -> Any:
    @sdk.tool_input_guardrail
    def fails(data: Any) -> Any:
        raise ValueError("cannot check")

    probe.note(fails.get_name())
    return await run(sdk, probe, fails)


@program(one_call)
async def tool_guardrail_returns_rubbish(sdk: Any, probe: Probe) -> Any:
    @sdk.tool_output_guardrail
    def rubbish(data: Any) -> Any:
        return "rubbish"

    return await run(sdk, probe, rubbish)


@program(lambda m: [m.tool_calls(("f", {"x": 1}), ("g", {})), m.text("Done.")])
async def tool_guardrail_rejects_one_of_two_calls(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def g() -> str:
        return "g"

    f = tool(sdk, probe, before(sdk, probe, "no", reject="Not f."))
    return await sdk.Runner.run(sdk.Agent(name="Guarded", model=MODEL, tools=[f, g]), probe.input)


@program(one_call)
async def rejected_content_ends_the_run(sdk: Any, probe: Probe) -> Any:
    f = tool(sdk, probe, before(sdk, probe, "no", reject="Not like this."))
    agent = sdk.Agent(
        name="Guarded", model=MODEL, tools=[f], tool_use_behavior="stop_on_first_tool"
    )
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.tool_call("f", {"x": "no"}), m.text("Done.")])
async def tool_output_guardrail_sees_the_error(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, before(sdk, probe, "before"), after(sdk, probe, "after"))


@program(one_call)
async def tool_guardrail_objects(sdk: Any, probe: Probe) -> Any:
    async def look(data: Any) -> Any:
        return sdk.ToolGuardrailFunctionOutput(output_info=1)

    guardrail = sdk.ToolInputGuardrail(guardrail_function=look)
    probe.note(guardrail.get_name(), sdk.ToolGuardrailFunctionOutput(output_info=1))
    return await run(sdk, probe, guardrail)
