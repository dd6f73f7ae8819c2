"""Export spans with OpenTelemetry's exporters without blocking the event loop.

Those exporters block: on a dead endpoint for OTEL_EXPORTER_OTLP_TIMEOUT, and longer if a name
cannot be resolved. Each export runs in its own daemon thread, which does not delay the end of the
process.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from sandstream_bus.environment import set_variable, variable
from sandstream_bus.wire.error_text import error_text, named_error

from sandstream_actors.tracing.export.otel_failures import Failure, caught_logs, failure_of
from sandstream_actors.tracing.export.otel_spans import make_resource, readable_span
from sandstream_actors.tracing.export.otlp_answers import Answers, NotTaken
from sandstream_actors.tracing.export.settings import (
    ExportSettings,
    OtlpProtocol,
    TelemetryError,
)
from sandstream_actors.tracing.span import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_OTLP_PACKAGES = {"grpc": "grpc", "http/protobuf": "http"}
T = TypeVar("T")


class Exporter:
    """One destination of spans. Its creator closes it."""

    def __init__(self, name: str, sdk: SpanExporter, answers: Answers | None = None) -> None:
        self.name = name
        self.failure: Failure | None = None
        """Why the last export failed; ``None`` if it succeeded."""
        self._sdk = sdk
        self._answers = answers
        self._resource = make_resource()

    async def export(self, spans: list[Span]) -> bool:
        """Whether all spans arrived. If not, ``failure`` says why; some may have arrived."""
        self.failure = await in_daemon_thread(lambda: self._export(spans))
        return self.failure is None

    async def close(self) -> None:
        """Abandon exports in progress."""
        await in_daemon_thread(self._sdk.shutdown)
        if self._answers is not None:
            self._answers.close()

    def _export(self, spans: list[Span]) -> Failure | None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        with caught_logs() as records:
            try:
                result = self._sdk.export([readable_span(span, self._resource) for span in spans])
            except NotTaken as error:
                return Failure(reason=error_text(error))
            except Exception as error:  # noqa: BLE001  any exception of an exporter is its failure
                return Failure(reason=named_error(error), is_for_good=True)
        if result is not SpanExportResult.SUCCESS:
            return failure_of(records)
        rejected, why = self._answers.take_rejected() if self._answers is not None else (0, "")
        return Failure(reason=f"rejected: {why}", rejected=rejected) if rejected else None


def span_exporters(settings: ExportSettings, out: TextIO | None = None) -> list[Exporter]:
    """All exporters that the settings ask for; ``TelemetryError`` if a package is missing."""
    exporters = []
    if "console" in settings.traces:
        exporters.append(Exporter("console", _console(out or sys.stdout)))
    if "otlp" in settings.traces:
        module = otlp_module(settings.traces_protocol, "trace_exporter")
        if settings.traces_protocol == "grpc":
            exporters.append(Exporter("otlp", configured(module.OTLPSpanExporter)))
        else:
            answers = Answers()
            sdk = configured(lambda: module.OTLPSpanExporter(session=answers.session()))
            exporters.append(Exporter("otlp", sdk, answers))
    return exporters


def otlp_module(protocol: OtlpProtocol, module: str) -> Any:
    """A part of OpenTelemetry's exporter for a protocol; these are packages of their own."""
    if protocol == "grpc":  # or its core writes to stderr whenever an endpoint goes away
        set_variable("GRPC_VERBOSITY", variable("GRPC_VERBOSITY", "ERROR"))
    name = f"opentelemetry.exporter.otlp.proto.{_OTLP_PACKAGES[protocol]}.{module}"
    return optional_module(name, "otlp", f"Export by OTLP ({protocol})")


def optional_module(name: str, extra: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TelemetryError(
            f"{what} needs a package that is not installed ({error}): "
            f"pip install 'sandstream[{extra}]'"
        ) from error


def configured(make: Callable[[], T]) -> T:
    """Create an exporter, which reads its variables by itself."""
    try:
        return make()
    except Exception as error:  # they have no common error class for it
        raise TelemetryError(
            f"The OTLP exporter refuses its OTEL_EXPORTER_OTLP_* variables: {error}"
        ) from error


def _console(out: TextIO) -> SpanExporter:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    return ConsoleSpanExporter(out=out, formatter=lambda span: f"{span.to_json(indent=None)}\n")


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Run blocking work beside the event loop. If the caller is cancelled, it continues alone."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # from here on it cannot be cancelled, only abandoned

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised in the caller
            outcome.set_exception(error)

    threading.Thread(target=run, name="sandstream-export", daemon=True).start()
    return await asyncio.wrap_future(outcome)
