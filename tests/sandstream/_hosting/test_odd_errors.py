"""Exceptions that cannot be shown end a run as any other does, whichever code of the user's raises
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.hosted_programs import MODEL, deployed, play

from sandstream import (
    Agent,
    AgentsException,
    CustomTool,
    RunConfig,
    RunHooks,
    Runner,
    SQLiteSession,
    UserError,
    function_tool,
    handoff,
    input_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from sandstream.mcp import MCPServer
from sandstream.testing import ScriptedModel, Step, custom_tool_call, text, tool_call

pytestmark = pytest.mark.usefixtures("home")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def fail(*arguments: Any, **more: Any) -> Any:
    raise Unspeakable


async def fail_later(*arguments: Any, **more: Any) -> Any:
    raise Unspeakable


class FailingServer(MCPServer):
    """A server of the user's own whose tools cannot be listed."""

    name = "failing"

    async def connect(self) -> None:
        pass

    async def cleanup(self) -> None:
        pass

    list_tools = call_tool = list_prompts = get_prompt = fail_later


class FailingHooks(RunHooks[Any]):
    on_tool_start = fail_later


class FailingSession(SQLiteSession):
    add_items = fail_later


def tool(**options: Any) -> Any:
    def f(x: int = 1) -> str:
        return "f"

    return function_tool(f, **options)


Case = tuple[dict[str, Any], dict[str, Any]]
"""Options of the agent, and of the run."""
CASES: dict[str, Callable[[], Case]] = {
    "a tool's failure function": lambda: (
        {"tools": [function_tool(name_override="f", failure_error_function=fail)(lambda: fail())]},
        {},
    ),
    "a tool without one": lambda: (
        {"tools": [function_tool(name_override="f", failure_error_function=None)(lambda: fail())]},
        {},
    ),
    "a hook around a tool": lambda: ({"tools": [tool()]}, {"hooks": FailingHooks()}),
    "a tool's input guardrail": lambda: (
        {"tools": [tool(tool_input_guardrails=[tool_input_guardrail(fail)])]},
        {},
    ),
    "a tool's output guardrail": lambda: (
        {"tools": [tool(tool_output_guardrails=[tool_output_guardrail(fail)])]},
        {},
    ),
    "who says what needs approval": lambda: ({"tools": [tool(needs_approval=fail_later)]}, {}),
    "who says what is enabled": lambda: ({"tools": [tool(is_enabled=fail)]}, {}),
    "what makes custom data": lambda: ({"tools": [tool(custom_data_extractor=fail)]}, {}),
    "who decides the end": lambda: ({"tools": [tool()], "tool_use_behavior": fail_later}, {}),
    "a server": lambda: ({"tools": [tool()], "mcp_servers": [FailingServer()]}, {}),
    "a parallel guardrail": lambda: (
        {"tools": [tool()], "input_guardrails": [input_guardrail(fail)]},
        {},
    ),
    "an input filter": lambda: (
        {"tools": [tool()]},
        {"run_config": RunConfig(call_model_input_filter=fail)},
    ),
    "a session": lambda: ({"tools": [tool()]}, {"session": FailingSession("s")}),
    "a session's callback": lambda: (
        {"tools": [tool()]},
        {"session": SQLiteSession("s"), "run_config": RunConfig(session_input_callback=fail)},
    ),
    "a handoff": lambda: (
        {
            "handoffs": [
                handoff(Agent(name="B"), tool_name_override="f", on_handoff=lambda ctx: fail())
            ]
        },
        {},
    ),
    "an agent as a tool": lambda: (
        {
            "tools": [
                Agent(name="B", model=MODEL).as_tool(
                    "f", None, custom_output_extractor=fail_later, failure_error_function=None
                )
            ]
        },
        {},
    ),
}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "an agent as a tool": {"input": "go"},
    "who says what needs approval": {"x": 1},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_ends_with_an_error_that_has_no_text(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    of_agent, of_run = CASES[case]()
    agent = Agent(name="A", model=MODEL, **of_agent)
    call = tool_call("f", _ARGUMENTS.get(case, {}))

    async def program(model: ScriptedModel) -> None:
        with pytest.raises((Unspeakable, UserError, AgentsException)) as caught:
            await Runner.run(agent, "hi", **of_run)
        if not isinstance(caught.value, Unspeakable):
            assert "Unspeakable (it has no text" in str(caught.value)

    steps: list[Step] = [call, text("Done."), text("Done.")]
    play(monkeypatch, steps, program, strict=False)


def test_the_model_is_told_of_a_custom_tool_that_has_no_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    custom = CustomTool(name="write", description="Writes.", on_invoke_tool=fail_later)
    agent = Agent(name="A", model=MODEL, tools=[custom])

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "hi")
        assert result.final_output == "Done."
        assert "no text" in str(result.to_input_list())

    play(monkeypatch, [custom_tool_call("write", "words"), text("Done.")], program)


def test_a_deployed_agent_fails_with_it_as_well() -> None:
    agent = Agent(name="A", model=MODEL, instructions=lambda ctx, agent: fail())

    async def main() -> None:
        async with deployed("odd", agent, []) as (client, _):
            run = await client.submit("A", "hi")
            done = await client.wait(run)
            assert done.status == "failed" and done.error is not None
            assert "Unspeakable" in done.error.message

    asyncio.run(main())
