"""Events and reports that lie: whatever they say, what is real is kept, and can be exported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from actors.tracing.traces_by_hand import opened
from nats.aio.client import Client
from nats.aio.msg import Msg
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.export.otel_spans import make_resource, readable_span
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.fold import contents
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.reported import operation_span, reported_spans
from sandstream_actors.tracing.span import Span
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire.messages import (
    CallFinished,
    CancelRequested,
    ErrorInfo,
    ModelDeferred,
    RunDone,
    TokenUsage,
)
from sandstream_bus.wire.sandboxes import SandboxReply
from sandstream_bus.wire.trace_context import TraceContext, run_span_id, trace_id_of
from sandstream_bus.wire.traces import SpansReported
from support.scripted_log import answer, asks, begin, calls, raw, says
from support.tracing.timed_log import TimedLog

RUN_SPAN = TraceContext(trace_id_of("r"), run_span_id("r"))
STAMP = "Nats-Time-Stamp"
QUOTE = "they said: private"


def a_run(
    *,
    first: dict[str, str] | None = None,
    others: dict[str, str] | None = None,
    duration_ms: int = 5,
    options: dict[str, Any] | None = None,
) -> TimedLog:
    """A run with a tool that fails, a model that does once, and an end that is no success."""
    log = TimedLog()
    failure = ErrorInfo(code="tool_error", message=QUOTE)
    log.add("start.main", begin("f", options=options), at=0, headers=first)

    def add(kind: str, event: Any, at: float, cause: int) -> None:
        log.add(kind, event, at=at, cause=cause, traceparent=RUN_SPAN.header, headers=others)

    add("model", answer(1, calls("f", "c1"), duration_ms=duration_ms), 10, 1)
    add("call.h", asks("t1-0", turn=1), 11, 1)
    result = CallFinished(call="t1-0", kind="tool", turn=1, output=raw("private"), error=failure)
    add("result.main", msgspec.structs.replace(result, duration_ms=duration_ms), 20, 3)
    again = ModelDeferred(
        turn=2, attempt=1, delay_s=1.0, waited_s=0.0, error=failure, duration_ms=duration_ms
    )
    add("deferred", again, 25, 4)
    add("model", answer(2, says("private"), duration_ms=duration_ms), 30, 4)
    end = RunDone(status="failed", agent="a", turns=2, usage=TokenUsage(), error=failure)
    add("done", end, 40, 4)
    return log


async def kept(path: Path, facts: RunFacts | None, spans: Sequence[Span]) -> list[Span]:
    """The spans as they come out of a store's outbox."""
    async with opened(path) as store:
        await store.record(facts, spans, export=True)
        return [span for _, span in await store.outbox(100_000)]


def exportable(spans: Sequence[Span], caplog: pytest.LogCaptureFixture) -> None:
    """OpenTelemetry says in its log what it cannot encode."""
    encode_spans([readable_span(span, make_resource()) for span in spans])
    assert caplog.text == ""


LYING = {
    "endless": {"duration_ms": 10**18},
    "before it began": {"duration_ms": -(10**18)},
    "no time": {"first": {STAMP: ""}, "others": {STAMP: ""}},
    "no time at first": {"first": {STAMP: ""}},
    "nonsense for a time": {"others": {STAMP: "\x00 yesterday"}},
    "year 9999": {"others": {STAMP: "9999-12-31T23:59:59.999999999Z"}},
    "year 1": {"first": {STAMP: "0001-01-01T00:00:00Z"}, "others": {STAMP: "0001-01-01T00:00:00Z"}},
    "ten years back": {"others": {STAMP: "2016-01-02T03:04:05.5Z"}},
    "delivered for ever": {"others": {"Sandstream-Deliveries": "9999999999999999999"}},
    "delivered less than never": {"others": {"Sandstream-Deliveries": "-5"}},
    "caused by itself": {"others": {"Sandstream-Cause": "3"}},
    "caused by the end": {"others": {"Sandstream-Cause": "7"}},
    "caused by nothing": {"others": {"Sandstream-Cause": "9" * 4000}},
    "a long traceparent": {"first": {"traceparent": RUN_SPAN.header + "-" + "x" * 100_000}},
    "no traceparent": {"first": {"traceparent": "\x00\xff"}},
    "big numbers": {"options": {"metadata": {"n": 2**63 + 5, "deep": [[[["x"]]]], "none": None}}},
}


@pytest.mark.parametrize("lie", LYING.values(), ids=LYING.keys())
def test_events_that_lie(
    lie: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = RunTrace.of("r", a_run(**lie).events, contents=True)
    spans = trace.spans()
    assert [it.name for it in spans if it.is_open] == []
    assert [it.name for it in spans if not 0 < it.start_ns <= it.end_ns < 2**63] == []
    assert [it.name for it in spans if it.queued_ns < 0] == []
    ids = {it.span_id for it in spans}
    assert [it.name for it in spans[1:] if it.parent_id not in ids] == []
    found = asyncio.run(kept(tmp_path / "t.db", trace.facts(), spans))
    assert {it.span_id for it in found} == ids
    exportable(found, caplog)


def test_a_long_run_is_folded_within_bounds() -> None:
    log = TimedLog()
    last = log.add("start.main", begin("f"), at=0)
    for turn in range(1, 3001):
        at = turn * 10
        log.add("model", answer(turn, calls("f", f"c{turn}"), duration_ms=1), at=at, cause=last)
        call = log.add("call.h", asks(f"t{turn}-0", turn=turn), at=at + 1, cause=last)
        result = CallFinished(call=f"t{turn}-0", kind="tool", turn=turn, output=raw("x" * 500))
        last = log.add("result.main", result, at=at + 5, cause=call)
    spans = RunTrace.of("r", log.events, contents=True).spans()
    said = sum(len(str(value)) for span in spans for value in span.contents.values())
    assert said < contents.MANY_BYTES + 3001 * (contents.FEW_BYTES + 2_000)
    chats = [span for span in spans if span.operation == "chat"]
    assert "x" * 500 in str(chats[-1].contents[semconv.INPUT_MESSAGES])


# --- what a run allows ------------------------------------------------------------------------


def test_a_run_that_forbids_contents_does_not_quote_failures_either() -> None:
    trace = RunTrace.of("r", a_run(options={"trace_contents": False}).events, contents=True)
    assert "private" not in repr([trace.spans(), trace.facts()])
    assert [it.error for it in trace.spans() if it.operation == "tool"] == ["tool_error"]
    assert QUOTE in repr(RunTrace.of("r", a_run().events).spans())


def test_a_run_that_lost_its_start_may_have_forbidden_contents() -> None:
    trace = RunTrace.of("r", a_run().events[1:], contents=True)
    assert trace.facts().truncated and trace.facts().traced
    assert "private" not in repr([trace.spans(), trace.facts()])


def test_a_run_that_lost_its_start_and_names_no_trace_wanted_none() -> None:
    events = [_without_trace(it) for it in a_run().events[1:]]
    assert not RunTrace.of("r", events).facts().traced


def test_what_outsiders_say_before_a_run_begins_does_not_make_it_look_lost() -> None:
    """Its options would count for nothing then."""
    log = TimedLog()
    log.add("cancel", CancelRequested(), at=0)
    log.add("start.main", begin("f", options={"traced": False}), at=1)
    assert not RunTrace.of("r", log.events).facts().traced
    assert not RunTrace.of("r", log.events).facts().truncated
    assert RunTrace.of("r", log.events[:1]).spans() == []


def _without_trace(event: LogEvent) -> LogEvent:
    headers = {key: it for key, it in event.stored.headers.items() if key != "traceparent"}
    return event._replace(stored=event.stored._replace(headers=headers))


# --- reports ----------------------------------------------------------------------------------


def reported(trace_id: str, *spans: dict[str, Any]) -> list[Span]:
    """As a stranger's report is read."""
    body = {"type": "spans.reported", "trace_id": trace_id, "spans": list(spans)}
    message = msgspec.json.decode(msgspec.json.encode(body), type=SpansReported)
    return reported_spans(message, trace_id, sequence=9, contents=True)


ODD: dict[str, dict[str, Any]] = {
    "numbers": {"attributes": {"a": 2**63 + 1, "b": -(2**63), "c": 2**64 - 1, "d": 1e308}},
    "NUL": {"name": "\x00x", "attributes": {"\x00": "\x00", "": ""}},
    "long": {"name": "n" * 10**6, "attributes": {"k" * 10**6: "v" * 10**6}},
    "many": {"attributes": {f"k{it}": it for it in range(10_000)}, "contents": {"l": ["x"] * 9999}},
    "ends before it starts": {"start_ns": 2**63 - 1, "end_ns": 0},
    "at no time": {"start_ns": 0, "end_ns": 0},
    "its own parent": {"parent_id": "b" * 16},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_reports_that_are_odd(
    odd: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain: dict[str, Any] = {"span_id": "b" * 16, "name": "n", "start_ns": 1, "end_ns": 2}
    spans = reported("a" * 32, plain | odd)
    found = asyncio.run(kept(tmp_path / "t.db", None, spans))
    assert [it.span_id for it in found] == ["b" * 16]
    assert len(repr(found)) < 2_000_000
    exportable(found, caplog)


def test_an_operation_that_took_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    delivery = Delivery(Msg(Client(), "s", "$JS.ACK.LOG.tracing.1.7.7.5.0", b"", {}))
    reply = SandboxReply(op="o", duration_ms=10**18)
    span = operation_span("box", reply, RUN_SPAN, delivery)
    assert 0 <= span.start_ns <= span.end_ns
    exportable([span], caplog)


# --- spans that pretend -------------------------------------------------------------------------


def real_and_false() -> tuple[RunTrace, list[Span]]:
    """A run, and a report that takes the ids of all its spans."""
    trace = RunTrace.of("r", a_run().events)
    lies = [
        {"span_id": it.span_id, "name": "LIE", "operation": "chat", "start_ns": 1, "end_ns": 2}
        for it in trace.spans()
    ]
    return trace, reported(trace.facts().trace_id, *lies)


@pytest.mark.parametrize("together", [False, True], ids=["apart", "at once"])
@pytest.mark.parametrize("order", ["first", "last", "between"])
def test_no_report_takes_the_place_of_a_real_span(
    order: str, together: bool, tmp_path: Path
) -> None:
    """``between``: the log was read without anybody who exports, then again by one who does."""
    trace, lies = real_and_false()
    facts, real = trace.facts(), trace.spans()

    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            jobs = [store.record(facts, real, export=True)]
            lie = store.record(None, lies, export=True)
            jobs = [lie, *jobs] if order == "first" else [*jobs, lie]
            if order == "between":
                jobs = [store.record(facts, real, is_backfill=True), lie, jobs[0]]
            if together:
                news = await asyncio.gather(*jobs)
            else:
                news = [await job for job in jobs]
            assert [it.name for it in await store.spans_of_trace(facts.trace_id)].count("LIE") == 0
            out = [span for _, span in await store.outbox(1000)]
            assert sorted(it.name for it in out) == sorted(it.name for it in real)
            if order != "first":
                assert news[1] == [], "nobody counts it"

    asyncio.run(main())
