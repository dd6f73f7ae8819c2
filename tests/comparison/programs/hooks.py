"""Hooks of runs and of agents: the order of calls, what they are given, what raising does."""

import types
from typing import Any

from comparison.program import MODEL, Probe, program

RUN_HOOKS = (
    "on_agent_start",
    "on_llm_start",
    "on_llm_end",
    "on_tool_start",
    "on_tool_end",
    "on_handoff",
    "on_agent_end",
)
AGENT_HOOKS = (
    "on_start",
    "on_llm_start",
    "on_llm_end",
    "on_tool_start",
    "on_tool_end",
    "on_handoff",
    "on_end",
)


def tool_then_handoff(m: Any) -> list[Any]:
    """A run in which every hook is called."""
    return [m.tool_call("f", {"x": 1}), m.tool_call("transfer_to_second"), m.text("Second.")]


def watcher(sdk: Any, probe: Probe, label: str, *, kind: str, raises_in: str = "") -> Any:
    """Hooks that note each call: its name, and which agents and tools it is about."""

    def hook(name: str) -> Any:
        async def call(self: Any, context: Any, *rest: Any, **named: Any) -> None:
            about = [getattr(one, "name", None) for one in (*rest, *named.values())]
            probe.note(label, name, *[one for one in about if one is not None])
            if name == raises_in:
                raise ValueError(f"raised in {name}")

        return call

    points = RUN_HOOKS if kind == "RunHooks" else AGENT_HOOKS
    methods = {name: hook(name) for name in points}
    made: Any = types.new_class(
        "Watching", (getattr(sdk, kind),), exec_body=lambda body: body.update(methods)
    )
    return made()


def run_hooks(sdk: Any, probe: Probe, **options: Any) -> Any:
    return watcher(sdk, probe, "run", kind="RunHooks", **options)


def agent_hooks(sdk: Any, probe: Probe, label: str, **options: Any) -> Any:
    return watcher(sdk, probe, label, kind="AgentHooks", **options)


def pair(sdk: Any, probe: Probe, *, first_raises_in: str = "", hooked: bool = True) -> Any:
    """An agent with a tool and a second agent to hand off to, both with hooks of their own."""

    @sdk.function_tool
    def f(x: int) -> str:
        probe.note("f runs")
        return f"f {x}"

    hooks = {
        "First": agent_hooks(sdk, probe, "first", raises_in=first_raises_in) if hooked else None,
        "Second": agent_hooks(sdk, probe, "second") if hooked else None,
    }
    second = sdk.Agent(name="Second", model=MODEL, hooks=hooks["Second"])
    return sdk.Agent(name="First", model=MODEL, tools=[f], handoffs=[second], hooks=hooks["First"])


@program(lambda m: [m.text("Hello.")])
async def hooks_of_a_plain_run(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Plain", model=MODEL, hooks=agent_hooks(sdk, probe, "agent"))
    return await sdk.Runner.run(agent, probe.input, hooks=run_hooks(sdk, probe))


@program(lambda m: [m.text("Hello.")])
async def hooks_of_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="Plain", model=MODEL, hooks=agent_hooks(sdk, probe, "agent"))
    return sdk.Runner.run_streamed(agent, probe.input, hooks=run_hooks(sdk, probe))


@program(tool_then_handoff)
async def hooks_of_tools_and_handoffs(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(pair(sdk, probe), probe.input, hooks=run_hooks(sdk, probe))


@program(tool_then_handoff)
async def hooks_of_tools_and_handoffs_streamed(sdk: Any, probe: Probe) -> Any:
    return sdk.Runner.run_streamed(pair(sdk, probe), probe.input, hooks=run_hooks(sdk, probe))


@program(lambda m: [m.tool_call("transfer_to_pong"), m.tool_call("transfer_to_ping"), m.text("P.")])
async def hooks_of_an_agent_that_comes_back(sdk: Any, probe: Probe) -> Any:
    ping = sdk.Agent(name="Ping", model=MODEL, hooks=agent_hooks(sdk, probe, "ping"))
    pong = sdk.Agent(
        name="Pong", model=MODEL, handoffs=[ping], hooks=agent_hooks(sdk, probe, "pong")
    )
    ping.handoffs.append(pong)
    return await sdk.Runner.run(ping, probe.input, hooks=run_hooks(sdk, probe))


@program(
    lambda m: [
        m.tool_call("ask_inner", {"input": "Hi."}).when("I am Outer"),
        m.text("Outer done.").when("I am Outer"),
        m.text("Inner done.").when("I am Inner"),
    ]
)
async def hooks_of_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    inner = sdk.Agent(
        name="Inner",
        instructions=f"I am Inner of <{probe.name}>.",
        model=MODEL,
        hooks=agent_hooks(sdk, probe, "inner"),
    )
    nested = watcher(sdk, probe, "nested run", kind="RunHooks")
    outer = sdk.Agent(
        name="Outer",
        instructions=f"I am Outer of <{probe.name}>.",
        model=MODEL,
        tools=[inner.as_tool("ask_inner", "Asks.", hooks=nested)],
        hooks=agent_hooks(sdk, probe, "outer"),
    )
    return await sdk.Runner.run(outer, probe.input, hooks=run_hooks(sdk, probe))


def _raising_run_hook(name: str) -> None:
    async def raising(sdk: Any, probe: Probe) -> Any:
        hooks = run_hooks(sdk, probe, raises_in=name)
        return await sdk.Runner.run(pair(sdk, probe, hooked=False), probe.input, hooks=hooks)

    raising.__name__ = f"run_hook_raises_in_{name}"
    program(tool_then_handoff)(raising)


def _raising_agent_hook(name: str) -> None:
    async def raising(sdk: Any, probe: Probe) -> Any:
        return await sdk.Runner.run(pair(sdk, probe, first_raises_in=name), probe.input)

    raising.__name__ = f"agent_hook_raises_in_{name}"
    program(tool_then_handoff)(raising)


for _name in RUN_HOOKS:
    _raising_run_hook(_name)
for _name in ("on_start", "on_llm_end", "on_tool_start", "on_handoff"):
    _raising_agent_hook(_name)


@program(tool_then_handoff)
async def hook_raises_in_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    hooks = run_hooks(sdk, probe, raises_in="on_llm_start")
    return sdk.Runner.run_streamed(pair(sdk, probe, hooked=False), probe.input, hooks=hooks)


@program(tool_then_handoff)
async def arguments_of_hooks(sdk: Any, probe: Probe) -> Any:
    class Detailed(sdk.RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            probe.note("agent start", type(context).__name__, context.context, context.turn_input)

        async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
            probe.note("agent end", type(context).__name__, output, context.usage.requests)

        async def on_llm_start(
            self, context: Any, agent: Any, system_prompt: Any, input_items: Any
        ) -> None:
            kinds = [item.get("type") or item.get("role") for item in input_items]
            probe.note("llm start", type(context).__name__, system_prompt, kinds)

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            kinds = [item.type for item in response.output]
            probe.note("llm end", kinds, response.usage.requests, context.usage.requests)

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            probe.note("tool start", type(context).__name__, context.tool_name, tool.name)
            probe.note(context.tool_arguments, context.tool_call_id, context.context)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            probe.note("tool end", type(context).__name__, context.tool_call_id, result)

        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
            probe.note("handoff", type(context).__name__, from_agent.name, to_agent.name)

    agent = pair(sdk, probe, hooked=False)
    agent.instructions = "Be first."
    return await sdk.Runner.run(agent, probe.input, hooks=Detailed(), context="ctx")


@program(tool_then_handoff)
async def arguments_of_agent_hooks(sdk: Any, probe: Probe) -> Any:
    class Detailed(sdk.AgentHooks):
        async def on_start(self, context: Any, agent: Any) -> None:
            probe.note("start", type(context).__name__, agent.name, context.turn_input)

        async def on_end(self, context: Any, agent: Any, output: Any) -> None:
            probe.note("end", type(context).__name__, agent.name, output)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            probe.note("tool end", agent.name, tool.name, result)

        async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
            probe.note("handoff", agent.name, source.name)

    agent = pair(sdk, probe, hooked=False)
    agent.hooks = Detailed()
    return await sdk.Runner.run(agent, probe.input)


@program(lambda m: [m.tool_call("f"), m.text("Done.")])
async def hooks_share_the_context(sdk: Any, probe: Probe) -> Any:
    class Counting(sdk.RunHooks):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            context.context["hook"] = context.context.get("hook", 0) + 1

    @sdk.function_tool
    def f(ctx: sdk.RunContextWrapper[Any]) -> str:
        return str(ctx.context)

    context: dict[str, int] = {}
    agent = sdk.Agent(name="Shared", model=MODEL, tools=[f])
    result = await sdk.Runner.run(agent, probe.input, context=context, hooks=Counting())
    probe.note(context)
    return result


@program(lambda m: [])
async def agent_hooks_for_a_run(sdk: Any, probe: Probe) -> Any:
    agent = sdk.Agent(name="A", model=MODEL)
    return await sdk.Runner.run(agent, probe.input, hooks=agent_hooks(sdk, probe, "wrong"))


@program(lambda m: [])
async def hooks_of_a_wrong_type(sdk: Any, probe: Probe) -> Any:
    for wrong in ("no hooks", run_hooks(sdk, probe)):
        try:
            sdk.Agent(name="A", model=MODEL, hooks=wrong)
            probe.note("accepted")
        except Exception as error:
            probe.note(type(error).__name__)
    try:
        await sdk.Runner.run(sdk.Agent(name="A", model=MODEL), probe.input, hooks="no hooks")
    except Exception as error:
        probe.note(type(error).__name__)
    return None


@program(lambda m: [m.tool_call("f"), m.text("Done.")])
async def hooks_of_a_tool_that_fails(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        raise ValueError("no")

    class Ending(sdk.RunHooks):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            probe.note(tool.name, result)

    agent = sdk.Agent(name="Fails", model=MODEL, tools=[f])
    return await sdk.Runner.run(agent, probe.input, hooks=Ending())


@program(lambda m: [m.tool_call("f"), m.text("Done.")])
async def no_tool_hooks_for_a_rejected_call(sdk: Any, probe: Probe) -> Any:
    @sdk.tool_input_guardrail
    def no(data: Any) -> Any:
        return sdk.ToolGuardrailFunctionOutput.reject_content("No.")

    @sdk.function_tool(tool_input_guardrails=[no])
    def f() -> str:
        return "never"

    agent = sdk.Agent(name="Guarded", model=MODEL, tools=[f])
    return await sdk.Runner.run(agent, probe.input, hooks=run_hooks(sdk, probe))


@program(lambda m: [m.text("Hello.")])
async def hooks_and_output_guardrails(sdk: Any, probe: Probe) -> Any:
    @sdk.output_guardrail
    def judge(ctx: Any, agent: Any, output: Any) -> Any:
        probe.note("guardrail")
        return sdk.GuardrailFunctionOutput(None, tripwire_triggered=False)

    agent = sdk.Agent(name="Guarded", model=MODEL, output_guardrails=[judge])
    return await sdk.Runner.run(agent, probe.input, hooks=run_hooks(sdk, probe))


@program(lambda m: [m.tool_call("f")])
async def hooks_and_max_turns(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = sdk.Agent(name="Loop", model=MODEL, tools=[f])
    return await sdk.Runner.run(
        agent,
        probe.input,
        max_turns=1,
        hooks=run_hooks(sdk, probe),
        error_handlers={"max_turns": lambda data: "Enough."},
    )
