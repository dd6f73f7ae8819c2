"""Streamed runs: event names and their order, errors, cancellation."""

from typing import Any

from comparison.program import MODEL, Probe, program
from comparison.programs.outputs import Event
from comparison.report import event_report, result_report


@program(lambda m: [m.text("Hello there, friend.")])
async def streamed_answer(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Greeter", instructions="Be brief.", model=MODEL)
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [m.text("Hello there, friend.")])
async def streamed_deltas(sdk: Any, probe: Probe) -> Any:
    result = sdk.Runner.run_streamed(sdk.Agent(name="Greeter", model=MODEL), probe.input)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            probe.note(event.data.delta)
        elif event.type == "raw_response_event" and event.data.type == "response.completed":
            probe.note(event.data.response.usage.output_tokens)
    return result.final_output


@program(
    lambda m: [
        m.answer(m.reasoning("Hm."), "Let me see.", m.tool_call("f", {"x": 1}), m.tool_call("g")),
        m.text("Done."),
    ]
)
async def streamed_tools(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return f"f {x}"

    @sdk.function_tool
    async def g() -> dict[str, int]:
        return {"g": 1}

    agent = sdk.Agent(name="Tooled", model="gpt-5.1", tools=[f, g])
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [m.structured({"name": "Fair", "guests": [], "color": "red"})])
async def streamed_structured(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Typed", model=MODEL, output_type=Event)
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [m.text("no json")])
async def streamed_invalid_output(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Typed", model=MODEL, output_type=Event)
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [m.refusal("I will not.")])
async def streamed_refusal(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(sdk.Agent(name="R", model=MODEL), probe.input)


@program(lambda m: [m.tool_call("f")])
async def streamed_max_turns(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = sdk.Agent(name="Loop", model=MODEL, tools=[f])
    return sdk.Runner.run_streamed(agent, probe.input, max_turns=1)


@program(lambda m: [m.tool_call("f")])
async def streamed_max_turns_handled(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = sdk.Agent(name="Loop", model=MODEL, tools=[f])
    return sdk.Runner.run_streamed(
        agent, probe.input, max_turns=1, error_handlers={"max_turns": lambda data: "Enough."}
    )


@program(lambda m: [m.tool_call("f")])
async def streamed_tool_error(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(failure_error_function=None)
    def f() -> str:
        raise ValueError("up")

    return sdk.Runner.run_streamed(sdk.Agent(name="E", model=MODEL, tools=[f]), probe.input)


@program(lambda m: [m.tool_call("ghost")])
async def streamed_unknown_tool(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.tool_call("f")])
async def streamed_stop_on_first_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "final"

    agent = sdk.Agent(name="Stop", model=MODEL, tools=[f], tool_use_behavior="stop_on_first_tool")
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [m.tool_call("f"), m.text("Done.")])
async def streamed_dynamic_instructions(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = sdk.Agent(name="Dyn", model=MODEL, tools=[f], instructions=lambda ctx, agent: "Dyn.")
    return sdk.Runner.run_streamed(agent, probe.input)


@program(lambda m: [m.text("Hello there, friend.")])
async def before_and_after_a_stream(sdk: Any, probe: Probe) -> Any:
    result = sdk.Runner.run_streamed(sdk.Agent(name="G", model=MODEL), probe.input)
    probe.note(result.is_complete, result.final_output, result.current_agent.name)
    async for _ in result.stream_events():
        pass
    probe.note(result.is_complete, result.final_output, result.current_turn)
    return result_report(result)


@program(lambda m: [m.text("One two three four five.").chunks(delta_delay_s=0.05)])
async def cancel_immediately(sdk: Any, probe: Probe) -> Any:
    result = sdk.Runner.run_streamed(sdk.Agent(name="C", model=MODEL), probe.input)
    seen = []
    async for event in result.stream_events():
        seen.append(event_report(event)[:2])
        if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
            result.cancel()
    probe.note(result.is_complete, result.final_output, len(result.new_items))
    return seen


@program(lambda m: [m.tool_call("f")])
async def cancel_after_turn(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    result = sdk.Runner.run_streamed(sdk.Agent(name="C", model=MODEL, tools=[f]), probe.input)
    seen = []
    async for event in result.stream_events():
        seen.append(event_report(event)[:2])
        if event.type == "raw_response_event" and event.data.type == "response.created":
            result.cancel(mode="after_turn")
    probe.note(result.is_complete, result.final_output)
    return seen, result_report(result)


@program(lambda m: [m.error(400, message="Bad request.")])
async def streamed_http_400(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.status_failed("It broke.")])
async def streamed_failed_response(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.incomplete("Hal")])
async def streamed_incomplete_response(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(sdk.Agent(name="E", model=MODEL), probe.input)


@program(lambda m: [m.malformed()])
async def streamed_malformed_answer(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(sdk.Agent(name="E", model=MODEL), probe.input)
