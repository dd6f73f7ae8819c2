"""Traces and spans that a program's own processor is told of: which, in which order, below what."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from comparison.program import MODEL, Probe, program
from comparison.programs.mcp_tools import server
from comparison.report import plain

_DATA = {
    "agent": ("name", "handoffs", "tools", "output_type"),
    "custom": ("name", "data"),
    "function": ("name", "input", "output", "mcp_data"),
    "generation": ("input", "output", "model", "usage"),
    "guardrail": ("name", "triggered"),
    "handoff": ("from_agent", "to_agent"),
    "mcp_tools": ("server", "result"),
    "response": ("input", "usage"),
    "task": ("name", "usage"),
    "turn": ("turn", "agent_name", "usage"),
}


class City(BaseModel):
    name: str


class Recorder:
    """A trace processor that keeps what it is told."""

    def __init__(self) -> None:
        self.traces: list[Any] = []
        self.spans: list[Any] = []
        self.told: list[str] = []

    def on_trace_start(self, trace: Any) -> None:
        self.traces.append(trace)
        self.told.append(f"trace {trace.name} starts")

    def on_trace_end(self, trace: Any) -> None:
        self.told.append(f"trace {trace.name} ends")

    def on_span_start(self, span: Any) -> None:
        self.spans.append(span)
        self.told.append(f"{_what(span)} starts")

    def on_span_end(self, span: Any) -> None:
        self.told.append(f"{_what(span)} ends")

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass

    def trees(self) -> list[Any]:
        """Each trace with its spans, in the order in which they started."""
        return [
            {
                "workflow": trace.name,
                "group": trace.export()["group_id"],
                "metadata": trace.export()["metadata"],
                "spans": self._below(trace.trace_id, None),
            }
            for trace in self.traces
        ]

    def _below(self, trace_id: str, parent: str | None) -> list[Any]:
        return [
            self._shown(span)
            for span in self.spans
            if span.trace_id == trace_id and span.parent_id == parent
        ]

    def _shown(self, span: Any) -> dict[str, Any]:
        data = span.span_data
        shown = {name: plain(getattr(data, name)) for name in _DATA[data.type]}
        if (shown.get("usage") or {}).get("input_tokens_details"):
            # depends on the version of the vendor's package
            shown["usage"]["input_tokens_details"].pop("cache_write_tokens_details", None)
        if data.type == "response":
            shown["response"] = data.response is not None and plain(data.response.output)
        return {
            "type": data.type,
            "data": shown,
            "error": plain(span.error),
            "ended": span.ended_at is not None,
            "spans": self._below(span.trace_id, span.span_id),
        }


def _what(span: Any) -> str:
    data = span.span_data
    name = getattr(data, "name", None) or getattr(data, "turn", None)
    return f"{data.type} {name}" if name else str(data.type)


@contextlib.contextmanager
def recorded(
    sdk: Any, probe: Probe, show: Callable[[Any], Any] = lambda trees: trees
) -> Iterator[Recorder]:
    """Everything that is traced in here, noted at the end."""
    recorder = Recorder()
    sdk.set_trace_processors([recorder])
    sdk.set_tracing_disabled(False)
    try:
        yield recorder
    except Exception as error:
        probe.note("raised", type(error).__name__)
    finally:
        sdk.set_tracing_disabled(True)
        sdk.set_trace_processors([])
        probe.note("traces", show(recorder.trees()))


def agent_of(sdk: Any, *tools: Any, **options: Any) -> Any:
    return sdk.Agent(**{"name": "Main", "model": MODEL, "tools": list(tools)} | options)


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def fails() -> str:
    """Fails."""
    raise ValueError("no")


def answer(m: Any) -> list[Any]:
    return [m.text("Hello.")]


def adding(m: Any) -> list[Any]:
    return [m.tool_call("add", {"a": 1, "b": 2}), m.text("3.")]


async def consume(result: Any) -> None:
    async for _ in result.stream_events():
        pass


# --- plain runs -----------------------------------------------------------------------------------


@program(answer)
async def trace_of_a_plain_run(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe) as recorder:
        await sdk.Runner.run(agent_of(sdk), probe.input)
    probe.note(recorder.told)


@program(answer)
async def trace_of_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe) as recorder:
        await consume(sdk.Runner.run_streamed(agent_of(sdk), probe.input))
    probe.note(recorder.told)


@program(lambda m: [m.text('{"name": "Rome"}')])
async def trace_of_a_typed_run(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, output_type=City), probe.input)


@program(answer)
async def trace_of_chat_completions(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, instructions="Be brief."), probe.input)


@program(answer)
async def trace_of_streamed_chat_completions(sdk: Any, probe: Probe) -> Any:
    sdk.set_default_openai_api("chat_completions")
    with recorded(sdk, probe):
        await consume(sdk.Runner.run_streamed(agent_of(sdk), probe.input))


@program(answer)
async def trace_settings_of_a_run(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(
        workflow_name="Billing",
        trace_id="trace_" + "ab" * 16,
        group_id="thread-7",
        trace_metadata={"tenant": "t1"},
    )
    with recorded(sdk, probe) as recorder:
        await sdk.Runner.run(agent_of(sdk), probe.input, run_config=config)
    probe.note([trace.trace_id for trace in recorder.traces])


@program(adding)
async def trace_without_sensitive_data(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(trace_include_sensitive_data=False)
    with recorded(sdk, probe):
        agent = agent_of(sdk, sdk.function_tool(add))
        await sdk.Runner.run(agent, probe.input, run_config=config)


@program(answer)
async def trace_without_task_and_turn_spans(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(tracing={"include_task_and_turn_spans": False})
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk), probe.input, run_config=config)


@program(answer)
async def run_that_is_not_traced(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        config = sdk.RunConfig(tracing_disabled=True)
        await sdk.Runner.run(agent_of(sdk), probe.input, run_config=config)


# --- tools ----------------------------------------------------------------------------------------


@program(adding)
async def trace_of_a_tool_call(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe) as recorder:
        await sdk.Runner.run(agent_of(sdk, sdk.function_tool(add)), probe.input)
    probe.note(recorder.told)


@program(
    lambda m: [
        m.tool_calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})),
        m.text("3 and 7."),
    ]
)
async def trace_of_parallel_tool_calls(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, sdk.function_tool(add)), probe.input)


@program(lambda m: [m.tool_call("fails", {}), m.text("It failed.")])
async def trace_of_a_tool_that_fails(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, sdk.function_tool(fails)), probe.input)


@program(lambda m: [m.tool_call("fails", {})])
async def trace_of_a_tool_that_ends_the_run(sdk: Any, probe: Probe) -> Any:
    tool = sdk.function_tool(fails, failure_error_function=None)
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, tool), probe.input)


@program(lambda m: [m.tool_call("work", {}), m.text("Done.")])
async def spans_inside_a_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    async def work() -> str:
        """Works."""
        probe.note(sdk.get_current_span().span_data.type, sdk.get_current_trace().name)
        with sdk.custom_span("outer", {"n": 1}), sdk.function_span("inner", input="in") as span:
            span.span_data.output = "out"
            span.set_error({"message": "hm", "data": {"at": 3}})
        return "worked"

    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, work), probe.input)


@program(lambda m: [m.tool_call("nothing_here", {})])
async def trace_of_an_unknown_tool(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, sdk.function_tool(add)), probe.input)


@program(lambda m: [m.tool_call("add", {"a": 1, "b": 2}), m.tool_call("add", {"a": 1, "b": 2})])
async def trace_of_too_many_turns(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, sdk.function_tool(add)), probe.input, max_turns=2)


@program(adding)
async def trace_of_mcp_tools(sdk: Any, probe: Probe) -> Any:
    async with server(sdk, probe) as small:
        with recorded(sdk, probe):
            await sdk.Runner.run(agent_of(sdk, mcp_servers=[small]), probe.input)


@program(adding)
async def trace_around_an_approval(sdk: Any, probe: Probe) -> Any:
    agent = agent_of(sdk, sdk.function_tool(add, needs_approval=True))
    with recorded(sdk, probe) as recorder:
        result = await sdk.Runner.run(agent, probe.input)
        state = result.to_state()
        state.approve(result.interruptions[0])
        await sdk.Runner.run(agent, state)
    probe.note(len({trace.trace_id for trace in recorder.traces}))


# --- several agents -------------------------------------------------------------------------------


@program(lambda m: [m.tool_call("transfer_to_other", {}), m.text("Here is Other.")])
async def trace_of_a_handoff(sdk: Any, probe: Probe) -> Any:
    other = sdk.Agent(name="Other", model=MODEL)
    with recorded(sdk, probe) as recorder:
        await sdk.Runner.run(agent_of(sdk, handoffs=[other]), probe.input)
    probe.note(recorder.told)


@program(
    lambda m: [
        m.tool_call("ask_inner", {"input": "Translate this."}).when("I am Outer"),
        m.text("Outer done.").when("I am Outer"),
        m.text("Inner says hello.").when("I am Inner"),
    ]
)
async def trace_of_an_agent_tool(sdk: Any, probe: Probe) -> Any:
    inner = agent_of(sdk, name="Inner", instructions=f"I am Inner of <{probe.name}>.")
    tool = inner.as_tool(tool_name="ask_inner", tool_description="Asks.")
    outer = agent_of(sdk, tool, instructions=f"I am Outer of <{probe.name}>.")
    with recorded(sdk, probe):
        await sdk.Runner.run(outer, probe.input)


# --- guardrails -----------------------------------------------------------------------------------


def verdict(sdk: Any, trips: bool) -> Any:
    return sdk.GuardrailFunctionOutput(output_info=None, tripwire_triggered=trips)


def input_check(sdk: Any, name: str, *, trips: bool = False, parallel: bool = True) -> Any:
    @sdk.input_guardrail(name=name, run_in_parallel=parallel)
    async def check(ctx: Any, agent: Any, given: Any) -> Any:
        return verdict(sdk, trips)

    return check


def output_check(sdk: Any, name: str, *, trips: bool = False) -> Any:
    @sdk.output_guardrail(name=name)
    async def check(ctx: Any, agent: Any, output: Any) -> Any:
        return verdict(sdk, trips)

    return check


@program(answer)
async def trace_of_guardrails(sdk: Any, probe: Probe) -> Any:
    agent = agent_of(
        sdk,
        input_guardrails=[
            input_check(sdk, "before", parallel=False),
            input_check(sdk, "beside"),
        ],
        output_guardrails=[output_check(sdk, "after")],
    )
    with recorded(sdk, probe):
        await sdk.Runner.run(agent, probe.input)


@program(lambda m: [])
async def trace_of_a_tripped_guardrail(sdk: Any, probe: Probe) -> Any:
    agent = agent_of(sdk, input_guardrails=[input_check(sdk, "no", trips=True, parallel=False)])
    with recorded(sdk, probe):
        await sdk.Runner.run(agent, probe.input)


@program(answer)
async def trace_of_a_tripped_output_guardrail(sdk: Any, probe: Probe) -> Any:
    agent = agent_of(sdk, output_guardrails=[output_check(sdk, "no", trips=True)])
    with recorded(sdk, probe):
        await sdk.Runner.run(agent, probe.input)


# --- errors ---------------------------------------------------------------------------------------


@program(lambda m: [m.error(400, message="bad request")])
async def trace_of_a_model_error(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk), probe.input)


@program(lambda m: [m.text("no JSON")])
async def trace_of_an_invalid_output(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe):
        await sdk.Runner.run(agent_of(sdk, output_type=City), probe.input)


# --- the user's own traces ------------------------------------------------------------------------


@program(lambda m: [m.text("One."), m.text("Two.")])
async def two_runs_in_one_trace(sdk: Any, probe: Probe) -> Any:
    story = {"group_id": "g", "metadata": {"k": "v"}}
    with recorded(sdk, probe) as recorder, sdk.trace("Story", **story):
        await sdk.Runner.run(agent_of(sdk), probe.input)
        with sdk.custom_span("second"):
            await sdk.Runner.run(agent_of(sdk), probe.input)
    probe.note(recorder.told)


@program(lambda m: [])
def spans_without_a_run(sdk: Any, probe: Probe) -> Any:
    with recorded(sdk, probe) as recorder:
        with sdk.custom_span("outside of a trace") as nothing:
            probe.note(nothing.span_id, nothing.export())
        with sdk.trace("Own", trace_id="trace_123", disabled=False) as own:
            probe.note(own.export(), sdk.get_current_trace() is own)
            with sdk.agent_span("A", handoffs=["B"], tools=["t"], output_type="str"):
                with sdk.generation_span([{"role": "user"}], model="m", usage={"n": 1}):
                    pass
                with sdk.response_span():
                    pass
                with sdk.handoff_span("A", "B"), sdk.guardrail_span("g", triggered=True):
                    pass
                with sdk.mcp_tools_span("s", ["t"]), sdk.task_span("job"), sdk.turn_span(2, "A"):
                    pass
        with sdk.trace("Off", disabled=True) as off, sdk.custom_span("in it") as inside:
            probe.note(off.trace_id, off.name, off.export(), inside.span_id)
        exports = [span.export() for span in recorder.spans]
    for export in exports:
        for name in ("id", "parent_id", "started_at", "ended_at"):
            probe.note(name, type(export.pop(name)).__name__)
        probe.note(export)
    probe.note(recorder.told)


@program(lambda m: [])
def other_spans(sdk: Any, probe: Probe) -> Any:
    with sdk.trace("off", disabled=False):
        spans = [
            sdk.transcription_span("m", "in", "wav", "out", {"k": 1}),
            sdk.speech_span("m", "in", "out", "wav", {"k": 1}, "now"),
            sdk.speech_group_span("in"),
        ]
    for span in spans:
        probe.note(span.span_data.type, span.span_data.export(), span.export())


@program(lambda m: [])
def bad_spans(sdk: Any, probe: Probe) -> Any:
    sdk.set_tracing_disabled(False)
    recorder = Recorder()
    sdk.set_trace_processors([recorder])
    try:
        with sdk.trace("t"):
            for wrong in ("a text", 7):
                try:
                    sdk.custom_span("x", parent=wrong)
                except Exception as error:
                    probe.note(type(error).__name__)
            span = sdk.custom_span("twice")
            span.start()
            span.start()
            span.finish()
            span.finish()
    finally:
        sdk.set_tracing_disabled(True)
        sdk.set_trace_processors([])
    probe.note(recorder.told)
