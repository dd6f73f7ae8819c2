"""Spans as they arrive: through OpenTelemetry's exporters and the real protobuf at a receiver."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator

import msgspec
import pytest
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    messaging_attributes,
)
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics, messaging_metrics
from opentelemetry.semconv.schemas import Schemas
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.export.exporter import span_exporters
from sandstream_actors.tracing.export.settings import ExportSettings
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.span import Operation, Span, SpanEvent, SpanLink
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallKind,
    CallRequested,
    ErrorInfo,
    GuardrailRecord,
    ModelDeferred,
    RunDone,
    RunWaiting,
    TurnRequested,
)
from support.scripted_log import USAGE, answer, asks, begin, calls, ends, says
from support.tracing.otlp_receiver import OtlpReceiver, Protocol, ReceivedSpan
from support.tracing.timed_log import TimedLog

from sandstream.version import __version__

PROTOCOLS: tuple[Protocol, ...] = ("http/protobuf", "grpc")
LIMITED = ErrorInfo(
    code="model_unavailable", message="slow down", data={"status": 429, "kind": "x"}
)
FULL = Span(
    trace_id="0af7651916cd43dd8448eb211c80319c",
    span_id="00f067aa0ba902b7",
    parent_id="b7ad6b7169203331",
    name="execute_tool search",
    operation="tool",
    kind="client",
    run="r1",
    agent="a",
    start_ns=1_700_000_000_123_456_789,
    end_ns=1_700_000_001_123_456_789,
    queued_ns=250_000_000,
    error="timeout",
    error_message="it took \U0001f9ca too long",
    attributes={"text": "x", "yes": True, "whole": -(2**63), "part": 0.5, "many": ["a", "b"]},
    contents={semconv.TOOL_ARGUMENTS: '{"q": "<script>"}'},
    events=[SpanEvent(name="retry", time_ns=1_700_000_000_500_000_000, attributes={"n": 2})],
    links=[SpanLink(trace_id="a" * 32, span_id="b" * 16, attributes={semconv.LINK: "message"})],
)


@pytest.fixture(autouse=True)
def no_other_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)


def sent_by(receiver: OtlpReceiver, *spans: Span) -> list[ReceivedSpan]:
    """What arrives of spans that are exported as the environment says."""

    async def export() -> None:
        (exporter,) = span_exporters(ExportSettings.from_env())
        assert await exporter.export(list(spans)), exporter.failure
        await exporter.close()

    asyncio.run(export())
    return receiver.spans


@pytest.fixture(params=PROTOCOLS)
def receiver(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OtlpReceiver]:
    with OtlpReceiver(request.param) as receiver:
        for name, value in receiver.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        yield receiver


def test_a_span_arrives_as_it_is(receiver: OtlpReceiver) -> None:
    (span,) = sent_by(receiver, FULL)
    assert (span.trace_id, span.span_id, span.parent_id) == (
        FULL.trace_id,
        FULL.span_id,
        FULL.parent_id,
    )
    assert (span.name, span.kind) == (FULL.name, "client")
    assert (span.start, span.end) == (FULL.start_ns, FULL.end_ns)
    assert (span.status, span.status_message) == ("error", FULL.error_message)
    assert span.attributes == FULL.attributes | FULL.contents | {
        semconv.ERROR_TYPE: "timeout",
        semconv.QUEUED: 0.25,
        semconv.RUN_ID: "r1",
    }
    (event,), (link,) = span.events, span.links
    assert (event.name, event.time, event.attributes) == (
        "retry",
        1_700_000_000_500_000_000,
        {"n": 2},
    )
    assert (link.trace_id, link.span_id) == ("a" * 32, "b" * 16)
    assert link.attributes == {semconv.LINK: "message"}


def test_a_span_without_anything_has_no_parent_no_error_and_did_not_wait(
    receiver: OtlpReceiver,
) -> None:
    plain = Span(
        trace_id="1" * 32, span_id="2" * 16, name="x", operation="custom", start_ns=1, end_ns=1
    )
    (span,) = sent_by(receiver, plain)
    assert (span.parent_id, span.status, span.attributes, span.kind) == (
        "",
        "unset",
        {},
        "internal",
    )


def test_who_exports_is_told_with_the_version_of_the_conventions(receiver: OtlpReceiver) -> None:
    (span,) = sent_by(receiver, FULL)
    assert (span.scope.name, span.scope.version) == ("sandstream", __version__)
    assert span.scope.schema_url == Schemas.V1_44_0.value == semconv.SCHEMA_URL
    assert span.resource["service.name"] == "sandstream"


def test_the_resource_is_what_the_variables_say(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=x"
    )
    monkeypatch.setenv("OTEL_SERVICE_NAME", "weather")
    (span,) = sent_by(receiver, FULL)
    assert span.resource["service.name"] == "weather"
    assert span.resource["deployment.environment.name"] == "test"


def test_headers_and_compression_of_the_variables_are_used(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    assert [span.span_id for span in sent_by(receiver, FULL)] == [FULL.span_id]
    assert receiver.headers["x-key"] == "abc"
    if receiver.protocol == "http/protobuf":
        assert receiver.headers["content-encoding"] == "gzip"


def test_the_console_gets_one_line_of_json_for_each_span() -> None:
    out = io.StringIO()

    async def export() -> None:
        (exporter,) = span_exporters(ExportSettings(traces=["console"]), out)
        assert await exporter.export([FULL, msgspec.structs.replace(FULL, name="other\nname")])
        await exporter.close()

    asyncio.run(export())
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["name"], second["name"]) == (FULL.name, "other\nname")
    assert first["context"]["trace_id"] == f"0x{FULL.trace_id}"
    assert first["attributes"][semconv.ERROR_TYPE] == "timeout"


# --- the conventions ------------------------------------------------------------------------------

REQUIRED: dict[Operation, set[str]] = {
    "agent": {gen_ai_attributes.GEN_AI_OPERATION_NAME, gen_ai_attributes.GEN_AI_PROVIDER_NAME},
    "chat": {
        gen_ai_attributes.GEN_AI_OPERATION_NAME,
        gen_ai_attributes.GEN_AI_PROVIDER_NAME,
        gen_ai_attributes.GEN_AI_REQUEST_MODEL,
    },
    "tool": {gen_ai_attributes.GEN_AI_OPERATION_NAME, gen_ai_attributes.GEN_AI_TOOL_NAME},
    "send": {
        messaging_attributes.MESSAGING_SYSTEM,
        messaging_attributes.MESSAGING_OPERATION_NAME,
        messaging_attributes.MESSAGING_OPERATION_TYPE,
        messaging_attributes.MESSAGING_DESTINATION_NAME,
    },
    "process": {
        messaging_attributes.MESSAGING_SYSTEM,
        messaging_attributes.MESSAGING_OPERATION_NAME,
        messaging_attributes.MESSAGING_OPERATION_TYPE,
        messaging_attributes.MESSAGING_DESTINATION_NAME,
    },
    "handoff": {semconv.HANDOFF_FROM, semconv.HANDOFF_TO},
    "guardrail": {semconv.GUARDRAIL_NAME, semconv.GUARDRAIL_KIND, semconv.GUARDRAIL_TRIPPED},
    "approval": {
        semconv.APPROVAL_DECISION,
        gen_ai_attributes.GEN_AI_TOOL_NAME,
    },
    "wait": {semconv.RETRY_ATTEMPT},
    "sandbox": {semconv.CALL, semconv.CALL_KIND},
    "memory": {semconv.CALL, semconv.CALL_KIND},
    "code": {semconv.CALL, semconv.CALL_KIND},
}
"""What every span of an operation must carry: by the conventions where these know it."""

NAMES: dict[Operation, str] = {
    "agent": gen_ai_attributes.GenAiOperationNameValues.INVOKE_AGENT.value,
    "chat": gen_ai_attributes.GenAiOperationNameValues.CHAT.value,
    "tool": gen_ai_attributes.GenAiOperationNameValues.EXECUTE_TOOL.value,
}
KINDS = {"chat": "client", "send": "producer", "process": "consumer"}


def call(name: str, kind: CallKind) -> CallRequested:
    return msgspec.structs.replace(asks(name, kind), name=name, call_id=f"id-{name}")


def busy_run() -> TimedLog:
    """A run in which everything happens once, and some of it fails."""
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("call.h", call("h", "history"), at=1, cause=1)
    log.add("result.main", ends("h", kind="history"), at=2, cause=2)
    log.add("call.h", call("g", "guard"), at=3, cause=3)
    tripped = GuardrailRecord(name="polite", kind="input", agent="a", tripped=False)
    checked = msgspec.structs.replace(ends("g", kind="guard"), guardrails=[tripped])
    log.add("result.main", checked, at=4, cause=4)
    log.add("sandbox.local", call("o", "open"), at=5, cause=5)
    log.add("result.main", ends("o", kind="open"), at=6, cause=6)
    wait = ModelDeferred(turn=1, attempt=1, delay_s=1, waited_s=1, error=LIMITED, duration_ms=1)
    log.add("model", wait, at=8, cause=7)
    again = log.add("turn.main", TurnRequested(turn=1, agent="a"), at=1010)
    log.add("model", answer(1, calls("f", "c"), duration_ms=5), at=1020, cause=again)
    question = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c")
    log.add("approval.requested", question, at=1021, cause=again)
    log.add("waiting", RunWaiting(turn=1, approvals=[question]), at=1022, cause=again)
    decided = log.add("approval.decided", ApprovalDecided(call="c", approve=True), at=2000)
    asked = log.add("call.h", call("t", "tool"), at=2001, cause=decided)
    boom = ErrorInfo(code="tool_failed", message="no such city")
    failed = log.add("result.main", ends("t", None, error=boom), at=2010, cause=asked)
    log.add("model", answer(2, calls("transfer_to_b", "x"), duration_ms=2), at=2020, cause=failed)
    turn = TurnRequested(turn=3, agent="b", reason="handoff")
    moved = log.add("turn.main", turn, at=2021, cause=failed)
    log.add("model", answer(3, says("bye"), agent="b", duration_ms=5), at=2030, cause=moved)
    end = RunDone(status="failed", agent="b", turns=3, usage=USAGE, error=boom)
    log.add("done", end, at=2031, cause=moved)
    return log


@pytest.fixture(scope="module")
def busy_spans() -> Iterator[list[tuple[Span, ReceivedSpan]]]:
    """Each span of that run, as it was folded and as it arrived."""
    log = busy_run()
    spans = [span for span in RunTrace.of(log.run, log.events).spans() if not span.is_open]
    with OtlpReceiver() as receiver, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        arrived = {span.span_id: span for span in sent_by(receiver, *spans)}
        yield [(span, arrived[span.span_id]) for span in spans]


@pytest.mark.parametrize("operation", REQUIRED)
def test_every_operation_has_what_the_conventions_require(
    operation: Operation, busy_spans: list[tuple[Span, ReceivedSpan]]
) -> None:
    found = [there for here, there in busy_spans if here.operation == operation]
    assert found
    for span in found:
        assert REQUIRED[operation] <= set(span.attributes), span.name
        assert "" not in [span.attributes[name] for name in REQUIRED[operation]], span.name
        assert span.kind == KINDS.get(operation, "internal")
        if operation in NAMES:
            assert span.attributes[gen_ai_attributes.GEN_AI_OPERATION_NAME] == NAMES[operation]
            assert span.name.startswith(f"{NAMES[operation]} ")
        if operation in ("send", "process"):
            assert span.attributes[messaging_attributes.MESSAGING_SYSTEM] == "nats"
            types = {kind.value for kind in messaging_attributes.MessagingOperationTypeValues}
            assert span.attributes[messaging_attributes.MESSAGING_OPERATION_TYPE] in types
            template = span.attributes[messaging_attributes.MESSAGING_DESTINATION_TEMPLATE]
            assert span.name == f"{operation} {template}"


def test_all_that_failed_says_what_kind_of_failure_it_was(
    busy_spans: list[tuple[Span, ReceivedSpan]],
) -> None:
    failed = [there for here, there in busy_spans if here.error]
    assert {"invoke_agent a", "execute_tool t"} <= {span.name for span in failed}
    for _, span in busy_spans:
        has_type = error_attributes.ERROR_TYPE in span.attributes
        assert has_type == (span.status == "error") == (span in failed)


def test_a_run_is_one_trace_in_which_every_parent_is_there(
    busy_spans: list[tuple[Span, ReceivedSpan]],
) -> None:
    arrived = [there for _, there in busy_spans]
    ids = {span.span_id for span in arrived}
    assert len({span.trace_id for span in arrived}) == 1 and len(ids) == len(arrived)
    assert [span.name for span in arrived if span.parent_id not in ids] == ["invoke_agent a"]
    assert all(link.span_id in ids for span in arrived for link in span.links)


def test_no_name_of_ours_differs_from_the_conventions() -> None:
    modules = (
        *(error_attributes, gen_ai_attributes, messaging_attributes),
        *(gen_ai_metrics, messaging_metrics),
    )
    theirs = {
        value for module in modules for value in vars(module).values() if isinstance(value, str)
    }
    ours = [value for value in vars(semconv).values() if isinstance(value, str)]
    foreign = {name for name in ours if name.startswith(("gen_ai.", "messaging.", "error."))}
    assert len(foreign) > 40
    assert not foreign - theirs
    values = {member.value for member in gen_ai_attributes.GenAiOperationNameValues}
    assert {semconv.INVOKE_AGENT, semconv.CHAT, semconv.EXECUTE_TOOL} <= values
