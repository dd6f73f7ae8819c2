"""Structured outputs, refusals, and the handlers for what goes wrong with them."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel
from typing_extensions import TypedDict

from comparison.program import MODEL, Probe, program


class Color(Enum):
    red = "red"
    blue = "blue"


class Event(BaseModel):
    """A day in a calendar."""

    name: str
    guests: list[str]
    color: Color = Color.red


@dataclass
class Place:
    city: str
    population: int | None = None


class Movie(TypedDict):
    title: str
    year: int


def _agent(sdk: Any, output_type: Any) -> Any:
    return sdk.Agent(name="Typed", model=MODEL, output_type=output_type)


@program(lambda m: [m.structured({"name": "Fair", "guests": ["Ann"], "color": "blue"})])
async def output_pydantic(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, Event), probe.input)


@program(lambda m: [m.structured({"response": {"city": "Oslo", "population": 700000}})])
async def output_dataclass(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, Place), probe.input)


@program(lambda m: [m.structured({"title": "Heat", "year": 1995})])
async def output_typed_dict(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, Movie), probe.input)


@program(lambda m: [m.structured({"response": ["a", "b"]})])
async def output_list(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, list[str]), probe.input)


@program(lambda m: [m.structured({"response": 7})])
async def output_scalar(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, int), probe.input)


@program(lambda m: [m.structured({"response": {"title": "Heat", "year": 1995}})])
async def output_union(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, Event | Movie), probe.input)


@program(lambda m: [m.structured({"a": 1})])
async def output_not_strict(sdk: Any, probe: Probe) -> Any:
    schema = sdk.AgentOutputSchema(dict[str, int], strict_json_schema=False)
    return await sdk.Runner.run(_agent(sdk, schema), probe.input)


@program(lambda m: [])
async def output_cannot_be_strict(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, dict[str, int]), probe.input)


@program(lambda m: [m.text("a,b,c")])
async def output_of_an_own_schema(sdk: Any, probe: Probe) -> Any:
    class Commas(sdk.AgentOutputSchemaBase):
        def is_plain_text(self) -> bool:
            return False

        def name(self) -> str:
            return "Commas"

        def json_schema(self) -> dict[str, Any]:
            return {"type": "object", "properties": {}}

        def is_strict_json_schema(self) -> bool:
            return False

        def validate_json(self, json_str: str) -> Any:
            return json_str.split(",")

    return await sdk.Runner.run(_agent(sdk, Commas()), probe.input)


@program(lambda m: [m.text("no json at all")])
async def invalid_output(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, Event), probe.input)


@program(lambda m: [m.structured({"name": 7})])
async def output_that_does_not_fit(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, Event), probe.input)


@program(lambda m: [m.structured({"answer": 7})])
async def wrapped_output_without_its_key(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, int), probe.input)


def _handler(probe: Probe, value: Any) -> Any:
    def handle(data: Any) -> Any:
        probe.note(type(data.error).__name__, str(data.error), data.context.context)
        run = data.run_data
        probe.note(
            run.last_agent.name,
            [item.type for item in run.new_items],
            run.history,
            run.output,
            len(run.raw_responses),
        )
        return value

    return handle


@program(lambda m: [m.text("no json at all")])
async def invalid_output_handled(sdk: Any, probe: Probe) -> Any:
    handlers = {"invalid_final_output": _handler(probe, Event(name="None", guests=[]))}
    return await sdk.Runner.run(_agent(sdk, Event), probe.input, error_handlers=handlers)


@program(lambda m: [m.text("no json at all")])
async def invalid_output_not_handled_after_all(sdk: Any, probe: Probe) -> Any:
    handlers = {"invalid_final_output": _handler(probe, None)}
    return await sdk.Runner.run(_agent(sdk, Event), probe.input, error_handlers=handlers)


@program(lambda m: [m.text("no json at all")])
async def handler_output_does_not_fit(sdk: Any, probe: Probe) -> Any:
    handlers = {"invalid_final_output": _handler(probe, {"final_output": "nonsense"})}
    return await sdk.Runner.run(_agent(sdk, Event), probe.input, error_handlers=handlers)


@program(lambda m: [m.refusal("I will not.")])
async def refusal(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(sdk.Agent(name="R", model=MODEL), probe.input)


@program(lambda m: [m.refusal("I will not.")])
async def refusal_of_a_typed_agent(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(_agent(sdk, Event), probe.input)


@program(lambda m: [m.refusal("I will not.")])
async def refusal_handled(sdk: Any, probe: Probe) -> Any:
    handlers = {"model_refusal": _handler(probe, "Fine.")}
    agent = sdk.Agent(name="R", model=MODEL)
    return await sdk.Runner.run(agent, probe.input, error_handlers=handlers)


@program(lambda m: [m.tool_call("f"), m.tool_call("f")])
async def max_turns_exceeded(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = sdk.Agent(name="Loop", model=MODEL, tools=[f])
    return await sdk.Runner.run(agent, probe.input, max_turns=2)


@program(lambda m: [m.tool_call("f"), m.text("Done.")])
async def max_turns_unlimited(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = sdk.Agent(name="Loop", model=MODEL, tools=[f])
    return await sdk.Runner.run(agent, probe.input, max_turns=None)


@program(lambda m: [m.tool_call("f")])
async def max_turns_handled(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    result = sdk.RunErrorHandlerResult(final_output="Enough.", include_in_history=True)
    agent = sdk.Agent(name="Loop", model=MODEL, tools=[f])
    return await sdk.Runner.run(
        agent, probe.input, max_turns=1, error_handlers={"max_turns": _handler(probe, result)}
    )


@program(lambda m: [m.tool_call("f")])
async def max_turns_handled_outside_of_the_history(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    async def handle(data: Any) -> Any:
        return {"final_output": "Enough.", "include_in_history": False}

    agent = sdk.Agent(name="Loop", model=MODEL, tools=[f])
    return await sdk.Runner.run(
        agent, probe.input, max_turns=1, error_handlers={"max_turns": handle}
    )


@program(lambda m: [m.tool_call("f")])
async def max_turns_handler_raises(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    def handle(data: Any) -> Any:
        raise LookupError("handler broke")

    agent = sdk.Agent(name="Loop", model=MODEL, tools=[f])
    return await sdk.Runner.run(
        agent, probe.input, max_turns=1, error_handlers={"max_turns": handle}
    )


@program(lambda m: [])
async def unknown_error_handler(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(
        sdk.Agent(name="A", model=MODEL), probe.input, error_handlers={"boredom": lambda data: 1}
    )


@program(lambda m: [m.answer(m.reasoning("Hm.")), m.structured({"response": 7})])
async def typed_agent_without_text_goes_on(sdk: Any, probe: Probe) -> Any:
    def drop_reasoning(data: Any) -> Any:
        kept = [item for item in data.model_data.input if item.get("type") != "reasoning"]
        if len(kept) < len(data.model_data.input):
            kept.append({"role": "assistant", "content": "Hm."})
        return type(data.model_data)(input=kept, instructions=None)

    config = sdk.RunConfig(call_model_input_filter=drop_reasoning)
    return await sdk.Runner.run(_agent(sdk, int), probe.input, run_config=config)
