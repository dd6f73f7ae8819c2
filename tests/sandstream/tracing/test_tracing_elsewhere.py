"""Traces beyond one process's runs: states on another server, sandboxes, models of one's own,
streamed and cancelled runs, guardrails of workers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import RunRestored
from sandstream_bus.wire.trace_context import TraceContext
from support.hosted_programs import MODEL, play
from support.nats_server import NatsServer
from support.tracing.kept_traces import Recorder, recording, reported

from sandstream import (
    Agent,
    Client,
    Model,
    ModelResponse,
    ModelTracing,
    RunConfig,
    Runner,
    RunState,
    Usage,
    custom_span,
    function_tool,
    gen_trace_id,
    generation_span,
    set_trace_provider,
    trace,
)
from sandstream._run.process import Process
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, text, tool_call
from sandstream.tracing.provider import DefaultTraceProvider

pytestmark = pytest.mark.usefixtures("home")


@function_tool(needs_approval=True)
def pay() -> str:
    """Pays."""
    return "paid"


def clerk() -> Agent[Any]:
    return Agent(name="Clerk", model=MODEL, tools=[pay], instructions="I am Clerk.")


def boss() -> Agent[Any]:
    tool = clerk().as_tool(tool_name="ask", tool_description="Asks.")
    return Agent(name="Boss", model=MODEL, tools=[tool], instructions="I am Boss.")


def test_a_run_that_goes_on_elsewhere_keeps_its_trace(
    monkeypatch: pytest.MonkeyPatch, nats_server: NatsServer
) -> None:
    steps = [
        tool_call("ask", {"input": "x"}).when("I am Boss"),
        text("Boss.").when("I am Boss"),
        tool_call("pay", {}).when("I am Clerk"),
        text("Clerk.").when("I am Clerk"),
    ]

    async def save() -> Any:
        with trace("Work") as work, custom_span("step") as step:
            state = (await Runner.run(boss(), "hi")).to_state()
        return work, step, state.to_string()

    async def resume(saved: str) -> Any:
        agent = boss()
        state = await RunState.from_string(agent, saved)
        (item,) = state.get_interruptions()
        state.approve(item)
        result = await Runner.run(agent, state)
        log = (await Process.of_this_loop()).bus.log
        return result, [(await log.read(run))[0] for run in state.record.runs]

    async def main() -> Any:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            work, step, saved = await asyncio.to_thread(asyncio.run, save())
            nats_server.set_up("traces-elsewhere")
            monkeypatch.setenv("NATS_URL", nats_server.url)
            monkeypatch.setenv("SANDSTREAM_PREFIX", "traces-elsewhere")
            result, first = await asyncio.to_thread(asyncio.run, resume(saved))
            return work, step, result, first

    with recording() as recorder:
        work, step, result, (top, below) = asyncio.run(main())
    assert result.final_output == "Boss."
    assert isinstance(top.event, RunRestored)
    parent = TraceContext.parse(top.stored.headers[TRACEPARENT])
    assert parent == TraceContext(work.trace_id[6:], step.span_id[5:21])
    child = TraceContext.parse(below.stored.headers[TRACEPARENT])
    assert child is not None
    assert child.trace_id == work.trace_id[6:]
    functions = {span.span_id for span in recorder.of_type("function")}
    assert f"span_{child.span_id}00000000" in functions
    assert {span.trace_id for span in recorder.spans} == {work.trace_id}


def test_operations_of_a_session_carry_the_callers_span(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> Any:
        session = await UnixLocalSandboxClient().create(options=None)
        async with session:
            with trace("Work"), custom_span("look") as span:
                await session.exec("true")
            await session.exec("true")
            bus = (await Process.of_this_loop()).bus
            subject = f"{bus.subjects.prefix}.sandbox.*.op.>"
            stored = await stale_many(bus.connection, bus.topology.log, subject, after=0)
        return span, [it.headers.get(TRACEPARENT) for it in stored]

    with recording():
        span, headers = play(monkeypatch, [], program)
    header = TraceContext(span.trace_id[6:], span.span_id[5:21]).header
    assert headers.count(header) == 1
    assert None in headers


class Parrot(Model):
    """A model of the user's own, which traces itself."""

    def __init__(self) -> None:
        self.tracing: list[ModelTracing] = []

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        self.tracing.append(options.get("tracing") or arguments[6])
        with generation_span(model="parrot"):
            message = {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
            }
            return ModelResponse(output=[message], usage=Usage(requests=1), response_id=None)

    def stream_response(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ModelTracing.ENABLED),
        ({"trace_include_sensitive_data": False}, ModelTracing.ENABLED_WITHOUT_DATA),
        ({"tracing_disabled": True}, ModelTracing.DISABLED),
    ],
)
def test_a_model_of_the_users_own_traces_itself(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], expected: ModelTracing
) -> None:
    parrot = Parrot()

    async def program(model: ScriptedModel) -> Any:
        return await Runner.run(
            Agent(name="Bird", model=parrot), "hi", run_config=RunConfig(**settings)
        )

    with recording() as recorder:
        assert play(monkeypatch, [], program).final_output == "Hello."
    assert parrot.tracing == [expected]
    if expected is ModelTracing.DISABLED:
        assert recorder.spans == []
    else:
        assert recorder.one("generation").parent_id == recorder.one("turn").span_id
        assert recorder.of_type("response") == []


def test_processors_hear_of_a_run_while_it_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a tool runs its span has been told, and so has everything above it."""
    seen: list[list[str]] = []

    @function_tool
    def look() -> str:
        """Looks."""
        seen.append(list(recorder.told))
        return "seen"

    async def program(model: ScriptedModel) -> Any:
        result = Runner.run_streamed(Agent(name="Main", model=MODEL, tools=[look]), "hi")
        async for _ in result.stream_events():
            pass
        return result.final_output

    with recording() as recorder:
        assert play(monkeypatch, [tool_call("look", {}), text("Done.")], program) == "Done."
    before = ["+Agent workflow", "+task", "+agent", "+turn", "+response", "-response", "+function"]
    assert seen == [before]
    assert recorder.told[-3:] == ["-agent", "-task", "-Agent workflow"]


def test_a_run_that_is_given_up_leaves_no_span_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> Any:
        started = asyncio.Event()

        @function_tool
        async def hang() -> str:
            """Hangs."""
            started.set()
            await asyncio.Event().wait()
            return "never"

        run = asyncio.ensure_future(Runner.run(Agent(name="Main", model=MODEL, tools=[hang]), "hi"))
        await started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    with recording() as recorder:
        play(monkeypatch, [tool_call("hang", {})], program)
    assert len(recorder.spans) == len(recorder.ended) == 5
    assert recorder.told[-1] == "-Agent workflow"


def test_a_provider_of_the_users_own_makes_the_spans_of_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(DefaultTraceProvider):
        def create_span(self, span_data: Any, *arguments: Any, **options: Any) -> Any:
            made.append(span_data.type)
            return super().create_span(span_data, *arguments, **options)

    made: list[str] = []

    async def program(model: ScriptedModel) -> Any:
        return await Runner.run(Agent(name="Main", model=MODEL), "hi")

    with recording():
        provider = Own()
        set_trace_provider(provider)
        recorder = Recorder()
        provider.register_processor(recorder)
        play(monkeypatch, [text("Hello.")], program)
    assert made == ["task", "agent", "turn", "response"]
    assert len(recorder.ended) == 4


AROUND_A_LOOP = """
import asyncio
from sandstream import Agent, Runner, trace

async def main():
    await Runner.run(Agent(name="A", model="gpt-4.1"), "hi")

with trace("Around", trace_id=TRACE):
    asyncio.run(main())
"""
WITHOUT_A_LOOP = """
from sandstream import Agent, Runner, trace

with trace("Around", trace_id=TRACE):
    Runner.run_sync(Agent(name="A", model="gpt-4.1"), "hi")
"""


@pytest.mark.parametrize("program", [AROUND_A_LOOP, WITHOUT_A_LOOP])
def test_a_trace_that_ends_after_its_loop_is_told_when_the_program_ends(program: str) -> None:
    trace_id = gen_trace_id()

    async def main() -> Any:
        async with ScriptedModel([text("Hello.")]) as model, await Client.connect() as client:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program.replace("TRACE", repr(trace_id)),
                env={**os.environ, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test"},
            )
            assert await process.wait() == 0
            return await reported(client.bus, trace_id)

    _, (root,) = asyncio.run(main())
    assert (root.name, root.operation) == ("Around", "workflow")
