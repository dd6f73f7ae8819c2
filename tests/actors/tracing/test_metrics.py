"""Metrics as they arrive, by OTLP and at Prometheus' port, with the conventions' names."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from actors.tracing.traces_by_hand import facts, opened
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, messaging_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics, messaging_metrics
from prometheus_client.parser import text_string_to_metric_families
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.export.settings import ExportSettings, TelemetryError
from sandstream_actors.tracing.metrics.gauges import Gauges, read_gauges
from sandstream_actors.tracing.metrics.instruments import MAX_NAMES, OTHER, Metrics
from sandstream_actors.tracing.span import Attributes, Operation, Span, SpanEvent
from sandstream_bus.nats.topology import ConsumerSpec
from support.nats_server import NatsServer, open_bus
from support.tracing.otlp_receiver import OtlpReceiver, Protocol

PROTOCOLS: tuple[Protocol, ...] = ("http/protobuf", "grpc")
SECOND = 1_000_000_000


def span(
    operation: Operation, attributes: Attributes, seconds: float = 0.5, **more: object
) -> Span:
    values: dict[str, object] = {
        "trace_id": "1" * 32,
        "span_id": "2" * 16,
        "name": "x",
        "run": "r1",
        "operation": operation,
        "start_ns": SECOND,
        "end_ns": SECOND + int(seconds * SECOND),
        "attributes": attributes,
    }
    return Span(**(values | more))  # type: ignore[arg-type]


def chat(**more: object) -> Span:
    attributes: Attributes = {
        semconv.OPERATION_NAME: semconv.CHAT,
        semconv.PROVIDER_NAME: "openai",
        semconv.REQUEST_MODEL: "gpt-5",
        semconv.RESPONSE_MODEL: "gpt-5-2026",
        semconv.RESPONSE_ID: "resp_1",
        semconv.INPUT_TOKENS: 100,
        semconv.OUTPUT_TOKENS: 7,
        semconv.RUN_ID: "r1",
    }
    return span("chat", attributes, **more)  # type: ignore[arg-type]


def agent(name: str = "weather", status: str = "completed", **more: object) -> Span:
    attributes: Attributes = {
        semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
        semconv.PROVIDER_NAME: "openai",
        semconv.AGENT_NAME: name,
        semconv.RUN_STATUS: status,
        semconv.INPUT_TOKENS: 100,
        semconv.RUN_ID: "r1",
    }
    return span("agent", attributes, **more)  # type: ignore[arg-type]


def tool(name: str = "search", **more: object) -> Span:
    attributes: Attributes = {
        semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
        semconv.TOOL_NAME: name,
        semconv.TOOL_CALL_ID: "c1",
    }
    return span("tool", attributes, **more)  # type: ignore[arg-type]


def process(group: str = "tools-main") -> Span:
    attributes: Attributes = {
        semconv.MESSAGING_SYSTEM: semconv.NATS,
        semconv.MESSAGING_OPERATION_NAME: semconv.PROCESS,
        semconv.DESTINATION_NAME: "sandstream.run.r1.call.main",
        semconv.DESTINATION_TEMPLATE: "sandstream.run.{run}.call.{pool}",
        semconv.CONSUMER_GROUP: group,
        semconv.MESSAGE_ID: "m1",
    }
    return span("process", attributes, queued_ns=SECOND // 4)


@pytest.fixture(params=PROTOCOLS)
def receiver(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OtlpReceiver]:
    with OtlpReceiver(request.param) as receiver:
        for name, value in receiver.environment().items():
            monkeypatch.setenv(name, value)
        yield receiver


def exported(receiver: OtlpReceiver, *spans: Span, gauges: Gauges | None = None) -> None:
    """Everything of a program that does this and ends."""

    async def body() -> None:
        protocol = ExportSettings.from_env().metrics_protocol
        metrics = Metrics(
            ExportSettings(
                metrics=["otlp"], metrics_protocol=protocol, metric_interval_ms=3_600_000
            )
        )
        metrics.observe(spans)
        if gauges is not None:
            metrics.show(gauges)
        await metrics.close()

    asyncio.run(body())


def test_durations_of_operations(receiver: OtlpReceiver) -> None:
    exported(receiver, agent(), chat(), chat(error="429"), tool())
    metric = receiver.metric(gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION)
    assert (metric.shape, metric.unit) == ("histogram", "s")
    assert metric.scope.schema_url == semconv.SCHEMA_URL
    assert metric.resource["service.name"] == "sandstream"
    assert metric.points[0].bounds == pytest.approx(
        [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
    )
    assert all((point.count, point.sum) == (1, 0.5) for point in metric.points)
    model = {
        gen_ai_attributes.GEN_AI_OPERATION_NAME: "chat",
        gen_ai_attributes.GEN_AI_PROVIDER_NAME: "openai",
        gen_ai_attributes.GEN_AI_REQUEST_MODEL: "gpt-5",
        gen_ai_attributes.GEN_AI_RESPONSE_MODEL: "gpt-5-2026",
    }
    found = [point.attributes for point in metric.points]
    assert len(found) == 4 and model in found and model | {"error.type": "429"} in found
    assert {
        gen_ai_attributes.GEN_AI_OPERATION_NAME: "invoke_agent",
        gen_ai_attributes.GEN_AI_PROVIDER_NAME: "openai",
        gen_ai_attributes.GEN_AI_AGENT_NAME: "weather",
    } in found
    assert {
        gen_ai_attributes.GEN_AI_OPERATION_NAME: "execute_tool",
        gen_ai_attributes.GEN_AI_TOOL_NAME: "search",
    } in found


def test_tokens_are_those_of_model_calls_by_type(receiver: OtlpReceiver) -> None:
    exported(receiver, agent(), chat(), chat())
    metric = receiver.metric(gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE)
    assert (metric.shape, metric.unit) == ("histogram", "{token}")
    assert metric.points[0].bounds == [4**power for power in range(14)]
    types = gen_ai_attributes.GenAiTokenTypeValues
    found = {
        point.attributes[gen_ai_attributes.GEN_AI_TOKEN_TYPE]: (point.count, point.sum)
        for point in metric.points
    }
    assert found == {types.INPUT.value: (2, 200), types.OUTPUT.value: (2, 14)}
    for point in metric.points:
        assert point.attributes[gen_ai_attributes.GEN_AI_OPERATION_NAME] == "chat"
        assert point.attributes[gen_ai_attributes.GEN_AI_PROVIDER_NAME] == "openai"


def test_messages_by_template_and_never_by_an_id(receiver: OtlpReceiver) -> None:
    exported(receiver, process(), process("tools-p-0123456789abcdef"), tool(queued_ns=SECOND))
    metric = receiver.metric(messaging_metrics.MESSAGING_PROCESS_DURATION)
    groups = {
        point.attributes.pop(messaging_attributes.MESSAGING_CONSUMER_GROUP_NAME)
        for point in metric.points
    }
    assert groups == {"tools-main", "tools-private"}
    for point in metric.points:
        assert point.attributes == {
            messaging_attributes.MESSAGING_SYSTEM: "nats",
            messaging_attributes.MESSAGING_OPERATION_NAME: "process",
            messaging_attributes.MESSAGING_DESTINATION_TEMPLATE: "sandstream.run.{run}.call.{pool}",
        }
    queued = receiver.metric(semconv.QUEUE_DURATION)
    assert {
        point.attributes[semconv.OPERATION]: (point.count, point.sum) for point in queued.points
    } == {"process": (2, 0.5), "tool": (1, 1.0)}


def test_runs_that_ended_by_agent_and_status(receiver: OtlpReceiver) -> None:
    handed_to = agent("other")
    del handed_to.attributes[semconv.RUN_STATUS]
    exported(receiver, agent(), agent(), agent(status="failed", error="boom"), handed_to)
    metric = receiver.metric(semconv.RUNS_ENDED)
    assert (metric.shape, metric.unit) == ("sum", "{run}")
    assert {
        (point.attributes[semconv.RUN_STATUS], point.attributes[semconv.AGENT_NAME]): point.value
        for point in metric.points
    } == {("completed", "weather"): 2, ("failed", "weather"): 1}


def test_takeovers_what_they_cost_and_retries(receiver: OtlpReceiver) -> None:
    def taken_over(count: int, **more: object) -> Span:
        told: Attributes = {semconv.TAKEOVERS: count, semconv.LOST: 5.0}
        events = [SpanEvent(name=semconv.TAKEOVER, time_ns=SECOND, attributes=told)]
        group: Attributes = {semconv.CONSUMER_GROUP: "tools-p-0123456789abcdef"}
        return span("process", group, events=events, **more)  # type: ignore[arg-type]

    retried = chat()
    retried.attributes[semconv.RETRIES] = 3
    told_elsewhere = taken_over(0)
    reported = taken_over(7, run="")
    exported(receiver, taken_over(1), taken_over(2), told_elsewhere, reported, retried, chat())
    (takeovers,) = receiver.metric(semconv.TAKEOVERS).points
    assert takeovers.value == 3
    assert takeovers.attributes == {semconv.CONSUMER_GROUP: "tools-private"}
    (lost,) = receiver.metric(semconv.LOST).points
    assert (lost.count, lost.sum) == (2, 10.0)
    (retries,) = receiver.metric(semconv.RETRIES).points
    assert (retries.value, retries.attributes[semconv.REQUEST_MODEL]) == (3, "gpt-5")


def test_spans_that_have_not_ended_are_not_counted(receiver: OtlpReceiver) -> None:
    open_span = agent()
    open_span.end_ns = 0
    exported(receiver, open_span, chat())
    metric = receiver.metric(gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION)
    assert sum(point.count for point in metric.points) == 1


def test_hostile_names_cannot_fill_a_backend(receiver: OtlpReceiver) -> None:
    exported(
        receiver,
        *(agent(f"agent {number}") for number in range(MAX_NAMES + 50)),
        *(tool("x" * 10_000 + str(number)) for number in range(3)),
        agent("agent 0"),
    )
    points = receiver.metric(semconv.RUNS_ENDED).points
    counts = {point.attributes[semconv.AGENT_NAME]: point.value for point in points}
    assert len(counts) == MAX_NAMES + 1
    assert (counts[OTHER], counts["agent 0"]) == (50, 2)
    durations = receiver.metric(semconv.OPERATION_DURATION).points
    tools = [point for point in durations if semconv.TOOL_NAME in point.attributes]
    assert [point.count for point in tools] == [3]


def test_reports_of_strangers_end_no_runs_and_leave_room_for_real_names(
    receiver: OtlpReceiver,
) -> None:
    greedy = chat(run="")
    greedy.attributes |= {semconv.INPUT_TOKENS: 2**62, semconv.OUTPUT_TOKENS: -5}
    told = [tool(f"reported {number}") for number in range(MAX_NAMES)]
    for each in told:
        each.run = ""
    false = agent("false")
    false.run = ""
    exported(receiver, greedy, *told, false, tool("real"), agent("real"))
    names = {
        point.attributes.get(semconv.TOOL_NAME)
        for point in receiver.metric(semconv.OPERATION_DURATION).points
    }
    assert {"real", OTHER} <= names and len(names) < MAX_NAMES
    ended = receiver.metric(semconv.RUNS_ENDED).points
    assert [point.attributes[semconv.AGENT_NAME] for point in ended] == ["real"]
    assert {point.sum for point in receiver.metric(semconv.TOKEN_USAGE).points} == {2**40, 0}


def test_how_things_stand(receiver: OtlpReceiver) -> None:
    exported(
        receiver,
        gauges=Gauges(
            queue_depth={"harness-main": 3, "tools-main": 0},
            redelivered={"harness-main": 1},
            parked=2,
            active_runs=7,
            spans_dropped=9,
        ),
    )
    depth = receiver.metric(semconv.QUEUE_DEPTH)
    assert (depth.shape, depth.unit) == ("gauge", "{message}")
    assert {point.attributes[semconv.CONSUMER]: point.value for point in depth.points} == {
        "harness-main": 3,
        "tools-main": 0,
    }
    for name, value in (
        (semconv.REDELIVERED, 1),
        (semconv.PARKED, 2),
        (semconv.ACTIVE_RUNS, 7),
        (semconv.SPANS_DROPPED, 9),
    ):
        assert [point.value for point in receiver.metric(name).points] == [value]


def test_the_server_and_the_store_say_how_things_stand(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def body() -> Gauges:
        async with open_bus(nats_server) as bus, opened(tmp_path / "traces.db") as store:
            for name, kind in (
                ("harness-main", "start.main"),
                ("harness-p-0123456789abcdef", "start.*"),
                ("harness-p-fedcba9876543210", "start.*"),
                ("follower", "start.*"),
            ):
                filters = [f"{bus.subjects.prefix}.run.*.{kind}"]
                spec = ConsumerSpec(name=name, filters=filters)
                await bus.topology.ensure_consumer(bus.connection, spec)
            for subject in ("run.r1.start.main", "run.r2.start.main", "parked.harness.main"):
                subject = f"{bus.subjects.prefix}.{subject}"
                await bus.connection.request(subject, b"{}", timeout_s=5)
            await store.begin(facts("r1", status="running", ended_ns=0))
            await store.begin(facts("r2", status="completed"))
            await store.count("spans_dropped", 4)
            return await read_gauges(bus, store)

    gauges = asyncio.run(body())
    assert gauges == Gauges(
        queue_depth={"harness-main": 2, "harness-private": 4},
        redelivered={"harness-main": 0, "harness-private": 0},
        parked=1,
        active_runs=1,
        spans_dropped=4,
    )


def test_messages_that_were_delivered_again_are_counted(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def body() -> Gauges:
        async with open_bus(nats_server) as bus, opened(tmp_path / "traces.db") as store:
            subject = f"{bus.subjects.prefix}.run.r1.start.main"
            spec = ConsumerSpec(name="harness-main", filters=[subject], ack_wait_s=3600)
            await bus.topology.ensure_consumer(bus.connection, spec)
            await bus.connection.request(subject, b"{}")
            pull = f"$JS.API.CONSUMER.MSG.NEXT.{bus.topology.log}.harness-main"
            pulled: asyncio.Queue[Any] = asyncio.Queue()
            await bus.connection.subscribe("_INBOX.pulled", pulled.put_nowait)
            await bus.connection.send(pull, b"1", "_INBOX.pulled")
            first = await pulled.get()
            await bus.connection.send(first.reply, b"-NAK")
            await bus.connection.send(pull, b"1", "_INBOX.pulled")
            await pulled.get()
            return await read_gauges(bus, store)

    gauges = asyncio.run(body())
    assert (gauges.redelivered, gauges.queue_depth) == ({"harness-main": 1}, {"harness-main": 1})


# --- where they go --------------------------------------------------------------------------------


def scrape(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples by name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text = response.read().decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


PROMETHEUS = ExportSettings(metrics=["prometheus"], prometheus_port=0)


def test_prometheus_scrapes_what_is_true_now() -> None:
    async def body() -> None:
        metrics = Metrics(PROMETHEUS)
        metrics.observe([chat(), agent('hostile"\n{name}'), process()])
        before = await asyncio.to_thread(scrape, metrics.prometheus_port)
        metrics.observe([chat()])
        metrics.show(Gauges(queue_depth={"harness-main": 3}, active_runs=7))
        after = await asyncio.to_thread(scrape, metrics.prometheus_port)
        await metrics.close()
        assert semconv.QUEUE_DEPTH.replace(".", "_") not in before
        ((labels, value),) = after["sandstream_queue_depth"]
        assert (labels["sandstream_consumer"], value) == ("harness-main", 3)
        assert [value for _, value in after["sandstream_runs_active"]] == [7]
        ((labels, value),) = after["sandstream_runs_ended_total"]
        assert (labels["gen_ai_agent_name"], value) == ('hostile"\n{name}', 1)
        tokens = {
            labels["gen_ai_token_type"]: value
            for labels, value in after["gen_ai_client_token_usage_sum"]
        }
        assert tokens == {"input": 200, "output": 14}
        durations = after["gen_ai_client_operation_duration_seconds_count"]
        counts = {labels["gen_ai_operation_name"]: value for labels, value in durations}
        assert counts == {"chat": 2, "invoke_agent": 1}
        with pytest.raises(OSError):
            await asyncio.to_thread(scrape, metrics.prometheus_port)

    asyncio.run(body())


def test_two_may_serve_prometheus_in_one_process() -> None:
    async def body() -> None:
        first, second = Metrics(PROMETHEUS), Metrics(PROMETHEUS)
        first.observe([agent()])
        found = await asyncio.to_thread(scrape, second.prometheus_port)
        assert "sandstream_runs_ended_total" not in found
        await first.close()
        await second.close()

    asyncio.run(body())


def test_a_port_that_is_taken_is_told_with_what_to_set() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TelemetryError) as raised:
            Metrics(ExportSettings(metrics=["prometheus"], prometheus_port=port))
    text = str(raised.value)
    assert f"127.0.0.1:{port}" in text and "OTEL_EXPORTER_PROMETHEUS_PORT" in text


def test_a_host_that_is_not_here_is_told_with_what_to_set() -> None:
    settings = ExportSettings(metrics=["prometheus"], prometheus_host="192.0.2.1")
    with pytest.raises(TelemetryError, match="OTEL_EXPORTER_PROMETHEUS_HOST"):
        Metrics(settings)


def test_the_console_gets_a_line_of_json() -> None:
    out = io.StringIO()

    async def body() -> None:
        metrics = Metrics(ExportSettings(metrics=["console"]), out)
        metrics.observe([agent()])
        await metrics.close()

    asyncio.run(body())
    (line,) = out.getvalue().splitlines()
    assert semconv.RUNS_ENDED in json.dumps(json.loads(line))


def test_an_endpoint_that_is_down_is_told_once(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.refuse_with = 500

    async def body() -> None:
        protocol = ExportSettings.from_env().metrics_protocol
        metrics = Metrics(
            ExportSettings(metrics=["otlp"], metrics_protocol=protocol, metric_interval_ms=20)
        )
        metrics.observe([agent()])
        await receiver.requested(3)
        receiver.refuse_with = None
        await asyncio.to_thread(receiver.wait_until, lambda: bool(receiver.metrics))
        await metrics.close()

    asyncio.run(body())
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    # the thread of the reader starts before its provider knows it: 20 ms may be too short
    told = [it for it in told if not it.startswith("Cannot call collect on a MetricReader until")]
    assert told == ["metrics cannot be exported", "metrics are exported again"]


def test_an_endpoint_that_hangs_does_not_hold_up_the_end(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    receiver.hold()

    async def body() -> None:
        metrics = Metrics(
            ExportSettings(
                metrics=["otlp"], metrics_protocol=receiver.protocol, metric_interval_ms=3_600_000
            )
        )
        metrics.observe([agent()])
        await metrics.close(grace_s=0.05)

    asyncio.run(body())
    assert receiver.metrics == []
