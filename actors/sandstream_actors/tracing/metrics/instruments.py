"""Metrics from newly stored spans and from snapshots of the installation.

Attributes follow the conventions and are few: never ids, and names that users choose freely only
up to a limit.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TextIO

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.export.exporter import in_daemon_thread
from sandstream_actors.tracing.export.otel_spans import make_resource, sandstream_version
from sandstream_actors.tracing.export.settings import ExportSettings
from sandstream_actors.tracing.metrics.gauges import Gauges, consumer_label
from sandstream_actors.tracing.span import Attributes, Span

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

OPERATION_BOUNDS: Final = [0.01 * 2**power for power in range(14)]
TOKEN_BOUNDS: Final[list[float]] = [4**power for power in range(14)]
MESSAGING_BOUNDS: Final = [
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
]
"""Upper bounds of the histogram buckets, as the conventions define them."""

MAX_NAMES: Final = 200
"""How many different values an attribute may have."""
_MAX_REPORTED_NAMES: Final = MAX_NAMES // 2
"""The limit for names that programs report, so that names from runs have room left."""
_MOST_TOKENS: Final = 2**40
"""A cap, so that sums of foreign numbers do not overflow."""
OTHER: Final = "other"
_NAME_LENGTH: Final = 128
_NS: Final = 1_000_000_000
_GRACE_S: Final = 2.0
_MEASURED: Final = (semconv.INVOKE_AGENT, semconv.CHAT, semconv.EXECUTE_TOOL)
_OPERATION_NAMES: Final = (
    semconv.PROVIDER_NAME,
    semconv.REQUEST_MODEL,
    semconv.RESPONSE_MODEL,
    semconv.AGENT_NAME,
    semconv.TOOL_NAME,
)
_TOKEN_NAMES: Final = (semconv.PROVIDER_NAME, semconv.REQUEST_MODEL, semconv.RESPONSE_MODEL)
_TOKENS: Final = {semconv.INPUT_TOKENS: "input", semconv.OUTPUT_TOKENS: "output"}


class Metrics:
    """Works from its creation until ``close``. Exports run in their own threads."""

    def __init__(self, settings: ExportSettings, out: TextIO | None = None) -> None:
        """Raises ``TelemetryError`` if a package is missing or Prometheus' port is taken."""
        from opentelemetry.sdk.metrics import MeterProvider

        from sandstream_actors.tracing.metrics.readers import MetricPorts

        self._ports = MetricPorts(settings, out or sys.stdout)
        self._provider = MeterProvider(
            self._ports.readers, resource=make_resource(), shutdown_on_exit=False
        )
        meter = self._provider.get_meter(
            semconv.SCOPE, sandstream_version(), schema_url=semconv.SCHEMA_URL
        )
        self._names: dict[str, set[str]] = {}
        self._gauges: Gauges | None = None
        self._make_instruments(meter)
        self._make_gauges(meter)

    @property
    def prometheus_port(self) -> int:
        """The port that serves Prometheus; 0 if none."""
        return self._ports.prometheus_port

    def observe(self, spans: Iterable[Span]) -> None:
        """Count ended spans; pass each span only once."""
        for span in spans:
            if span.is_open:
                continue
            if span.attributes.get(semconv.OPERATION_NAME) in _MEASURED:
                self._observe_operation(span)
            if span.operation == "process":
                self._observe_process(span)
            if span.queued_ns:
                self._queue_duration.record(
                    span.queued_ns / _NS, {semconv.OPERATION: span.operation}
                )
            self._observe_trouble(span)
            if span.operation == "agent" and span.run and semconv.RUN_STATUS in span.attributes:
                labels = self._labels(span, (semconv.RUN_STATUS, semconv.AGENT_NAME))
                self._runs_ended.add(1, labels)

    def show(self, gauges: Gauges) -> None:
        """Set the current state."""
        self._gauges = gauges

    async def close(self, grace_s: float = _GRACE_S) -> None:
        """Export once more, if possible in time, and end."""
        ending = asyncio.ensure_future(in_daemon_thread(self._shut_down))
        _, late = await asyncio.wait({ending}, timeout=grace_s)
        for future in late:
            future.cancel()
        if not late:
            await ending

    def _shut_down(self) -> None:
        self._provider.shutdown()
        self._ports.close()

    def _observe_operation(self, span: Span) -> None:
        name = str(span.attributes[semconv.OPERATION_NAME])
        seconds = (span.end_ns - span.start_ns) / _NS
        labels = {semconv.OPERATION_NAME: name}
        self._operation_duration.record(seconds, labels | self._labels(span, _OPERATION_NAMES))
        if name != semconv.CHAT:
            return  # the tokens of an agent are those of its model calls
        for attribute, kind in _TOKENS.items():
            count = span.attributes.get(attribute)
            if isinstance(count, int):
                labels |= {semconv.TOKEN_TYPE: kind}
                count = max(0, min(count, _MOST_TOKENS))
                self._token_usage.record(count, labels | self._labels(span, _TOKEN_NAMES))

    def _observe_process(self, span: Span) -> None:
        labels: dict[str, str] = {
            semconv.MESSAGING_SYSTEM: semconv.NATS,
            semconv.MESSAGING_OPERATION_NAME: semconv.PROCESS,
        }
        labels |= self._consumer_labels(span)
        labels |= self._labels(span, (semconv.DESTINATION_TEMPLATE,))
        self._process_duration.record((span.end_ns - span.start_ns) / _NS, labels)

    def _observe_trouble(self, span: Span) -> None:
        """Count takeovers, lost time and retries; only from runs, not from reported spans."""
        if not span.run:
            return
        for event in span.events:
            count = event.attributes.get(semconv.TAKEOVERS)
            lost_s = event.attributes.get(semconv.LOST)
            if event.name == semconv.TAKEOVER and isinstance(count, int) and count > 0:
                labels = self._consumer_labels(span)
                self._takeovers.add(min(count, _MOST_TOKENS), labels)
                if isinstance(lost_s, int | float):
                    self._lost_duration.record(lost_s, labels)
        retries = span.attributes.get(semconv.RETRIES)
        if isinstance(retries, int) and retries > 0:
            self._retries.add(min(retries, _MOST_TOKENS), self._labels(span, _TOKEN_NAMES))

    def _consumer_labels(self, span: Span) -> dict[str, str]:
        group = span.attributes.get(semconv.CONSUMER_GROUP)
        if not group:
            return {}
        label = consumer_label(str(group))
        bounded = self._bounded(semconv.CONSUMER_GROUP, label, _room_for(span))
        return {semconv.CONSUMER_GROUP: bounded}

    def _labels(self, span: Span, names: tuple[str, ...]) -> dict[str, str]:
        """These attributes as labels, and the kind of failure."""
        attributes: Attributes = span.attributes
        room = _room_for(span)
        labels = {
            name: self._bounded(name, str(attributes[name]), room)
            for name in names
            if name in attributes
        }
        if span.error and semconv.RUN_STATUS not in names:
            labels[semconv.ERROR_TYPE] = self._bounded(semconv.ERROR_TYPE, span.error, room)
        return labels

    def _bounded(self, attribute: str, value: str, room: int = MAX_NAMES) -> str:
        """The value, or ``OTHER`` if there are too many different ones already."""
        known = self._names.setdefault(attribute, set())
        value = value[:_NAME_LENGTH]
        if value not in known:
            if len(known) >= room:
                return OTHER
            known.add(value)
        return value

    def _make_instruments(self, meter: Meter) -> None:
        self._operation_duration = meter.create_histogram(
            semconv.OPERATION_DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=OPERATION_BOUNDS,
        )
        self._token_usage = meter.create_histogram(
            semconv.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDS,
        )
        self._process_duration = meter.create_histogram(
            semconv.PROCESS_DURATION,
            unit="s",
            description="Duration of processing operation.",
            explicit_bucket_boundaries_advisory=MESSAGING_BOUNDS,
        )
        self._queue_duration = meter.create_histogram(
            semconv.QUEUE_DURATION,
            unit="s",
            description="Time that work waited in a queue.",
            explicit_bucket_boundaries_advisory=MESSAGING_BOUNDS,
        )
        self._lost_duration = meter.create_histogram(
            semconv.LOST,
            unit="s",
            description="How long a lost process had a message, up to the takeover.",
            explicit_bucket_boundaries_advisory=MESSAGING_BOUNDS,
        )
        self._takeovers = meter.create_counter(
            semconv.TAKEOVERS,
            unit="{takeover}",
            description="Messages that another process took over from a lost one.",
        )
        self._retries = meter.create_counter(
            semconv.RETRIES,
            unit="{request}",
            description="Requests that the model client repeated.",
        )
        self._runs_ended = meter.create_counter(
            semconv.RUNS_ENDED, unit="{run}", description="Runs that have ended."
        )

    def _make_gauges(self, meter: Meter) -> None:
        from opentelemetry.metrics import Observation

        def by_consumer(
            read: Callable[[Gauges], dict[str, int]],
        ) -> Callable[[CallbackOptions], list[Observation]]:
            def observations(_: CallbackOptions) -> list[Observation]:
                values: Counter[str] = Counter()
                for name, value in read(self._gauges).items() if self._gauges else ():
                    values[self._bounded(semconv.CONSUMER, name)] += value
                return [Observation(it, {semconv.CONSUMER: name}) for name, it in values.items()]

            return observations

        def one(read: Callable[[Gauges], int]) -> Callable[[CallbackOptions], list[Observation]]:
            return lambda _: [] if self._gauges is None else [Observation(read(self._gauges))]

        for name, unit, description, callback in (
            (
                semconv.QUEUE_DEPTH,
                "{message}",
                "Messages that wait in a consumer, or are being worked on.",
                by_consumer(lambda gauges: gauges.queue_depth),
            ),
            (
                semconv.REDELIVERED,
                "{message}",
                "Messages of a consumer that were delivered again and are not done yet.",
                by_consumer(lambda gauges: gauges.redelivered),
            ),
            (
                semconv.PARKED,
                "{message}",
                "Messages that could not be handled.",
                one(lambda gauges: gauges.parked),
            ),
            (
                semconv.ACTIVE_RUNS,
                "{run}",
                "Runs that have begun and not ended.",
                one(lambda gauges: gauges.active_runs),
            ),
            (
                semconv.SPANS_DROPPED,
                "{span}",
                "Spans that were never exported: there was no room for them, or they were refused.",
                one(lambda gauges: gauges.spans_dropped),
            ),
        ):
            meter.create_observable_gauge(name, [callback], unit=unit, description=description)


def _room_for(span: Span) -> int:
    """How many different values an attribute may have before this span's are merged."""
    return MAX_NAMES if span.run else _MAX_REPORTED_NAMES
