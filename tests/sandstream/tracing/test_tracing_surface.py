"""Traces and spans without runs: what is current and recorded, who is told, what is refused."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sandstream_bus.wire.trace_context import TraceContext, span_id_of, working_on
from support.tracing.kept_traces import Recorder, recording

from sandstream import (
    CustomSpanData,
    RunConfig,
    UserError,
    add_trace_processor,
    custom_span,
    flush_traces,
    function_span,
    gen_span_id,
    gen_trace_id,
    get_current_span,
    get_current_trace,
    set_trace_processors,
    set_trace_provider,
    set_tracing_disabled,
    trace,
)
from sandstream.tracing import TraceCtxManager, get_trace_provider
from sandstream.tracing._runs.settings import is_traced
from sandstream.tracing.ids import sdk_span_id, sdk_trace_id, w3c_span_id, w3c_trace_id
from sandstream.tracing.provider import DefaultTraceProvider
from sandstream.tracing.trace_parent import trace_headers, trace_parent


def test_spans_nest_and_end() -> None:
    with recording() as recorder:
        with trace("Work", group_id="g", metadata={"a": 1}) as outer:
            with custom_span("one") as one, custom_span("two") as two:
                assert get_current_span() is two
                assert get_current_trace() is outer
            with custom_span("three"):
                pass
        assert get_current_trace() is None
        assert get_current_span() is None
    assert [span.parent_id for span in recorder.spans] == [None, one.span_id, None]
    assert recorder.told == [
        *("+Work", "+custom", "+custom", "-custom", "-custom"),
        *("+custom", "-custom", "-Work"),
    ]
    assert all(span.started_at <= span.ended_at for span in recorder.ended)  # type: ignore[operator]


def test_a_span_goes_below_the_given_parent() -> None:
    with recording() as recorder, trace("Work") as outer, custom_span("a") as first:
        custom_span("b", parent=outer).start()
        custom_span("c", parent=first, span_id="span_" + "1" * 24).start()
    assert [span.parent_id for span in recorder.spans] == [None, None, first.span_id]
    assert recorder.spans[2].span_id == "span_" + "1" * 24


def test_tasks_and_threads_have_their_own_current_span() -> None:
    seen: list[Any] = []

    async def work(name: str, ready: asyncio.Barrier) -> None:
        with custom_span(name) as span:
            await ready.wait()
            seen.append(get_current_span() is span)
            seen.append(await asyncio.to_thread(get_current_span) is span)

    async def main() -> None:
        ready = asyncio.Barrier(2)
        with trace("Work"):
            await asyncio.gather(work("a", ready), work("b", ready))
            thread = threading.Thread(target=lambda: seen.append(get_current_trace() is None))
            thread.start()
            thread.join()

    with recording() as recorder:
        asyncio.run(main())
    assert seen == [True] * 5
    assert {span.parent_id for span in recorder.spans} == {None}


def test_an_abandoned_generator_may_be_closed_elsewhere() -> None:
    async def numbers() -> AsyncIterator[int]:
        with trace("Inner"), custom_span("step"):
            yield 1

    async def main() -> None:
        generator = numbers()
        await anext(generator)
        await asyncio.create_task(_closed(generator))

    async def _closed(generator: Any) -> None:
        await generator.aclose()

    with recording() as recorder:
        asyncio.run(main())
    assert recorder.told == ["+Inner", "+custom", "-custom", "-Inner"]


def test_nothing_is_recorded_outside_of_a_trace_or_in_a_disabled_one() -> None:
    with recording() as recorder:
        with custom_span("outside") as outside:
            assert outside.export() is None
            assert get_current_span() is outside
        with trace("Off", disabled=True) as off, custom_span("inside") as inside:
            inside.set_error({"message": "m", "data": None})
            assert (off.export(), inside.error, inside.started_at) == (None, None, None)
            assert not is_traced(RunConfig())
        with trace("Off", disabled=True), trace("On again"), custom_span("here") as here:
            assert here.export() is not None
        with trace("On"), custom_span("x", disabled=True), custom_span("y") as below:
            assert below.span_id == "no-op"
    assert [it.name for it in recorder.traces] == ["On again", "On"]
    assert len(recorder.spans) == 1


def test_tracing_is_turned_off_by_the_program_or_by_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SANDSTREAM_DISABLE_TRACING", "OPENAI_AGENTS_DISABLE_TRACING"):
        monkeypatch.setenv(name, "1")
        with recording() as recorder:
            with trace("Off"):
                pass
            assert not is_traced(RunConfig())
            set_tracing_disabled(False)  # the program knows better
            with trace("On"):
                pass
            set_tracing_disabled(True)
            assert not is_traced(RunConfig())
        assert [it.name for it in recorder.traces] == ["On"]
        monkeypatch.delenv(name)
    with recording():
        assert is_traced(RunConfig())
        assert not is_traced(RunConfig(tracing_disabled=True))


def test_every_processor_is_told_even_if_one_raises(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def on_span_start(self, span: Any) -> None:
            raise ValueError("broken")

        def force_flush(self) -> None:
            raise ValueError("broken")

    with recording() as first:
        second = Recorder()
        set_trace_processors([Broken(), first])
        add_trace_processor(second)
        with caplog.at_level(logging.ERROR), trace("Work"), custom_span("a"):
            flush_traces()
    assert first.told == second.told == ["+Work", "+custom", "flush", "-custom", "-Work"]
    assert [it.message for it in caplog.records] == ["a trace processor raised"] * 2
    with recording(), pytest.raises(UserError, match="a str has no on_trace_start"):
        add_trace_processor("no processor")  # type: ignore[arg-type]


def test_a_provider_of_the_users_own_makes_everything() -> None:
    class Counting(DefaultTraceProvider):
        made = 0

        def create_span(self, *arguments: Any, **options: Any) -> Any:
            self.made += 1
            return super().create_span(*arguments, **options)

    with recording():
        provider = Counting()
        set_trace_provider(provider)
        with trace("Work"), custom_span("a"), function_span("f"):
            pass
        assert get_trace_provider() is provider
    assert provider.made == 2


def test_bad_input_is_refused() -> None:
    with recording(), trace("Work"):
        with pytest.raises(UserError, match="must be a Trace or a Span, not str"):
            custom_span("x", parent="y")  # type: ignore[arg-type]
        with pytest.raises(UserError, match="workflow_name must be a text, not int"):
            trace(7)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="tracing has no 'key'"):
            trace("x", tracing={"key": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"trace_id": ""}, "trace_id must be a text, or left out; it is ''"),
        ({"group_id": 7}, "group_id must be a text"),
        ({"workflow_name": None}, "workflow_name must be a text; it is None"),
        ({"trace_metadata": []}, "trace_metadata must be a dict, not list"),
        ({"trace_metadata": {"a": object()}}, "trace_metadata is not JSON"),
        ({"tracing_disabled": "yes"}, "tracing_disabled must be True or False; it is 'yes'"),
        ({"trace_include_sensitive_data": None}, "trace_include_sensitive_data must be True or"),
        ({"tracing": "on"}, r"tracing must be a TracingConfig \(a dict\), not str"),
        ({"tracing": {"api_key": 1}}, r"tracing\['api_key'\] must be a str, not int"),
    ],
)
def test_bad_settings_of_a_run_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        RunConfig(**settings)


def test_sensitive_data_is_in_traces_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert RunConfig().trace_include_sensitive_data
    monkeypatch.setenv("OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA", "0")
    assert not RunConfig().trace_include_sensitive_data
    assert RunConfig(trace_include_sensitive_data=True).trace_include_sensitive_data


def test_ids_are_those_of_the_w3c() -> None:
    with recording():
        trace_id, span_id = gen_trace_id(), gen_span_id()
    assert re.fullmatch("trace_[0-9a-f]{32}", trace_id)
    assert re.fullmatch("span_[0-9a-f]{24}", span_id)
    assert sdk_trace_id(w3c_trace_id(trace_id)) == trace_id
    assert w3c_span_id(trace_id, span_id) == span_id[5:21]
    assert sdk_span_id(w3c_span_id(trace_id, span_id)) == span_id[:21] + "0" * 8
    for name in ("trace_123", "mine", "trace_" + "0" * 32, "trace_" + "A" * 32):
        assert re.fullmatch("[0-9a-f]{32}", w3c_trace_id(name))
        assert w3c_trace_id(name).strip("0")
    assert w3c_span_id("t", "s") != w3c_span_id("u", "s")


def test_what_is_published_belongs_to_the_current_span() -> None:
    with recording():
        assert trace_parent() is None
        with trace("Work") as work:
            trace_id = w3c_trace_id(work.trace_id)
            assert trace_parent() == TraceContext(trace_id, span_id_of(trace_id, "trace"))
            with custom_span("a") as span:
                header = f"00-{trace_id}-{span.span_id[5:21]}-01"
                assert trace_headers() == {"traceparent": header}
        call = TraceContext("ab" * 16, "cd" * 8)
        with working_on(call.header):
            assert trace_parent() == call
            with trace("Off", disabled=True):
                assert trace_parent() is None


def test_a_context_manager_makes_a_trace_where_there_is_none() -> None:
    with recording() as recorder:
        with TraceCtxManager("A", None, None, None, None, False) as outer:
            assert get_current_trace() is outer.trace
            with TraceCtxManager("B", None, None, None, None, False) as inner:
                assert inner.trace is None
            with TraceCtxManager("C", None, None, None, None, True):
                assert get_current_trace() is not outer.trace
        assert get_current_trace() is None
    assert recorder.told == ["+A", "-A"]


def test_routing_metadata_of_the_trace_is_with_its_spans() -> None:
    metadata = {"agent_harness_id": "h", "other": 1}
    with recording(), trace("Work", metadata=metadata):
        exported = custom_span("a").export()
    assert exported is not None
    assert exported["metadata"] == {"agent_harness_id": "h"}


def test_a_span_that_cannot_be_told_to_the_bus_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(CustomSpanData):
        def export(self) -> dict[str, Any]:
            raise ValueError("odd")

    with recording() as recorder, trace("Work"), caplog.at_level(logging.ERROR):
        get_trace_provider().create_span(Odd("o", {})).__enter__().finish(reset_current=True)
    assert [it.message for it in caplog.records] == ["a span cannot be reported"]
    assert len(recorder.ended) == 1


def test_importing_stays_cheap() -> None:
    code = (
        # the NATS client imports aiohttp wherever a vendor's package has brought it along
        "import sys; sys.modules['aiohttp'] = None;"
        "import sandstream; names = set(sys.modules);"
        "assert not {'sandstream.tracing', 'asyncio'} & names, 'eager';"
        "from sandstream import Agent, trace, custom_span, function_tool;"
        "assert 'nats' not in sys.modules;"
        "from sandstream import Runner;"
        "assert 'opentelemetry' not in sys.modules;"
        "assert 'openai' not in sys.modules;"
        "assert 'urllib.request' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
