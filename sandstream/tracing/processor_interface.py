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
    """

    @abc.abstractmethod
    def on_trace_start(self, trace: Trace) -> None:
        """A trace has started."""

    @abc.abstractmethod
    def on_trace_end(self, trace: Trace) -> None:
        """A trace has ended."""

    @abc.abstractmethod
    def on_span_start(self, span: Span[Any]) -> None:
        """A span has started."""

    @abc.abstractmethod
    def on_span_end(self, span: Span[Any]) -> None:
        """A span has ended and has all of its data."""

    @abc.abstractmethod
    def shutdown(self) -> None:
        """The program ends: send what is left."""

    @abc.abstractmethod
    def force_flush(self) -> None:
        """Send everything that is buffered, now."""


class TracingExporter(abc.ABC):
    """Sends traces and spans somewhere."""

    @abc.abstractmethod
    def export(self, items: list[Trace | Span[Any]]) -> None:
        """Send these items."""
