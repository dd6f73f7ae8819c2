"""Runs and traces: which trace a run is in, what the user's code belongs to, what the bus hears."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import CallRequested, RunStarted
from sandstream_bus.wire.subjects import RunId
from sandstream_bus.wire.trace_context import TraceContext, call_span_id, span_id_of, trace_id_of
from support.hosted_programs import MODEL, deployed, play
from support.tracing.kept_traces import recording, reported
from support.waiting import eventually

from sandstream import (
    Agent,
    Client,
    RunConfig,
    Runner,
    RunState,
    UserError,
    custom_span,
    flush_traces,
    function_span,
    function_tool,
    gen_trace_id,
    get_current_span,
    get_current_trace,
    set_tracing_disabled,
    trace,
)
from sandstream._run.process import Process
from sandstream.testing import ScriptedModel, text, tool_call
from sandstream.tracing.ids import w3c_trace_id
from sandstream.tracing.reporter import Reporter

pytestmark = pytest.mark.usefixtures("home")

Body = Callable[[], Awaitable[Any] | Any]


def agent_with(body: Body | None = None, **options: Any) -> Agent[Any]:
    """An agent whose tool does something."""

    @function_tool
    async def work() -> str:
        """Works."""
        value = body() if body is not None else None
        return str(await value if asyncio.iscoroutine(value) else value)

    return Agent(**{"name": "Main", "model": MODEL, "tools": [work]} | options)


def one_call() -> list[Any]:
    return [tool_call("work", {}), text("Done.")]


async def log_of(run: str) -> list[LogEvent]:
    async with await Client.connect() as client:
        return await client.bus.log.read(RunId(run))


async def told(trace_id: str, spans: int = 1) -> Any:
    """What the bus was told of a trace, once it was told of so many spans."""
    async with await Client.connect() as client:

        async def look() -> Any:
            found = await reported(client.bus, trace_id)
            return found if len(found[1]) >= spans else None

        return await eventually(look, what=f"{spans} spans")


def first_of(events: list[LogEvent]) -> tuple[RunStarted, TraceContext | None]:
    first = events[0]
    assert isinstance(first.event, RunStarted)
    return first.event, TraceContext.parse(first.stored.headers.get(TRACEPARENT))


# --- which trace a run belongs to -----------------------------------------------------------------


def test_a_run_is_below_the_current_span_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> Any:
        with trace("Work") as work, custom_span("step") as step:
            result = await Runner.run(agent_with(), "hi")
        return work, step, result

    with recording() as recorder:
        work, step, result = play(monkeypatch, one_call(), program)
    _, parent = first_of(asyncio.run(log_of(result.run_id)))
    assert parent == TraceContext(work.trace_id[6:], step.span_id[5:21])
    assert recorder.one("task").parent_id == step.span_id
    assert {span.trace_id for span in recorder.spans} == {work.trace_id}


def test_spans_have_the_ids_that_the_log_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> Any:
        return await Runner.run(agent_with(), "hi")

    with recording() as recorder:
        result = play(monkeypatch, one_call(), program)
    events = asyncio.run(log_of(result.run_id))
    (call,) = [it for it in events if isinstance(it.event, CallRequested)]
    header = TraceContext.parse(call.stored.headers[TRACEPARENT])
    assert header is not None
    function = recorder.one("function")
    assert function.span_id == f"span_{header.span_id}00000000"
    assert function.trace_id == f"trace_{header.trace_id}" == f"trace_{trace_id_of(result.run_id)}"
    times = [(span.started_at or "", span.ended_at or "") for span in recorder.spans]
    assert all(start <= end for start, end in times)
    assert min(start for start, _ in times) == recorder.one("task").started_at


def test_a_run_gets_the_trace_id_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_id = "mine-" + gen_trace_id()
    settings: dict[str, Any] = {
        "trace_id": trace_id,
        "workflow_name": "Billing",
        "group_id": "g",
        "trace_metadata": {"k": 1},
        "trace_include_sensitive_data": False,
    }

    async def program(model: ScriptedModel) -> Any:
        return await Runner.run(agent_with(), "hi", run_config=RunConfig(**settings))

    with recording() as recorder:
        result = play(monkeypatch, one_call(), program)
    started, parent = first_of(asyncio.run(log_of(result.run_id)))
    w3c = w3c_trace_id(trace_id)
    assert parent == TraceContext(w3c, span_id_of(w3c, "trace"))
    options = started.options
    assert (options.workflow_name, options.group_id) == ("Billing", "g")
    assert (options.metadata, options.trace_contents, options.traced) == ({"k": 1}, False, True)
    assert [it.trace_id for it in recorder.traces] == [trace_id]
    (message,), (root,) = asyncio.run(told(w3c))
    assert (root.operation, root.name, root.span_id) == (
        "workflow",
        "Billing",
        span_id_of(w3c, "trace"),
    )
    assert (message.workflow_name, message.group_id) == ("Billing", "g")


@pytest.mark.parametrize("way", ["settings", "program", "trace"])
def test_a_run_that_is_not_traced_says_so_in_its_log(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append((get_current_trace(), get_current_span()))
        with custom_span("unseen"):
            pass

    async def program(model: ScriptedModel) -> Any:
        set_tracing_disabled(way == "program")
        with trace("Around", disabled=way == "trace"):
            config = RunConfig(tracing_disabled=way == "settings")
            return await Runner.run(agent_with(look), "hi", run_config=config)

    with recording() as recorder:
        result = play(monkeypatch, one_call(), program)
    started, _ = first_of(asyncio.run(log_of(result.run_id)))
    assert not started.options.traced
    assert recorder.spans == []
    assert [(one.trace_id, other.span_id) for one, other in seen] == [("no-op", "no-op")]


def test_an_agent_tool_inherits_how_its_caller_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Agent(name="Inner", model=MODEL, instructions="I am Inner.")
    tool = inner.as_tool(tool_name="work", tool_description="Asks.")
    steps = [
        tool_call("work", {"input": "x"}).when("I am Outer"),
        text("Done.").when("I am Outer"),
        text("Inner.").when("I am Inner"),
    ]

    async def program(model: ScriptedModel) -> Any:
        outer = Agent(name="Outer", model=MODEL, instructions="I am Outer.", tools=[tool])
        config = RunConfig(trace_include_sensitive_data=False, tracing_disabled=True)
        return await Runner.run(outer, "hi", run_config=config)

    with recording():
        result = play(monkeypatch, steps, program)
    events = asyncio.run(log_of(result.run_id))
    asked = [it.event for it in events if isinstance(it.event, CallRequested)]
    child = next(it.child for it in asked if it.child)
    started, parent = first_of(asyncio.run(log_of(child)))
    assert not started.options.traced
    assert not started.options.trace_contents
    assert parent is not None
    assert parent.trace_id == trace_id_of(result.run_id)


# --- what the user's code belongs to --------------------------------------------------------------


def test_spans_of_a_tool_are_below_its_call_for_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> str:
        span = get_current_span()
        assert span is not None
        with custom_span("inside", {"n": 1}), function_span("deep", input="secret") as deep:
            deep.span_data.output = "told"
            deep.set_error({"message": "hm", "data": None})
        return span.span_id

    async def program(model: ScriptedModel) -> Any:
        return await Runner.run(agent_with(body), "hi", run_config=RunConfig(group_id="g"))

    with recording():
        from sandstream import set_trace_processors

        set_trace_processors([])  # the bus is told all the same
        result = play(monkeypatch, one_call(), program)
    trace_id = trace_id_of(result.run_id)
    (message,), (deep, inside) = asyncio.run(told(trace_id, spans=2))
    assert inside.parent_id == call_span_id(result.run_id, "t1-0")
    assert (inside.name, inside.operation) == ("inside", "custom")
    assert inside.attributes == {"sandstream.custom.n": 1}
    assert deep.parent_id == inside.span_id
    assert (deep.name, deep.operation, deep.error) == ("deep", "tool", "hm")
    assert deep.contents == {"input": "secret", "output": "told"}
    assert inside.start_ns <= deep.start_ns <= deep.end_ns <= inside.end_ns
    assert (message.workflow_name, message.group_id) == ("Agent workflow", "g")


def test_what_was_said_stays_out_of_reports_if_it_is_sensitive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def body() -> None:
        with function_span("deep", input="secret", output="secret"):
            pass

    async def program(model: ScriptedModel) -> Any:
        config = RunConfig(trace_include_sensitive_data=False)
        return await Runner.run(agent_with(body), "hi", run_config=config)

    with recording() as recorder:
        result = play(monkeypatch, one_call(), program)
    _, (deep,) = asyncio.run(told(trace_id_of(result.run_id)))
    assert (deep.contents, deep.attributes) == ({}, {})
    assert recorder.of_type("function")[0].span_data.input is None


def test_a_run_inside_of_a_tool_is_below_the_tools_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> str:
        inner = Agent(name="Inner", model=MODEL, instructions="I am Inner.")
        return str((await Runner.run(inner, "x")).run_id)

    steps = [tool_call("work", {}).when("I am Outer"), text("Inner.").when("I am Inner")]

    async def program(model: ScriptedModel) -> Any:
        stop: dict[str, Any] = {"tool_use_behavior": "stop_on_first_tool"}
        return await Runner.run(agent_with(body, instructions="I am Outer.", **stop), "hi")

    with recording() as recorder:
        result = play(monkeypatch, steps, program)
    _, parent = first_of(asyncio.run(log_of(result.final_output)))
    trace_id = trace_id_of(result.run_id)
    assert parent == TraceContext(trace_id, call_span_id(result.run_id, "t1-0"))
    outer, inner = recorder.of_type("task")
    assert inner.parent_id == recorder.one("function").span_id
    assert inner.trace_id == outer.trace_id


def test_a_trace_around_one_run_does_not_stay_around_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    async def program(model: ScriptedModel) -> Any:
        agent = agent_with(lambda: seen.append(getattr(get_current_trace(), "trace_id", None)))
        with trace("Around") as around:
            await Runner.run(agent, "hi")
        second = await Runner.run(agent, "hi")
        return [around.trace_id, f"trace_{trace_id_of(second.run_id)}"]

    with recording():
        assert play(monkeypatch, one_call() + one_call(), program) == seen


def test_the_code_of_a_worker_belongs_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def body() -> None:
        span, around = get_current_span(), get_current_trace()
        assert span is not None and around is not None
        seen.append((span.span_data.type, span.span_id, around.name, around.trace_id))
        with custom_span("inside"):
            pass

    async def main() -> Any:
        async with deployed("tracedworker", agent_with(body), one_call()) as (client, _):
            run = await client.submit("Main", "hi")
            await client.wait(run)
            await asyncio.to_thread(flush_traces)
            return run, await reported(client.bus, trace_id_of(run))

    with recording() as recorder:
        run, (_, (inside,)) = asyncio.run(main())
    span_id = call_span_id(run, "t1-0")
    assert seen == [
        ("function", f"span_{span_id}00000000", "Agent workflow", f"trace_{trace_id_of(run)}")
    ]
    assert inside.parent_id == span_id
    assert [span.span_data.type for span in recorder.spans] == ["custom"]


# --- OpenTelemetry --------------------------------------------------------------------------------


def test_opentelemetry_spans_are_above_and_below(monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = TracerProvider().get_tracer("test")
    seen: list[Any] = []

    def body() -> None:
        with tracer.start_as_current_span("inside") as span:
            seen.append(span)

    async def program(model: ScriptedModel) -> Any:
        with tracer.start_as_current_span("around") as around:
            result = await Runner.run(agent_with(body), "hi")
        alone = await Runner.run(agent_with(body), "hi")
        return around, result, alone

    with recording() as recorder:
        around, result, alone = play(monkeypatch, one_call() + one_call(), program)
    _, parent = first_of(asyncio.run(log_of(result.run_id)))
    context = around.get_span_context()
    trace_id = otel.format_trace_id(context.trace_id)
    assert parent == TraceContext(trace_id, otel.format_span_id(context.span_id))
    assert recorder.traces[0].trace_id == f"trace_{trace_id}"
    inside, other = seen
    assert otel.format_span_id(inside.parent.span_id) == call_span_id(result.run_id, "t1-0")
    assert inside.get_span_context().trace_id == context.trace_id
    assert inside.parent.is_remote
    assert otel.format_trace_id(other.parent.trace_id) == trace_id_of(alone.run_id)


# --- states ---------------------------------------------------------------------------------------


def test_a_resumed_run_goes_on_in_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_with()
    agent.tools[0].needs_approval = True

    async def program(model: ScriptedModel) -> Any:
        config = RunConfig(trace_id="trace_mine", tracing={"api_key": "sk-secret"})
        paused = await Runner.run(agent, "hi", run_config=config)
        saved = paused.to_state().to_string()
        with_key = paused.to_state().to_json(include_tracing_api_key=True)
        state = await RunState.from_string(agent, saved)
        state.approve(state.get_interruptions()[0])
        await Runner.run(agent, state)
        return saved, with_key, state

    with recording() as recorder:
        saved, with_key, state = play(monkeypatch, one_call(), program)
    assert "sk-secret" not in saved
    assert with_key["trace"]["tracing_api_key"] == "sk-secret"
    assert {span.trace_id for span in recorder.spans} == {"trace_mine"}
    assert len(recorder.of_type("task")) == 2
    assert recorder.told.count("+Agent workflow") == 1
    assert state.trace.parent == TraceContext(
        w3c_trace_id("trace_mine"), span_id_of(w3c_trace_id("trace_mine"), "trace")
    )


def test_a_state_can_be_given_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_with()
    agent.tools[0].needs_approval = True
    other_id = gen_trace_id()

    async def program(model: ScriptedModel) -> Any:
        state = (await Runner.run(agent, "hi")).to_state()
        with pytest.raises(UserError, match="set_trace needs a Trace"):
            state.set_trace("no trace")  # type: ignore[arg-type]
        state.set_trace(trace("Other", trace_id=other_id))
        state.approve(state.get_interruptions()[0])
        await Runner.run(agent, state)
        state.set_trace(None)
        return state

    with recording() as recorder:
        state = play(monkeypatch, one_call(), program)
    assert [it.name for it in recorder.traces] == ["Agent workflow", "Other"]
    assert recorder.of_type("task")[1].trace_id == other_id
    assert state.trace.trace_id is None


# --- the reporter ---------------------------------------------------------------------------------


def test_spans_wait_for_a_bus_and_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording():
        with trace("Early", group_id="g", metadata={"k": [1]}) as early, custom_span("a"):
            pass

        async def program(model: ScriptedModel) -> Any:
            await Runner.run(agent_with(tools=[]), "hi")
            with trace("Late") as late:
                pass
            process = await Process.of_this_loop()
            await asyncio.to_thread(flush_traces)
            return late, await reported(process.bus, late.trace_id)

        late, (_, (root,)) = play(monkeypatch, [text("Hello.")], program)
    assert (root.name, root.operation) == ("Late", "workflow")
    assert root.span_id == span_id_of(late.trace_id[6:], "trace")
    (message,), (inside, first) = asyncio.run(told(early.trace_id, spans=2))
    assert (message.workflow_name, message.group_id) == ("Early", "g")
    assert inside.parent_id == first.span_id
    assert first.attributes["sandstream.metadata.k"] == [1]


def test_too_many_spans_are_dropped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter(max_waiting=2)
    with recording() as recorder, trace("Work"):
        for _ in range(5):
            with custom_span("a"):
                pass
    for span in recorder.ended:
        reporter.span_ended(span)
    assert reporter.dropped == 3
    assert caplog.messages == ["spans of the program are dropped: too many wait to be sent"] * 2


def test_nothing_is_told_while_tracing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    name = gen_trace_id()

    async def program(model: ScriptedModel) -> Any:
        await Runner.run(agent_with(tools=[]), "hi")
        set_tracing_disabled(True)
        with trace("Off", trace_id=name), custom_span("a"):
            pass

    with recording():
        play(monkeypatch, [text("Hello.")], program)
    assert asyncio.run(told(name, spans=0)) == ([], [])
