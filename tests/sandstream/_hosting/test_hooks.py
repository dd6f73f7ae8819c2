"""Hooks: which of them are worth a message, and what they are called with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandstream._hosting import hooks
from sandstream._surface.hook_points import POINTS, check_run_hooks, points_of
from sandstream.agent import Agent
from sandstream.custom_tool import CustomTool
from sandstream.exceptions import UserError
from sandstream.items import ModelResponse
from sandstream.lifecycle import AgentHooks, AgentHooksBase, RunHooks, RunHooksBase
from sandstream.run_context import AgentHookContext, RunContextWrapper
from sandstream.tool import FunctionTool, function_tool
from sandstream.tool_context import ToolContext
from sandstream.usage import Usage

CONTEXT = RunContextWrapper({"user": "Ada"}, turn_input=[{"role": "user", "content": "hi"}])
CLERK, EXPERT = Agent(name="clerk"), Agent(name="expert")
CALL = ToolContext(None, None, "look", "call_1", "{}")
RESPONSE = ModelResponse(output=[], usage=Usage(), response_id=None)


@function_tool
def look() -> str:
    """Look around."""
    return "sand"


# --- which points ---------------------------------------------------------------------------------


RUN_METHODS = {point: f"on_{point}" for point in POINTS}
AGENT_METHODS = RUN_METHODS | {"agent_start": "on_start", "agent_end": "on_end"}


async def noted(self: Any, *arguments: Any, **named: Any) -> None:
    pass


def test_the_points_are_the_methods_of_the_base_classes() -> None:
    def methods(base: type) -> set[str]:
        return {name for name in vars(base) if name.startswith("on_")}

    assert methods(RunHooksBase) == set(RUN_METHODS.values())
    assert methods(AgentHooksBase) == set(AGENT_METHODS.values())


def test_hooks_that_override_nothing_want_nothing() -> None:
    class Silent(RunHooks[Any]):
        def helper(self) -> None: ...

    assert points_of(None, None) == []
    assert points_of(RunHooks[Any](), AgentHooks[Any]()) == []
    assert points_of(Silent(), None) == []


@pytest.mark.parametrize("point", POINTS)
def test_a_method_that_is_overridden_is_one_point(point: str) -> None:
    run_hooks = type("Mine", (RunHooksBase,), {RUN_METHODS[point]: noted})()
    agent_hooks = type("Mine", (AgentHooksBase,), {AGENT_METHODS[point]: noted})()
    assert points_of(run_hooks, None) == [point]
    assert points_of(None, agent_hooks) == [point]
    assert points_of(run_hooks, agent_hooks) == [point]


def test_methods_count_wherever_they_were_overridden() -> None:
    class Mixin:
        async def on_llm_end(self, *arguments: Any) -> None: ...

    class Parent(RunHooks[Any]):
        async def on_tool_end(self, *arguments: Any) -> None: ...

    class Child(Mixin, Parent):
        pass

    mine = Child()
    mine.on_handoff = noted  # type: ignore[assignment,method-assign]
    assert points_of(mine, None) == ["handoff", "llm_end", "tool_end"]
    assert points_of(Parent(), None) == ["tool_end"]


def test_the_points_of_both_are_joined_and_sorted() -> None:
    class OfRun(RunHooks[Any]):
        async def on_tool_start(self, *arguments: Any) -> None: ...
        async def on_agent_start(self, *arguments: Any) -> None: ...

    class OfAgent(AgentHooks[Any]):
        async def on_end(self, *arguments: Any) -> None: ...
        async def on_tool_start(self, *arguments: Any) -> None: ...

    assert points_of(OfRun(), OfAgent()) == ["agent_end", "agent_start", "tool_start"]


def test_an_object_that_is_no_subclass_has_the_points_of_its_methods() -> None:
    class OfRun:
        on_handoff = None

        async def on_agent_end(self, *arguments: Any) -> None: ...
        async def on_start(self, *arguments: Any) -> None: ...

    class OfAgent:
        async def on_start(self, *arguments: Any) -> None: ...
        async def on_agent_end(self, *arguments: Any) -> None: ...

    assert points_of(OfRun(), None) == ["agent_end"]
    assert points_of(None, OfAgent()) == ["agent_start"]


def test_an_object_without_a_method_is_left_out_of_its_calls() -> None:
    asyncio.run(hooks.agent_start(object(), object(), CONTEXT, CLERK))


# --- what is given where --------------------------------------------------------------------------


def test_agent_hooks_are_not_hooks_of_a_run() -> None:
    class Mine(AgentHooks[Any]):
        pass

    with pytest.raises(TypeError, match=r"instances of RunHooks; Mine .* Agent\(hooks=\.\.\.\)"):
        check_run_hooks(Mine())
    with pytest.raises(TypeError, match="instances of RunHooks, not dict"):
        check_run_hooks({})
    check_run_hooks(None)
    check_run_hooks(RunHooks[Any]())


# --- calling --------------------------------------------------------------------------------------


class RunLog(RunHooks[Any]):
    def __init__(self, log: list[tuple[Any, ...]]) -> None:
        self.log = log

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self.log.append(("run", "agent_start", context, agent))

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.log.append(("run", "agent_end", context, agent, output))

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: Any, input_items: Any
    ) -> None:
        self.log.append(("run", "llm_start", context, agent, system_prompt, input_items))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.log.append(("run", "llm_end", context, agent, response))

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self.log.append(("run", "handoff", context, from_agent, to_agent))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.log.append(("run", "tool_start", context, agent, tool))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.log.append(("run", "tool_end", context, agent, tool, result))


class AgentLog(AgentHooks[Any]):
    def __init__(self, log: list[tuple[Any, ...]]) -> None:
        self.log = log

    async def on_start(self, context: Any, agent: Any) -> None:
        self.log.append(("agent", "agent_start", context, agent))

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        self.log.append(("agent", "agent_end", context, agent, output))

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: Any, input_items: Any
    ) -> None:
        self.log.append(("agent", "llm_start", context, agent, system_prompt, input_items))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.log.append(("agent", "llm_end", context, agent, response))

    async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
        self.log.append(("agent", "handoff", context, agent, source))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.log.append(("agent", "tool_start", context, agent, tool))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.log.append(("agent", "tool_end", context, agent, tool, result))


def test_each_point_calls_both_with_their_arguments() -> None:
    log: list[tuple[Any, ...]] = []
    both = RunLog(log), AgentLog(log)
    items = [{"role": "user", "content": "hi"}]

    async def scenario() -> None:
        await hooks.llm_start(*both, CONTEXT, CLERK, "be kind", items)
        await hooks.llm_end(*both, CONTEXT, CLERK, RESPONSE)
        await hooks.tool_start(*both, CALL, CLERK, look)
        await hooks.tool_end(*both, CALL, CLERK, look, "sand")
        await hooks.handoff(*both, CONTEXT, CLERK, EXPERT)

    asyncio.run(scenario())
    assert log == [
        ("run", "llm_start", CONTEXT, CLERK, "be kind", items),
        ("agent", "llm_start", CONTEXT, CLERK, "be kind", items),
        ("agent", "llm_end", CONTEXT, CLERK, RESPONSE),
        ("run", "llm_end", CONTEXT, CLERK, RESPONSE),
        ("run", "tool_start", CALL, CLERK, look),
        ("agent", "tool_start", CALL, CLERK, look),
        ("run", "tool_end", CALL, CLERK, look, "sand"),
        ("agent", "tool_end", CALL, CLERK, look, "sand"),
        ("run", "handoff", CONTEXT, CLERK, EXPERT),
        ("agent", "handoff", CONTEXT, EXPERT, CLERK),
    ]


def test_the_hooks_of_start_and_end_get_the_run_s_state_as_their_own_type() -> None:
    log: list[tuple[Any, ...]] = []
    both = RunLog(log), AgentLog(log)

    async def scenario() -> None:
        await hooks.agent_start(*both, CONTEXT, CLERK)
        await hooks.agent_end(*both, CONTEXT, CLERK, "done")

    asyncio.run(scenario())
    assert [entry[:2] + entry[3:] for entry in log] == [
        ("run", "agent_start", CLERK),
        ("agent", "agent_start", CLERK),
        ("run", "agent_end", CLERK, "done"),
        ("agent", "agent_end", CLERK, "done"),
    ]
    for _, _, context, *_ in log:
        assert type(context) is AgentHookContext
        assert vars(context) == vars(CONTEXT)
        assert context.context is CONTEXT.context
        assert context.usage is CONTEXT.usage


def test_both_run_at_the_same_time() -> None:
    async def scenario() -> None:
        agent_was_called = asyncio.Event()

        class OfRun(RunHooks[Any]):
            async def on_agent_start(self, context: Any, agent: Any) -> None:
                await agent_was_called.wait()

        class OfAgent(AgentHooks[Any]):
            async def on_start(self, context: Any, agent: Any) -> None:
                agent_was_called.set()

        await hooks.agent_start(OfRun(), OfAgent(), CONTEXT, CLERK)

    asyncio.run(scenario())


def test_one_that_raises_cancels_the_other() -> None:
    ended: list[str] = []

    class OfRun(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("run")

    class OfAgent(AgentHooks[Any]):
        async def on_start(self, context: Any, agent: Any) -> None:
            raise LookupError("no such log")

    with pytest.raises(LookupError, match="no such log"):
        asyncio.run(hooks.agent_start(OfRun(), OfAgent(), CONTEXT, CLERK))
    assert ended == ["run"]


def test_a_hook_that_is_no_coroutine_is_called_too() -> None:
    called: list[str] = []

    class OfAgent(AgentHooks[Any]):
        def on_start(self, context: Any, agent: Any) -> None:  # type: ignore[override]
            called.append(agent.name)

    asyncio.run(hooks.agent_start(None, OfAgent(), CONTEXT, CLERK))
    assert called == ["clerk"]


def test_a_hook_that_cancels_itself_fails_and_does_not_cancel_the_caller() -> None:
    class OfRun(RunHooks[Any]):
        async def on_llm_end(self, *arguments: Any) -> None:
            raise asyncio.CancelledError

    with pytest.raises(UserError, match=r"OfRun\.on_llm_end raised CancelledError"):
        asyncio.run(hooks.llm_end(OfRun(), None, CONTEXT, CLERK, RESPONSE))


class Raises(RunHooks[Any]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def on_tool_start(self, *arguments: Any) -> None:
        raise self.error

    async def on_tool_end(self, *arguments: Any) -> None:
        raise self.error


def around(error: Exception, tool: Any) -> list[Any]:
    mine = Raises(error)
    return [
        hooks.tool_start(mine, None, CALL, CLERK, tool),
        hooks.tool_end(mine, None, CALL, CLERK, tool, "sand"),
    ]


def test_what_a_hook_of_a_function_tool_raises_is_told_as_the_tool_s() -> None:
    for call in around(LookupError("no such log"), look):
        with pytest.raises(UserError, match=r"^Error running tool look: no such log$") as caught:
            asyncio.run(call)
        assert isinstance(caught.value.__cause__, LookupError)


def test_our_own_errors_and_those_of_other_tools_stay_as_they_are() -> None:
    assert isinstance(look, FunctionTool)
    for call in around(UserError("as it is"), look):
        with pytest.raises(UserError, match=r"^as it is$"):
            asyncio.run(call)
    custom = CustomTool(name="patch", description="", on_invoke_tool=lambda context, text: text)
    for call in around(LookupError("no such log"), custom):
        with pytest.raises(LookupError, match="no such log"):
            asyncio.run(call)
