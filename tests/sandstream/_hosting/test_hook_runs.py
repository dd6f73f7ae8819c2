"""Hooks in runs: each once and in order, with what they are about; what they raise ends the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.hosted_programs import MODEL, deployed, play

from sandstream import (
    Agent,
    AgentHooks,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    ToolContext,
    ToolGuardrailFunctionOutput,
    UserError,
    function_tool,
    output_guardrail,
    tool_input_guardrail,
)
from sandstream.run_config import CallModelData, ModelInputData
from sandstream.run_context import AgentHookContext
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, Step, custom_tool_call, text, tool_call

pytestmark = pytest.mark.usefixtures("home")


class Watching(RunHooks[Any]):
    """Notes every call."""

    def __init__(self, raises_in: str = "") -> None:
        self.notes: list[tuple[Any, ...]] = []
        self._raises_in = raises_in

    def note(self, point: str, *about: Any) -> None:
        self.notes.append((point, *about))
        if point == self._raises_in:
            raise ValueError(f"raised in {point}")

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        assert isinstance(context, AgentHookContext)
        self.note("agent_start", agent.name)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        assert isinstance(context, AgentHookContext)
        self.note("agent_end", agent.name, output)

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: Any, input_items: Any
    ) -> None:
        self.note("llm_start", agent.name, system_prompt, len(input_items))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.note("llm_end", agent.name, response.output[0].type, context.usage.requests)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        assert isinstance(context, ToolContext)
        self.note("tool_start", agent.name, tool.name, context.tool_arguments)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        self.note("tool_end", agent.name, tool.name, result)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self.note("handoff", from_agent.name, to_agent.name)


class Own(AgentHooks[Any]):
    """Notes the calls about one agent."""

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []

    async def on_start(self, context: Any, agent: Any) -> None:
        self.notes.append(("start", agent.name))

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        self.notes.append(("end", agent.name, output))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.notes.append(("llm_end", agent.name))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        self.notes.append(("tool_end", tool.name, result))


@function_tool
def double(x: int) -> int:
    return 2 * x


def doubling(**options: Any) -> Agent[Any]:
    return Agent(name="A", model=MODEL, instructions="Be brief.", tools=[double], **options)


DOUBLE = [tool_call("double", {"x": 2}), text("Four.")]
SEEN_OF_DOUBLE = [
    ("agent_start", "A"),
    ("llm_start", "A", "Be brief.", 1),
    ("llm_end", "A", "function_call", 1),
    ("tool_start", "A", "double", '{"x":2}'),
    ("tool_end", "A", "double", 4),
    ("llm_start", "A", "Be brief.", 3),
    ("llm_end", "A", "message", 2),
    ("agent_end", "A", "Four."),
]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_run_with_a_tool(monkeypatch: pytest.MonkeyPatch, streamed: bool) -> None:
    hooks, own = Watching(), Own()
    agent = doubling(hooks=own)

    async def program(model: ScriptedModel) -> None:
        if streamed:
            async for _ in Runner.run_streamed(agent, "2?", hooks=hooks).stream_events():
                pass
        else:
            await Runner.run(agent, "2?", hooks=hooks)
        assert hooks.notes == SEEN_OF_DOUBLE
        assert own.notes == [
            ("start", "A"),
            ("llm_end", "A"),
            ("tool_end", "double", 4),
            ("llm_end", "A"),
            ("end", "A", "Four."),
        ]

    play(monkeypatch, DOUBLE, program)


def test_a_handoff_starts_another_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Watching()
    second = Agent(name="Second", model=MODEL)
    first = Agent(name="First", model=MODEL, handoffs=[second])

    async def program(model: ScriptedModel) -> None:
        await Runner.run(first, "hi", hooks=hooks)
        assert hooks.notes == [
            ("agent_start", "First"),
            ("llm_start", "First", None, 1),
            ("llm_end", "First", "function_call", 1),
            ("handoff", "First", "Second"),
            ("agent_start", "Second"),
            ("llm_start", "Second", None, 3),
            ("llm_end", "Second", "message", 2),
            ("agent_end", "Second", "Bye."),
        ]

    play(monkeypatch, [tool_call("transfer_to_second"), text("Bye.")], program)


def test_hooks_see_the_filtered_input_and_share_the_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counting(RunHooks[Any]):
        async def on_llm_start(
            self, context: Any, agent: Any, system_prompt: Any, input_items: Any
        ) -> None:
            context.context["seen"] = (system_prompt, input_items)

    def change(data: CallModelData[Any]) -> ModelInputData:
        return ModelInputData([{"role": "user", "content": "other"}], "Be loud.")

    context: dict[str, Any] = {}

    async def program(model: ScriptedModel) -> None:
        config = RunConfig(call_model_input_filter=change)
        await Runner.run(doubling(), "hi", context=context, hooks=Counting(), run_config=config)
        assert context == {"seen": ("Be loud.", [{"role": "user", "content": "other"}])}

    play(monkeypatch, [text("HELLO.")], program)


def test_refused_calls_have_no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool_input_guardrail
    def no(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("No.")

    @function_tool(tool_input_guardrails=[no])
    def never() -> str:
        raise AssertionError("it was called")

    hooks = Watching()

    async def program(model: ScriptedModel) -> None:
        await Runner.run(Agent(name="A", model=MODEL, tools=[never]), "hi", hooks=hooks)
        assert [note[0] for note in hooks.notes if note[0].startswith("tool")] == []

    play(monkeypatch, [tool_call("never"), text("Done.")], program)


def test_custom_tools_have_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandstream import CustomTool

    tool = CustomTool(name="write", description="", on_invoke_tool=lambda ctx, text: text.upper())
    hooks = Watching()

    async def program(model: ScriptedModel) -> None:
        await Runner.run(Agent(name="A", model=MODEL, tools=[tool]), "hi", hooks=hooks)
        tool_notes = [note for note in hooks.notes if note[0].startswith("tool")]
        assert tool_notes == [
            ("tool_start", "A", "write", "abc"),
            ("tool_end", "A", "write", "ABC"),
        ]

    play(monkeypatch, [custom_tool_call("write", "abc"), text("Done.")], program)


def test_calls_that_other_actors_make_have_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child run's and the sandbox's: neither goes through the tool host."""
    inner = Agent(name="Inner", model=MODEL, instructions="I am Inner.")
    outer = SandboxAgent(
        name="Outer",
        model=MODEL,
        instructions="I am Outer.",
        tools=[inner.as_tool("ask_inner", "Asks.")],
        capabilities=[Shell()],
    )
    hooks = Watching()
    steps = [
        tool_call("ask_inner", {"input": "Hi."}).when("I am Outer."),
        text("Inner done.").when("I am Inner."),
        tool_call("exec_command", {"cmd": "echo from the box"}).when("I am Outer."),
        text("Done.").when("I am Outer."),
    ]

    async def program(model: ScriptedModel) -> None:
        config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
        await Runner.run(outer, "hi", hooks=hooks, run_config=config)
        notes = [note for note in hooks.notes if note[0].startswith("tool")]
        assert [note[:3] for note in notes] == [
            ("tool_start", "Outer", "ask_inner"),
            ("tool_end", "Outer", "ask_inner"),
            ("tool_start", "Outer", "exec_command"),
            ("tool_end", "Outer", "exec_command"),
        ]
        assert notes[1][3] == "Inner done."
        assert "from the box" in notes[3][3]

    play(monkeypatch, steps, program)


def test_the_end_is_told_before_it_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Watching()

    @output_guardrail
    def judge(ctx: Any, agent: Any, output: Any) -> Any:
        hooks.note("judged", output)
        raise ValueError("cannot judge")

    agent = Agent(name="A", model=MODEL, output_guardrails=[judge])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(ValueError, match="cannot judge"):
            await Runner.run(agent, "hi", hooks=hooks)
        assert hooks.notes[-2:] == [("agent_end", "A", "Hello."), ("judged", "Hello.")]

    play(monkeypatch, [text("Hello.")], program)


@pytest.mark.parametrize(
    ("point", "answers", "expected"),
    [
        ("agent_start", 0, ValueError),
        ("llm_start", 0, ValueError),
        ("llm_end", 1, ValueError),
        ("tool_start", 1, UserError),
        ("tool_end", 1, UserError),
        ("agent_end", 2, ValueError),
    ],
)
def test_what_a_hook_raises_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, point: str, answers: int, expected: type[Exception]
) -> None:
    hooks = Watching(raises_in=point)
    wrapped = "Error running tool double: " if expected is UserError else ""
    steps: list[Step] = DOUBLE[:answers]

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(expected) as caught:
            await Runner.run(doubling(), "2?", hooks=hooks)
        assert str(caught.value) == f"{wrapped}raised in {point}"
        assert type(caught.value) is expected
        assert hooks.notes[-1][0] == point

    play(monkeypatch, steps, program)


def test_wrong_hooks_are_refused_at_once() -> None:
    wrong: Any = Watching()
    with pytest.raises(TypeError, match="hooks must be AgentHooks, not Watching"):
        Agent(name="A", hooks=wrong)
    own: Any = Own()
    with pytest.raises(TypeError, match="Run hooks must be instances of RunHooks"):
        asyncio.run(Runner.run(Agent(name="A"), "hi", hooks=own))


def test_hooks_of_an_agent_in_a_worker() -> None:
    own = Own()

    async def main() -> None:
        async with deployed("hooked", doubling(hooks=own), DOUBLE) as (client, _):
            done = await client.wait(await client.submit("A", "2?"))
            assert done.status == "completed"
            assert own.notes == [
                ("start", "A"),
                ("llm_end", "A"),
                ("tool_end", "double", 4),
                ("llm_end", "A"),
                ("end", "A", "Four."),
            ]

    asyncio.run(main())


def test_a_raising_hook_of_a_worker_fails_its_run_only() -> None:
    class Raising(AgentHooks[Any]):
        async def on_start(self, context: RunContextWrapper[Any], agent: Any) -> None:
            if context.context["day"] == "bad":
                raise ValueError("not today")

    agent = Agent(name="A", model=MODEL, hooks=Raising())

    async def main() -> None:
        async with deployed("raising", agent, [text("Hello.")]) as (client, _):
            bad = await client.wait(await client.submit("A", "hi", context={"day": "bad"}))
            assert bad.error is not None
            assert (bad.status, bad.error.message) == ("failed", "not today")
            good = await client.wait(await client.submit("A", "hi", context={"day": "good"}))
            assert good.status == "completed"

    asyncio.run(main())
