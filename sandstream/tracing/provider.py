"""Creates traces and spans, and passes them to processors."""

from __future__ import annotations

import abc
import inspect
import logging
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sandstream_bus.environment import variable

from sandstream.exceptions import UserError
from sandstream.tracing.config import TracingConfig
from sandstream.tracing.ids import NO_OP
from sandstream.tracing.parents import w3c_parent_id
from sandstream.tracing.processor_interface import TracingProcessor
from sandstream.tracing.reporter import Reporter
from sandstream.tracing.scope import Scope
from sandstream.tracing.setup import reporter_here
from sandstream.tracing.spans import NoOpSpan, Span, SpanImpl, TSpanData
from sandstream.tracing.traces import NoOpTrace, Trace, TraceImpl

logger = logging.getLogger(__name__)

_OFF_SWITCHES = ("SANDSTREAM_DISABLE_TRACING", "OPENAI_AGENTS_DISABLE_TRACING")


class SynchronousMultiTracingProcessor(TracingProcessor):
    """Calls several processors, one after the other; an exception of one does not affect the
    others.
    """

    def __init__(self) -> None:
        self.processors: tuple[TracingProcessor, ...] = ()
        self._lock = threading.Lock()

    def add_tracing_processor(self, tracing_processor: TracingProcessor) -> None:
        with self._lock:
            self.processors = (*self.processors, _checked(tracing_processor))

    def set_processors(self, processors: list[TracingProcessor]) -> None:
        with self._lock:
            self.processors = tuple(_checked(it) for it in processors)

    def on_trace_start(self, trace: Trace) -> None:
        self._tell("on_trace_start", lambda it: it.on_trace_start(trace))

    def on_trace_end(self, trace: Trace) -> None:
        self._tell("on_trace_end", lambda it: it.on_trace_end(trace))

    def on_span_start(self, span: Span[Any]) -> None:
        self._tell("on_span_start", lambda it: it.on_span_start(span))

    def on_span_end(self, span: Span[Any]) -> None:
        self._tell("on_span_end", lambda it: it.on_span_end(span))

    def force_flush(self) -> None:
        self._tell("force_flush", lambda it: it.force_flush())

    def shutdown(self, timeout: float | None = None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        self._tell("shutdown", lambda it: _shut_down(it, until))

    def _tell(self, what: str, tell: Callable[[TracingProcessor], None]) -> None:
        for processor in self.processors:
            try:
                tell(processor)
            except Exception:  # user code: it must not make the program fail
                logger.exception(
                    "a trace processor raised",
                    extra={"processor": type(processor).__qualname__, "during": what},
                )


def _checked(processor: Any) -> TracingProcessor:
    """Accept anything that has the methods of a processor."""
    needed = ("on_trace_start", "on_trace_end", "on_span_start", "on_span_end")
    missing = [it for it in needed if not callable(getattr(processor, it, None))]
    if missing:
        raise UserError(
            f"a trace processor must be a TracingProcessor; a {type(processor).__name__} has no "
            f"{' and '.join(missing)}"
        )
    checked: TracingProcessor = processor
    return checked


def _shut_down(processor: TracingProcessor, until: float | None) -> None:
    if until is None:
        processor.shutdown()
        return
    left_s = until - time.monotonic()
    if left_s <= 0:
        logger.warning("a trace processor was not shut down: the time limit was reached")
    elif "timeout" in inspect.signature(processor.shutdown).parameters:
        shutdown: Any = processor.shutdown
        shutdown(timeout=left_s)
    else:
        processor.shutdown()


class TraceProvider(abc.ABC):
    """Creates traces and spans."""

    @abc.abstractmethod
    def register_processor(self, processor: TracingProcessor) -> None:
        """Add a processor.

        Args:
            processor: Gets all later traces and spans, after the processors that are there already.
        """

    @abc.abstractmethod
    def set_processors(self, processors: list[TracingProcessor]) -> None:
        """Replace all processors by these.

        Args:
            processors: The new processors, in the order in which they are called.
        """

    @abc.abstractmethod
    def get_current_trace(self) -> Trace | None:
        """The trace of the running code."""

    @abc.abstractmethod
    def get_current_span(self) -> Span[Any] | None:
        """The span of the running code."""

    @abc.abstractmethod
    def set_disabled(self, disabled: bool) -> None:
        """Disable or enable tracing.

        Args:
            disabled: Whether new traces and spans are not recorded.
        """

    @abc.abstractmethod
    def time_iso(self) -> str:
        """The current time, in ISO 8601."""

    @abc.abstractmethod
    def gen_trace_id(self) -> str:
        """A new trace id."""

    @abc.abstractmethod
    def gen_span_id(self) -> str:
        """A new span id."""

    @abc.abstractmethod
    def gen_group_id(self) -> str:
        """A new id for a group of traces."""

    @abc.abstractmethod
    def create_trace(
        self,
        name: str,
        trace_id: str | None = None,
        group_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        disabled: bool = False,
        tracing: TracingConfig | None = None,
    ) -> Trace:
        """A new trace, not yet started.

        Args:
            name: The name of the workflow.
            trace_id: The id of the trace; ``None`` makes a new one.
            group_id: Connects several traces, for example those of one conversation.
            metadata: Additional data of the trace.
            disabled: Do not record the trace and everything in it.
            tracing: Options of the exporter for this trace, such as its API key.
        """

    @abc.abstractmethod
    def create_span(
        self,
        span_data: TSpanData,
        span_id: str | None = None,
        parent: Trace | Span[Any] | None = None,
        disabled: bool = False,
    ) -> Span[TSpanData]:
        """A new span, not yet started.

        Args:
            span_data: What the span is about. It may be changed until the span ends.
            span_id: The id of the span; ``None`` makes a new one.
            parent: The trace or span above it; ``None`` is the current span.
            disabled: Do not record the span.
        """

    def force_flush(self) -> None:
        """Send everything that processors still hold."""
        return

    def shutdown(self) -> None:
        """The program ends."""
        return


class DefaultTraceProvider(TraceProvider):
    """Calls the user's processors, and reports what the program itself made to the bus."""

    def __init__(self) -> None:
        self.reporter = reporter_here()
        self._processors = SynchronousMultiTracingProcessor()
        self._everyone = _Everyone(self._processors, self.reporter)
        self._is_off_by_environment: bool | None = None
        self._is_off: bool | None = None

    def register_processor(self, processor: TracingProcessor) -> None:
        self._processors.add_tracing_processor(processor)

    def set_processors(self, processors: list[TracingProcessor]) -> None:
        self._processors.set_processors(processors)

    @property
    def has_processors(self) -> bool:
        """Whether the user has added processors."""
        return bool(self._processors.processors)

    def get_current_trace(self) -> Trace | None:
        return Scope.get_current_trace()

    def get_current_span(self) -> Span[Any] | None:
        return Scope.get_current_span()

    def set_disabled(self, disabled: bool) -> None:
        self._is_off = disabled

    @property
    def is_disabled(self) -> bool:
        """The program's last setting, otherwise the environment at first use."""
        if self._is_off_by_environment is None:
            values = [variable(name).lower() for name in _OFF_SWITCHES]
            self._is_off_by_environment = any(it in ("1", "true") for it in values)
        return self._is_off_by_environment if self._is_off is None else self._is_off

    def time_iso(self) -> str:
        return datetime.now(UTC).isoformat()

    def gen_trace_id(self) -> str:
        return f"trace_{uuid.uuid4().hex}"

    def gen_span_id(self) -> str:
        return f"span_{uuid.uuid4().hex[:24]}"

    def gen_group_id(self) -> str:
        return f"group_{uuid.uuid4().hex[:24]}"

    def create_trace(
        self,
        name: str,
        trace_id: str | None = None,
        group_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        disabled: bool = False,
        tracing: TracingConfig | None = None,
    ) -> Trace:
        if disabled or self.is_disabled:
            return NoOpTrace()
        api_key = tracing.get("api_key") if tracing else None
        return TraceImpl(name, trace_id, group_id, metadata, self._everyone, api_key)

    def create_span(
        self,
        span_data: TSpanData,
        span_id: str | None = None,
        parent: Trace | Span[Any] | None = None,
        disabled: bool = False,
    ) -> Span[TSpanData]:
        if disabled or self.is_disabled or span_id == NO_OP:
            return NoOpSpan(span_data)
        trace, above = _place(parent)
        if (trace is None and above is None) or _is_no_op(trace) or _is_no_op(above):
            return NoOpSpan(span_data)
        known: Any = above if parent is not None and above is not None else trace
        span = SpanImpl(
            known.trace_id,
            span_id or self.gen_span_id(),
            above.span_id if above is not None else None,
            self._everyone,
            span_data,
            known.tracing_api_key,
            known.trace_metadata if isinstance(known, Span) else getattr(known, "metadata", None),
        )
        span.trace = trace
        span.w3c_parent_id = w3c_parent_id(trace, above)
        return span

    def force_flush(self) -> None:
        self._processors.force_flush()
        self.reporter.force_flush()

    def shutdown(self, timeout: float | None = None) -> None:
        self._processors.shutdown(timeout)
        self.reporter.shutdown()


class _Everyone(TracingProcessor):
    """The user's processors, and our reporter for spans that only this process knows."""

    def __init__(self, processors: SynchronousMultiTracingProcessor, reporter: Reporter) -> None:
        self._processors = processors
        self._reporter = reporter

    def on_trace_start(self, trace: Trace) -> None:
        self._processors.on_trace_start(trace)

    def on_trace_end(self, trace: Trace) -> None:
        self._processors.on_trace_end(trace)
        self._reporter.trace_ended(trace)

    def on_span_start(self, span: Span[Any]) -> None:
        self._processors.on_span_start(span)

    def on_span_end(self, span: Span[Any]) -> None:
        self._processors.on_span_end(span)
        self._reporter.span_ended(span)

    def shutdown(self) -> None:
        self._processors.shutdown()

    def force_flush(self) -> None:
        self._processors.force_flush()


def _place(parent: Any) -> tuple[Trace | None, Span[Any] | None]:
    """The trace of a new span, and the span above it."""
    if parent is None:
        trace = Scope.get_current_trace()
        return (None, None) if trace is None else (trace, Scope.get_current_span())
    if isinstance(parent, Trace):
        return parent, None
    if isinstance(parent, Span):
        return getattr(parent, "trace", None), parent
    raise UserError(f"the parent of a span must be a Trace or a Span, not {type(parent).__name__}")


def _is_no_op(one: Trace | Span[Any] | None) -> bool:
    return one is not None and one.trace_id == NO_OP
