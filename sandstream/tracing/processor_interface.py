"""The interfaces of trace processors and exporters."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.tracing.spans import Span
    from sandstream.tracing.traces import Trace


class TracingProcessor(abc.ABC):
    """Receives every trace and span when it starts and when it ends.

    It is called where that happens, on the event loop or in any thread, so it must be quick and
    must not block. Exceptions are logged and otherwise ignored.

    Example:
        class Durations(TracingProcessor):
            def on_trace_start(self, trace): ...
            def on_trace_end(self, trace): ...
            def on_span_start(self, span): ...
            def on_span_end(self, span):
                print(span.span_data.type, span.started_at, span.ended_at)
            def shutdown(self): ...
            def force_flush(self): ...
    """

    @abc.abstractmethod
    def on_trace_start(self, trace: Trace) -> None:
        """Called when a trace has started.

        Args:
            trace: The trace.
        """

    @abc.abstractmethod
    def on_trace_end(self, trace: Trace) -> None:
        """Called when a trace has ended.

        Args:
            trace: The trace.
        """

    @abc.abstractmethod
    def on_span_start(self, span: Span[Any]) -> None:
        """Called when a span has started.

        Args:
            span: The span; its data may still change.
        """

    @abc.abstractmethod
    def on_span_end(self, span: Span[Any]) -> None:
        """Called when a span has ended.

        Args:
            span: The span, with all of its data.
        """

    @abc.abstractmethod
    def shutdown(self) -> None:
        """Called when the program ends. Send what is left."""

    @abc.abstractmethod
    def force_flush(self) -> None:
        """Send everything that is buffered, now."""


class TracingExporter(abc.ABC):
    r"""Sends traces and spans to a backend; used by ``BatchTraceProcessor``.

    Example:
        class ToFile(TracingExporter):
            def export(self, items: list[Trace | Span[Any]]) -> None:
                with Path("traces.jsonl").open("a") as file:
                    file.writelines(json.dumps(item.export()) + "\n" for item in items)


        add_trace_processor(BatchTraceProcessor(ToFile()))
    """

    @abc.abstractmethod
    def export(self, items: list[Trace | Span[Any]]) -> None:
        """Send traces and spans.

        Args:
            items: The traces and spans.
        """
