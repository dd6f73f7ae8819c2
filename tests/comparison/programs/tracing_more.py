"""Traces of what is less common: callbacks, hooks, guardrails and instructions with spans of their
own, streamed calls, ends of runs.
"""

from typing import Any

from comparison.program import MODEL, Probe, program
from comparison.programs.tracing import (
    add,
    adding,
    agent_of,
    answer,
    consume,
    fails,
    recorded,
    verdict,
)
from comparison.sandboxes import commands, run, sandbox_program


@program(lambda m: [m.tool_call("transfer_to_other", {}), m.text("Here is Other.")])
async def trace_of_a_handoff_with_a_callback(sdk: Any, probe: Probe) -> Any:
    def taken(ctx: Any) -> None:
        probe.note(sdk.get_current_span().span_data.type)
        with sdk.custom_span("in the callback"):
            pass

    other = sdk.Agent(name="Other", model=MODEL)
    handoff = sdk.handoff(other, on_handoff=taken)
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, handoffs=[handoff]), probe.input)


@program(
    lambda m: [
        m.tool_calls(("transfer_to_one", {}), ("transfer_to_two", {})),
        m.text("Here is One."),
    ]
)
async def trace_of_two_handoffs_at_once(sdk: Any, probe: Probe) -> Any:
    others = [sdk.Agent(name=name, model=MODEL) for name in ("One", "Two")]
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, handoffs=others), probe.input)


@program(answer)
async def spans_in_instructions_and_guardrails(sdk: Any, probe: Probe) -> Any:
    def instructions(ctx: Any, agent: Any) -> str:
        with sdk.custom_span("in the instructions"):
            return "Be brief."

    @sdk.input_guardrail(run_in_parallel=False)
    def check(ctx: Any, agent: Any, given: Any) -> Any:
        with sdk.custom_span("in the guardrail"):
            return verdict(sdk, False)

    @sdk.output_guardrail
    async def judge(ctx: Any, agent: Any, output: Any) -> Any:
        with sdk.custom_span("in the other guardrail"):
            return verdict(sdk, False)

    agent = agent_of(
        sdk, instructions=instructions, input_guardrails=[check], output_guardrails=[judge]
    )
    with recorded(sdk, probe):
        await sdk.Runner.run(agent, probe.input)


@program(adding)
async def spans_in_hooks(sdk: Any, probe: Probe) -> Any:
    class Hooks(sdk.RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            with sdk.custom_span("before the agent"):
                pass

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            with sdk.custom_span("before the tool"):
                pass

    with recorded(sdk, probe):
        agent = agent_of(sdk, sdk.function_tool(add))
        await sdk.Runner.run(agent, probe.input, hooks=Hooks())


@program(adding)
async def trace_of_a_streamed_tool_call(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe) as recorder:
        agent = agent_of(sdk, sdk.function_tool(add))
        await consume(sdk.Runner.run_streamed(agent, probe.input))
    probe.note(recorder.told)


@program(lambda m: [m.tool_call("add", {"a": 1, "b": 2})])
async def trace_of_a_run_that_a_tool_ends(sdk: Any, probe: Probe) -> Any:
    agent = agent_of(sdk, sdk.function_tool(add), tool_use_behavior="stop_on_first_tool")
    with recorded(sdk, probe) as recorder:
        await sdk.Runner.run(agent, probe.input)
    probe.note(recorder.told)


@program(lambda m: [m.tool_call("add", {"a": "x"}), m.text("Sorry.")])
async def trace_of_bad_arguments(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, sdk.function_tool(add)), probe.input)


@program(lambda m: [m.tool_call("fails", {})])
async def trace_of_a_streamed_failure(sdk: Any, probe: Probe) -> Any:
    tool = sdk.function_tool(fails, failure_error_function=None)
    with recorded(sdk, probe):
        await consume(sdk.Runner.run_streamed(agent_of(sdk, tool), probe.input))


@program(adding)
async def trace_of_a_rejected_call(sdk: Any, probe: Probe) -> Any:
    agent = agent_of(sdk, sdk.function_tool(add, needs_approval=True))
    with recorded(sdk, probe):
        result = await sdk.Runner.run(agent, probe.input)
        state = result.to_state()
        state.reject(result.interruptions[0])
        await sdk.Runner.run(agent, state)


@program(lambda m: [m.tool_call("add", {"a": 1, "b": 2})])
async def trace_of_a_handled_max_turns(sdk: Any, probe: Probe) -> Any:
    def handler(data: Any) -> Any:
        return "Enough."

    agent = agent_of(sdk, sdk.function_tool(add))
    with recorded(sdk, probe):
        await sdk.Runner.run(agent, probe.input, max_turns=1, error_handlers={"max_turns": handler})


@program(adding)
async def trace_of_a_tool_that_is_off(sdk: Any, probe: Probe) -> Any:
    off = sdk.function_tool(fails, is_enabled=lambda ctx, agent: False)
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, off, sdk.function_tool(add)), probe.input)


@program(adding)
async def trace_of_chat_completions_with_a_tool(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, sdk.function_tool(add)), probe.input)


@sandbox_program(commands("echo hello"))
async def trace_of_a_sandbox_agent(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe, show=outline):
        await run(sdk, probe)


def outline(trees: Any) -> Any:
    """Kinds and names only: prompts, and so requests, are each SDK's own."""

    def shown(spans: Any) -> Any:
        return [
            [it["type"], it["data"].get("name"), it["error"], shown(it["spans"])] for it in spans
        ]

    return [shown(tree["spans"]) for tree in trees]
