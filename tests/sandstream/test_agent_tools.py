"""Agents as tools in one process: what goes in, what comes out, what fails, what is seen of it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

from sandstream import (
    Agent,
    AgentToolStreamEvent,
    MaxTurnsExceeded,
    ModelBehaviorError,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    ToolContext,
    ToolOriginType,
    UserError,
    function_tool,
)
from sandstream.agent_tool import AgentTool
from sandstream.agent_tool_input import (
    build_structured_input_schema_info,
    default_tool_input_builder,
)
from sandstream.items import ToolCallItem, ToolCallOutputItem
from sandstream.testing import (
    ScriptedModel,
    Step,
    structured,
    text,
    tool_call,
    tool_calls,
)

pytestmark = pytest.mark.usefixtures("home")
MODEL = "gpt-4.1"


class Trip(BaseModel):
    """Where to go."""

    city: str = Field(description="The city.")
    days: int = 2


class Answer(BaseModel):
    score: float


@function_tool
def look(ctx: RunContextWrapper[Any]) -> str:
    """Look around."""
    return f"{ctx.context} {ctx.tool_input}"


def inner(**options: Any) -> Agent[Any]:
    given: dict[str, Any] = {"name": "Inner", "instructions": "I am Inner.", "model": MODEL}
    return Agent(**given | options)


def outer(*tools: Any, **options: Any) -> Agent[Any]:
    given: dict[str, Any] = {
        "name": "Outer",
        "instructions": "I am Outer.",
        "model": MODEL,
        "tools": list(tools),
    }
    return Agent(**given | options)


def as_tool(agent: Agent[Any], **options: Any) -> AgentTool:
    given: dict[str, Any] = {"tool_name": "ask", "tool_description": "Asks."}
    tool = agent.as_tool(**given | options)
    assert isinstance(tool, AgentTool)
    return tool


def asked(*steps: Step, arguments: Any = None) -> list[Step]:
    """The outer agent asks once; the inner one answers with these steps."""
    given = {"input": "Hi."} if arguments is None else arguments
    return [
        tool_call("ask", given).when("I am Outer"),
        text("Outer done.").when("I am Outer"),
        *(step.when("I am Inner") for step in steps),
    ]


def sent(model: ScriptedModel, index: int) -> Any:
    """The input of a request to the model."""
    return model.requests[index]["input"]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a program against a script; unused or unexpected steps fail the test."""

    def run(steps: list[Step], program: Callable[[ScriptedModel], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with ScriptedModel(steps) as model:
                monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
                monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
                return await program(model)

        return asyncio.run(main())

    return run


def ask(play: Any, steps: list[Step], tool: AgentTool, **options: Any) -> str:
    """What the outer agent's model reads of one call of the tool."""

    async def program(model: ScriptedModel) -> str:
        await Runner.run(outer(tool), "go", **options)
        (output,) = (it["output"] for it in sent(model, -1) if it.get("call_id") and "output" in it)
        return str(output)

    return str(play(steps, program))


# --- input and output -----------------------------------------------------------------------------


def test_the_agent_sees_its_input_and_the_caller_its_answer(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        agent = outer(as_tool(inner()))
        result = await Runner.run(agent, "go")
        assert result.final_output == "Outer done." and result.last_agent is agent
        call, output, _ = result.new_items
        assert isinstance(call, ToolCallItem) and isinstance(output, ToolCallOutputItem)
        assert output.output == "Inner says hi."
        origin = output.tool_origin
        assert origin is not None and origin.type is ToolOriginType.AGENT_AS_TOOL
        assert (origin.agent_name, origin.agent_tool_name) == ("Inner", "ask")
        assert sent(model, 1) == [{"content": "Hi.", "role": "user"}]
        assert result.context_wrapper.usage.requests == 3
        assert result.agent_tool_invocation is None

    play(asked(text("Inner says hi.")), program)


def test_structured_arguments_are_checked_rendered_and_shown_to_the_agents_code(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        tool = as_tool(inner(tools=[look]), parameters=Trip)
        await Runner.run(outer(tool), "go", context="ctx")
        given = sent(model, 1)[0]["content"]
        assert '"city": "Oslo"' in given and "- city (string, required) - The city." in given
        seen = sent(model, 2)[-1]["output"]
        assert seen == "ctx {'city': 'Oslo', 'days': 3}"

    steps = asked(
        tool_call("look", call_id="c2"), text("Go."), arguments={"city": "Oslo", "days": 3}
    )
    play(steps, program)


def test_an_input_builder_may_give_items(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        async def build(options: Any) -> Any:
            assert options["json_schema"]["properties"].keys() == {"city", "days"}
            return [{"role": "user", "content": f"Go to {options['params']['city']}."}]

        tool = as_tool(inner(), parameters=Trip, input_builder=build, include_input_schema=True)
        await Runner.run(outer(tool), "go")
        assert sent(model, 1) == [{"role": "user", "content": "Go to Oslo."}]

    play(asked(text("Go."), arguments={"city": "Oslo", "days": 1}), program)


@pytest.mark.parametrize(
    ("options", "arguments", "name"),
    [
        ({"parameters": Trip}, {"city": 5}, "ModelBehaviorError"),
        ({"parameters": Trip}, "[1]", "ModelBehaviorError"),
        ({}, '{"input": ', "ModelBehaviorError"),
        ({}, {"other": "x"}, "ModelBehaviorError"),
        ({"input_builder": lambda options: 7}, None, "ModelBehaviorError"),
        ({"input_builder": lambda options: 1 / 0}, None, "ZeroDivisionError"),
    ],
)
def test_input_that_cannot_be_made_is_the_tools_failure(
    play: Any, options: dict[str, Any], arguments: Any, name: str
) -> None:
    def told(ctx: Any, error: Exception) -> str:
        return f"failed: {type(error).__name__}"

    tool = as_tool(inner(), failure_error_function=told, **options)
    assert ask(play, asked(arguments=arguments), tool) == f"failed: {name}"


def test_a_failed_builder_ends_the_run_if_the_tool_says_so(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        def build(options: Any) -> str:
            raise ModelBehaviorError("no input")

        tool = as_tool(inner(), input_builder=build, failure_error_function=None)
        with pytest.raises(ModelBehaviorError, match="no input"):
            await Runner.run(outer(tool), "go")

    play(asked()[:1], program)


def test_an_extractor_sees_the_nested_result(play: Any) -> None:
    async def extract(result: Any) -> str:
        invocation = result.agent_tool_invocation
        call = (invocation.tool_name, json.loads(invocation.tool_arguments))
        assert call == ("ask", {"input": "Hi."})
        assert invocation.tool_call_id and result.context_wrapper.usage.requests == 2
        return f"{result.last_agent.name}: {result.final_output} of {len(result.new_items)}"

    tool = as_tool(inner(), custom_output_extractor=extract)
    assert ask(play, asked(text("hi")), tool) == "Inner: hi of 1"


def test_an_extractor_that_raises_is_the_tools_failure(play: Any) -> None:
    async def extract(result: Any) -> str:
        raise ValueError("nothing there")

    async def told(ctx: Any, error: Exception) -> str:
        return f"failed: {error}"

    tool = as_tool(inner(), custom_output_extractor=extract, failure_error_function=told)
    assert ask(play, asked(text("hi")), tool) == "failed: nothing there"


def test_a_typed_output_is_its_text_and_stays_an_object_here(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(outer(as_tool(inner(output_type=Answer))), "go")
        output = result.new_items[1]
        assert isinstance(output, ToolCallOutputItem) and output.output == Answer(score=0.5)
        assert sent(model, -1)[-1]["output"] == str(Answer(score=0.5))

    play(asked(structured({"score": 0.5})), program)


def test_an_empty_answer_gives_the_last_thing_said(play: Any) -> None:
    @function_tool
    def f() -> str:
        return "what f says"

    assert ask(play, asked(tool_call("f", call_id="c2"), text("")), as_tool(inner(tools=[f]))) == (
        "what f says"
    )


def test_an_agent_tool_can_end_the_run(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        agent = outer(as_tool(inner()), tool_use_behavior="stop_on_first_tool")
        assert (await Runner.run(agent, "go")).final_output == "Inner has the last word."

    steps = asked(text("Inner has the last word."))
    play([steps[0], steps[2]], program)


# --- failures -------------------------------------------------------------------------------------


@function_tool
def f() -> str:
    return "f"


def endless() -> list[Step]:
    return asked(tool_call("f", call_id="c2"))


def test_a_failed_agent_is_told_without_details_by_default(play: Any) -> None:
    output = ask(play, endless(), as_tool(inner(tools=[f]), max_turns=1))
    assert output == "An error occurred while running the tool. Please try again."


def test_a_failure_function_sees_the_error_and_the_callers_context(play: Any) -> None:
    async def told(ctx: RunContextWrapper[Any], error: Exception) -> str:
        assert isinstance(ctx, ToolContext) and ctx.tool_name == "ask"
        return f"{ctx.context}: {type(error).__name__}: {error}"

    tool = as_tool(inner(tools=[f]), max_turns=1, failure_error_function=told)
    expected = "ctx: MaxTurnsExceeded: Max turns (1) exceeded"
    assert ask(play, endless(), tool, context="ctx") == expected


def test_without_a_failure_function_the_caller_fails_too(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        tool = as_tool(inner(tools=[f]), max_turns=1, failure_error_function=None)
        with pytest.raises(MaxTurnsExceeded):
            await Runner.run(outer(tool), "go")

    steps = endless()
    play([steps[0], steps[2]], program)


def test_what_the_agents_code_raises_reaches_the_caller_as_it_is(play: Any) -> None:
    class Broken(UserError):
        pass

    @function_tool(failure_error_function=None)
    def broken() -> str:
        raise Broken("on purpose")

    async def program(model: ScriptedModel) -> None:
        tool = as_tool(inner(tools=[broken]), failure_error_function=None)
        with pytest.raises(Broken, match="on purpose"):
            await Runner.run(outer(tool), "go")

    steps = asked(tool_call("broken", call_id="c2"))
    play([steps[0], steps[2]], program)


# --- on_stream ------------------------------------------------------------------------------------


def test_on_stream_sees_every_event_in_order(play: Any) -> None:
    seen: list[str] = []

    async def see(payload: AgentToolStreamEvent) -> None:
        event = payload["event"]
        assert payload["agent"].name == "Inner"
        assert payload["tool_call"] is not None and payload["tool_call"].name == "ask"
        seen.append(event.data.type if event.type == "raw_response_event" else event.type)

    assert ask(play, asked(text("one two")), as_tool(inner(), on_stream=see)) == "one two"
    assert seen[0] == "agent_updated_stream_event" and seen[-1] == "run_item_stream_event"
    assert "response.output_text.delta" in seen and seen.count("response.completed") == 1


def test_on_stream_that_raises_is_logged_and_goes_on(
    play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def see(payload: AgentToolStreamEvent) -> None:
        calls.append(payload["event"].type)
        raise ValueError("not for you")

    assert ask(play, asked(text("fine")), as_tool(inner(), on_stream=see)) == "fine"
    assert calls[0] == "agent_updated_stream_event" and calls[-1] == "run_item_stream_event"
    assert "on_stream failed" in caplog.text


def test_events_that_nobody_takes_end_the_agents_run(play: Any) -> None:
    is_over = asyncio.Event()

    async def see(payload: AgentToolStreamEvent) -> None:
        await is_over.wait()  # never: it is cancelled

    def told(ctx: Any, error: Exception) -> str:
        return f"{type(error).__name__}: {error}"

    tool = as_tool(
        inner(), on_stream=see, on_stream_max_pending_events=1, failure_error_function=told
    )
    output = ask(play, asked(text("one two three four five")), tool)
    assert output.startswith("StreamOverflow: more than 1 events")


def test_on_stream_of_an_agent_that_never_runs(play: Any) -> None:
    def see(payload: AgentToolStreamEvent) -> None:
        raise AssertionError("there is no run")

    tool = as_tool(inner(), parameters=Trip, on_stream=see)
    assert "error occurred" in ask(play, asked(arguments={"city": 5}), tool)


# --- settings -------------------------------------------------------------------------------------


def test_hooks_of_the_tool_are_called_for_its_runs_only(play: Any) -> None:
    class Seen(RunHooks[Any]):
        def __init__(self) -> None:
            self.agents: list[str] = []

        async def on_agent_start(self, context: Any, agent: Any) -> None:
            self.agents.append(agent.name)

    async def program(model: ScriptedModel) -> None:
        own, nested = Seen(), Seen()
        await Runner.run(outer(as_tool(inner(), hooks=nested)), "go", hooks=own)
        assert (own.agents, nested.agents) == (["Outer"], ["Inner"])

    play(asked(text("hi")), program)


def test_settings_are_the_tools_or_the_callers(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        own = as_tool(inner(), run_config={"model": "gpt-4.1-mini"})
        caller = RunConfig(model="gpt-4.1-nano")
        await Runner.run(outer(own), "go", run_config=caller)
        models = ["gpt-4.1-nano", "gpt-4.1-mini", "gpt-4.1-nano"]
        assert [it["model"] for it in model.requests] == models

    play(asked(text("hi")), program)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"parameters": dict}, TypeError),
        ({"on_stream": 5}, UserError),
        ({"on_stream_max_pending_events": 0}, UserError),
        ({"hooks": 5}, TypeError),
        ({"run_config": {"no_such_field": 1}}, TypeError),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        as_tool(inner(), **options)


def test_names_come_from_the_agent() -> None:
    tool = inner(name="Mr. Inner-2 (EU)").as_tool(None, None)
    assert (tool.name, tool.description) == ("mr__inner_2__eu_", "")
    assert tool.params_json_schema["required"] == ["input"] and tool.strict_json_schema


def test_the_form_of_simple_fields_is_summed_up() -> None:
    @dataclass
    class Order:
        article: str
        count: int | None = None

    schema = as_tool(inner(), parameters=Order).params_json_schema
    info = build_structured_input_schema_info(schema, include_json_schema=True)
    assert info.summary is None and info.json_schema == schema  # nothing is described
    described = as_tool(inner(), parameters=Trip).params_json_schema
    summary = build_structured_input_schema_info(described, include_json_schema=False).summary
    assert summary is not None and summary.splitlines()[0] == "Description: Where to go."
    text = default_tool_input_builder({"params": {"a": 1}, "json_schema": {"type": "object"}})
    assert '"a": 1' in text and '"type": "object"' in text


# --- by hand --------------------------------------------------------------------------------------


def by_hand(tool: AgentTool, arguments: Any) -> Any:
    context = ToolContext("ctx", None, "ask", "c1", json.dumps(arguments))
    return context, tool.on_invoke_tool(context, json.dumps(arguments))


def test_a_tool_called_by_hand_runs_its_agent(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        context, call = by_hand(as_tool(inner(tools=[look]), parameters=Trip), {"city": "Oslo"})
        assert await call == "Go."
        assert context.usage.requests == 2
        assert sent(model, 1)[-1]["output"] == "ctx {'city': 'Oslo', 'days': 2}"

    play([tool_call("look"), text("Go.")], program)


def test_by_hand_with_on_stream_and_a_failure(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        seen: list[str] = []
        tool = as_tool(inner(), on_stream=lambda it: seen.append(it["event"].type))
        assert await by_hand(tool, {"input": "x"})[1] == "hi"
        assert seen[0] == "agent_updated_stream_event"
        assert "error occurred" in await by_hand(tool, {})[1]
        with pytest.raises(ModelBehaviorError):
            await by_hand(as_tool(inner(), failure_error_function=None), {})[1]

    play([text("hi")], program)


def test_code_of_ones_own_takes_the_place_of_the_run(play: Any) -> None:
    async def instead(ctx: Any, arguments: str) -> str:
        return f"no agent for {arguments}"

    tool = dataclasses.replace(as_tool(inner()), on_invoke_tool=instead)
    assert not tool.starts_runs
    assert ask(play, asked(), tool) == 'no agent for {"input":"Hi."}'
    assert dataclasses.replace(as_tool(inner()), name="other").starts_runs


def test_two_tools_of_one_agent_answer_in_the_order_of_the_calls(play: Any) -> None:
    async def program(model: ScriptedModel) -> None:
        tools = [as_tool(inner(), tool_name="one"), as_tool(inner(), tool_name="two")]
        result = await Runner.run(outer(*tools), "go")
        outputs = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
        assert outputs == ["first", "second"]

    calls = tool_calls(("one", {"input": "Say 1."}), ("two", {"input": "Say 2."}))
    steps = [
        calls.when("I am Outer"),
        text("Outer done.").when("I am Outer"),
        text("first").when("Say 1."),
        text("second").when("Say 2."),
    ]
    play(steps, program)
