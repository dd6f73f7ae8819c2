"""Destinations of metrics: OTLP, the console, a port that Prometheus scrapes.

This module imports OpenTelemetry; ``instruments.py`` imports it when metrics are enabled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TextIO

from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)

from sandstream_actors.tracing.export.exporter import configured, optional_module, otlp_module
from sandstream_actors.tracing.export.otel_failures import caught_logs, failure_of
from sandstream_actors.tracing.export.settings import ExportSettings, TelemetryError

logger = logging.getLogger(__name__)


class MetricPorts:
    """The metric readers, and the server that has to be closed after them."""

    def __init__(self, settings: ExportSettings, out: TextIO) -> None:
        self.readers: list[MetricReader] = []
        self.prometheus_port = 0
        """The port that serves Prometheus; 0 if none."""
        self._close: Callable[[], None] = lambda: None
        exporters: list[MetricExporter] = []
        if "otlp" in settings.metrics:
            module = otlp_module(settings.metrics_protocol, "metric_exporter")
            exporters.append(ToldOnce(configured(module.OTLPMetricExporter)))
        if "console" in settings.metrics:
            exporters.append(ConsoleMetricExporter(out=out, formatter=_line))
        if "prometheus" in settings.metrics:
            self.readers.append(self._prometheus(settings))
        for exporter in exporters:  # last, because this starts threads
            interval = settings.metric_interval_ms
            self.readers.append(PeriodicExportingMetricReader(exporter, interval))

    def close(self) -> None:
        self._close()

    def _prometheus(self, settings: ExportSettings) -> MetricReader:
        what = "Metrics for Prometheus"
        client = optional_module("prometheus_client", "prometheus", what)
        exporter = optional_module("opentelemetry.exporter.prometheus", "prometheus", what)
        registry = client.CollectorRegistry()
        host, port = settings.prometheus_host, settings.prometheus_port
        try:
            server, thread = client.start_http_server(port, host, registry)
        except OSError as error:
            raise TelemetryError(
                f"Metrics for Prometheus cannot be served on {host}:{port} ({error.strerror}): set "
                "OTEL_EXPORTER_PROMETHEUS_HOST and OTEL_EXPORTER_PROMETHEUS_PORT to an address of "
                "this machine that is free"
            ) from error

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._close = close
        self.prometheus_port = server.server_port
        reader: MetricReader = exporter.PrometheusMetricReader(registry=registry)
        return reader


class ToldOnce(MetricExporter):
    """Logs once when metrics stop arriving, and once when they arrive again. Nothing accumulates
    meanwhile: metrics are sums, so the next export is complete.
    """

    def __init__(self, inner: MetricExporter) -> None:
        super().__init__(inner._preferred_temporality, inner._preferred_aggregation)
        self._inner = inner
        self._is_down = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        with caught_logs() as records:
            result = self._inner.export(metrics_data, timeout_millis, **kwargs)
        is_down = result is not MetricExportResult.SUCCESS
        if is_down and not self._is_down:
            reason = failure_of(records).reason
            logger.warning("metrics cannot be exported", extra={"reason": reason})
        elif self._is_down and not is_down:
            logger.warning("metrics are exported again")
        self._is_down = is_down
        return result

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._inner.shutdown(timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._inner.force_flush(timeout_millis)


def _line(data: MetricsData) -> str:
    return f"{data.to_json(indent=None)}\n"
