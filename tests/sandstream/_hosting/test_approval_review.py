"""Which calls wait for a person: what the tool host says of an answer before anything is done."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BeforeValidator, Field
from sandstream_bus.wire.messages import RunWaiting
from support.hosted_programs import MODEL, deployed, play, recorded
from support.model_requests import input_of

from sandstream import (
    Agent,
    Client,
    CustomTool,
    RunConfig,
    Runner,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    UserError,
    function_tool,
    tool_input_guardrail,
)
from sandstream._hosting.tools.approval_arguments import judgeable_arguments
from sandstream.testing import ScriptedModel, custom_tool_call, text, tool_call, tool_calls
from sandstream.tool import FunctionTool

pytestmark = pytest.mark.usefixtures("home")


def refund(needs_approval: Any, **options: Any) -> FunctionTool:
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    return function_tool(refund, needs_approval=needs_approval, **options)


def clerk(tool: Any) -> Agent[Any]:
    return Agent(name="Clerk", model=MODEL, tools=[tool])


async def open_calls(client: Client, run: str) -> list[str]:
    """The calls for which the run waits, once it does."""
    async for event in client.follow(run):
        waiting = getattr(event, "event", None)
        if isinstance(waiting, RunWaiting):
            return [approval.call for approval in waiting.approvals]
    raise AssertionError("the run ended")


def test_a_function_decides_by_the_arguments() -> None:
    asked: list[Any] = []

    async def large(ctx: Any, arguments: dict[str, Any], call_id: str) -> bool:
        asked.append(arguments)
        return bool(arguments["amount"] > 5)

    step = tool_calls(("refund", {"amount": 5}), ("refund", {"amount": 7}))

    async def main() -> None:
        async with deployed("judged", clerk(refund(large)), [step]) as (client, _):
            run = await client.submit("Clerk", "hi")
            assert await open_calls(client, run) == ["t1-1"]
            assert asked == [{"amount": 5}, {"amount": 7}]
            await client.cancel(run)

    asyncio.run(main())


@pytest.mark.parametrize("arguments", ['{"amount": ', '{"amount": "5"}', "[]"])
def test_what_cannot_be_judged_waits_for_a_person(arguments: str) -> None:
    def never(ctx: Any, arguments: dict[str, Any], call_id: str) -> bool:
        raise AssertionError("it was asked")

    async def main() -> None:
        step = tool_call("refund", arguments)
        async with deployed("unjudged", clerk(refund(never)), [step]) as (client, _):
            run = await client.submit("Clerk", "hi")
            assert await open_calls(client, run) == ["t1-0"]
            await client.cancel(run)

    asyncio.run(main())


def test_what_the_function_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(ctx: Any, arguments: dict[str, Any], call_id: str) -> bool:
        raise ValueError("cannot say")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(UserError, match="Error running tool refund: cannot say"):
            await Runner.run(clerk(refund(fails)), "hi")

    play(monkeypatch, [tool_call("refund", {"amount": 5})], program)


def test_a_guardrail_refuses_before_anybody_is_asked() -> None:
    @tool_input_guardrail(name="limit")
    def limit(data: Any) -> ToolGuardrailFunctionOutput:
        if '"amount":5' in data.context.tool_arguments:
            return ToolGuardrailFunctionOutput.reject_content("Never five.")
        return ToolGuardrailFunctionOutput.allow()

    config = RunConfig(tool_execution=ToolExecutionConfig(pre_approval_tool_input_guardrails=True))
    agent = clerk(refund(True, tool_input_guardrails=[limit]))
    steps = [tool_call("refund", {"amount": 5}), text("Then not.")]

    async def main() -> None:
        async with deployed("refused", agent, steps, config=config) as (client, model):
            run = await client.submit("Clerk", "hi")
            assert (await client.wait(run)).status == "completed"
            assert input_of(model.requests[1])[-1]["output"] == "Never five."
            (record,) = await recorded(client, run)
            assert (record.name, record.behavior) == ("limit", "reject_content")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ({"approve": True}, "written: abc"),
        ({"approve": False, "reason": "Not this text."}, "Not this text."),
        ({"approve": False}, "Tool execution was not approved."),
    ],
)
def test_a_custom_tool_asks_its_own_function(
    monkeypatch: pytest.MonkeyPatch, decision: dict[str, Any], told: str
) -> None:
    seen: list[Any] = []

    def decide(ctx: Any, item: Any) -> dict[str, Any]:
        seen.append((item.name, item.arguments))
        return decision

    tool = CustomTool(
        name="write",
        description="",
        on_invoke_tool=lambda ctx, text: f"written: {text}",
        needs_approval=lambda ctx, text, call_id: text == "abc",
        on_approval=decide,
    )

    async def program(model: ScriptedModel) -> None:
        await Runner.run(clerk(tool), "hi")
        outputs = [input_of(request)[-1]["output"] for request in model.requests[1:]]
        assert outputs == ["written: harmless", told]
        assert seen == [("write", "abc")]

    steps = [custom_tool_call("write", "harmless"), custom_tool_call("write", "abc"), text("Done.")]
    play(monkeypatch, steps, program)


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("hint", "argument", "is_judged"),
    [
        (int, "5", True),
        (int, '"5"', False),
        (float, "5", False),
        (float, "5.5", True),
        (float, "NaN", False),
        (bool, "1", False),
        (str, '"x"', True),
        (list[int], "[1, 2]", True),
        (dict[str, int], '{"b": 1, "a": 2}', True),
        (int | None, "null", True),
        (Literal["a", "b"], '"a"', True),
        (Color, '"red"', False),
        (Annotated[int, BeforeValidator(lambda value: value)], "5", False),
        (Annotated[str, Field(pattern="x+")], '"x"', False),
        (int, '5, "more": 1', False),
    ],
)
def test_only_arguments_that_stay_as_they_are_are_judged(
    hint: Any, argument: str, is_judged: bool
) -> None:
    def f(x: Any) -> str:
        return ""

    f.__annotations__["x"] = hint
    tool = function_tool(f, strict_mode=False)
    assert (judgeable_arguments(tool, f'{{"x": {argument}}}') is not None) is is_judged


def test_a_default_that_is_filled_in_is_a_change() -> None:
    @function_tool(strict_mode=False)
    def f(x: int = 1) -> str:
        return ""

    assert judgeable_arguments(f, "{}") is None
    assert judgeable_arguments(f, '{"x": 2}') == {"x": 2}
