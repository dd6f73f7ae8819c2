"""Spans: timed work in a trace."""

from __future__ import annotations

import abc
import logging
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import TypedDict

from sandstream.tracing import util
from sandstream.tracing.ids import NO_OP
from sandstream.tracing.scope import Scope
from sandstream.tracing.span_data import SpanData

if TYPE_CHECKING:
    from sandstream.tracing.processor_interface import TracingProcessor
    from sandstream.tracing.traces import Trace

logger = logging.getLogger(__name__)

TSpanData = TypeVar("TSpanData", bound=SpanData)
_ROUTING_KEYS = ("agent_harness_id",)
"""Metadata of a trace that backends also want on each span."""


class SpanError(TypedDict):
    """An error of a span."""

    message: str
    """What failed."""
    data: dict[str, Any] | None
    """Facts about the failure; ``None`` if there are none."""


class Span(abc.ABC, Generic[TSpanData]):
    """Timed work in a trace. Use it with ``with``, or start and finish it.

    Example:
        with custom_span("load customers") as span:
            customers = load_customers()
            span.span_data.data["count"] = len(customers)
    """

    @property
    @abc.abstractmethod
    def trace_id(self) -> str:
        """The id of its trace."""

    @property
    @abc.abstractmethod
    def span_id(self) -> str:
        """Its own id."""

    @property
    @abc.abstractmethod
    def span_data(self) -> TSpanData:
        """Its data."""

    @abc.abstractmethod
    def start(self, mark_as_current: bool = False) -> None:
        """Start the span.

        Args:
            mark_as_current: Place new spans below it.
        """

    @abc.abstractmethod
    def finish(self, reset_current: bool = False) -> None:
        """End the span.

        Args:
            reset_current: Make the previous span current again.
        """

    @abc.abstractmethod
    def __enter__(self) -> Span[TSpanData]: ...

    @abc.abstractmethod
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None: ...

    @property
    @abc.abstractmethod
    def parent_id(self) -> str | None:
        """The id of its parent span, if any."""

    @abc.abstractmethod
    def set_error(self, error: SpanError) -> None:
        """Set the error of the span.

        Args:
            error: The message and additional data.
        """

    @property
    @abc.abstractmethod
    def error(self) -> SpanError | None:
        """The error, if any."""

    @abc.abstractmethod
    def export(self) -> dict[str, Any] | None:
        """As plain data; ``None`` if it is not recorded."""

    @property
    @abc.abstractmethod
    def started_at(self) -> str | None:
        """In ISO 8601; ``None`` before the start."""

    @property
    @abc.abstractmethod
    def ended_at(self) -> str | None:
        """In ISO 8601; ``None`` before the end."""

    @property
    @abc.abstractmethod
    def tracing_api_key(self) -> str | None:
        """The key with which exporters send it, if the trace has its own."""

    @property
    def trace_metadata(self) -> dict[str, Any] | None:
        """The metadata of its trace."""
        return None


class _Current(Span[TSpanData]):
    """Makes a span the current one."""

    _token: Token[Span[Any] | None] | None = None

    def _become_current(self) -> None:
        self._token = Scope.set_current_span(self)

    def _resign(self, *, is_elsewhere: bool = False) -> None:
        """``is_elsewhere``: possibly in another context, where there is nothing to reset."""
        token, self._token = self._token, None
        if token is None:
            return
        try:
            Scope.reset_current_span(token)
        except ValueError:
            if not is_elsewhere:
                raise

    def __enter__(self) -> Span[TSpanData]:
        self.start(mark_as_current=True)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.finish()
        # an abandoned generator may be closed in another context
        self._resign(is_elsewhere=exc_type is GeneratorExit)


class NoOpSpan(_Current[TSpanData]):
    """A span that is not recorded."""

    def __init__(self, span_data: TSpanData) -> None:
        self._span_data = span_data

    @property
    def trace_id(self) -> str:
        return NO_OP

    @property
    def span_id(self) -> str:
        return NO_OP

    @property
    def span_data(self) -> TSpanData:
        return self._span_data

    @property
    def parent_id(self) -> str | None:
        return None

    def start(self, mark_as_current: bool = False) -> None:
        if mark_as_current:
            self._become_current()

    def finish(self, reset_current: bool = False) -> None:
        if reset_current:
            self._resign()

    def set_error(self, error: SpanError) -> None:
        pass

    @property
    def error(self) -> SpanError | None:
        return None

    def export(self) -> dict[str, Any] | None:
        return None

    @property
    def started_at(self) -> str | None:
        return None

    @property
    def ended_at(self) -> str | None:
        return None

    @property
    def tracing_api_key(self) -> str | None:
        return None


class SpanImpl(_Current[TSpanData]):
    """A span that processors receive."""

    def __init__(
        self,
        trace_id: str,
        span_id: str | None,
        parent_id: str | None,
        processor: TracingProcessor,
        span_data: TSpanData,
        tracing_api_key: str | None,
        trace_metadata: dict[str, Any] | None = None,
    ) -> None:
        self._trace_id = trace_id
        self._span_id = span_id or util.gen_span_id()
        self._parent_id = parent_id
        self._processor = processor
        self._span_data = span_data
        self._tracing_api_key = tracing_api_key
        self._trace_metadata = trace_metadata
        self._started_at: str | None = None
        self._ended_at: str | None = None
        self._error: SpanError | None = None
        self.trace: Trace | None = None
        """The trace itself, if known."""
        self.is_of_run = False
        """Whether it comes from a run's log, so that it is not reported again."""
        self.w3c_parent_id: str | None = None
        """The W3C id of the parent span, as the bus knows it."""

    @property
    def trace_id(self) -> str:
        return self._trace_id

    @property
    def span_id(self) -> str:
        return self._span_id

    @property
    def span_data(self) -> TSpanData:
        return self._span_data

    @property
    def parent_id(self) -> str | None:
        return self._parent_id

    def start(self, mark_as_current: bool = False) -> None:
        if self._started_at is not None:
            logger.warning("the span has already started", extra={"span_id": self._span_id})
            return
        self.start_at(util.time_iso())
        if mark_as_current:
            self._become_current()

    def start_at(self, time: str) -> None:
        """Start at a given time."""
        self._started_at = time
        self._processor.on_span_start(self)

    def finish(self, reset_current: bool = False) -> None:
        if self._ended_at is not None:
            logger.warning("the span has already finished", extra={"span_id": self._span_id})
            return
        self.finish_at(util.time_iso())
        if reset_current:
            self._resign()

    def finish_at(self, time: str) -> None:
        """End at a given time."""
        self._ended_at = time
        self._processor.on_span_end(self)

    def set_error(self, error: SpanError) -> None:
        self._error = error

    @property
    def error(self) -> SpanError | None:
        return self._error

    @property
    def started_at(self) -> str | None:
        return self._started_at

    @property
    def ended_at(self) -> str | None:
        return self._ended_at

    @property
    def tracing_api_key(self) -> str | None:
        return self._tracing_api_key

    @property
    def trace_metadata(self) -> dict[str, Any] | None:
        return self._trace_metadata

    def export(self) -> dict[str, Any] | None:
        exported: dict[str, Any] = {
            "object": "trace.span",
            "id": self._span_id,
            "trace_id": self._trace_id,
            "parent_id": self._parent_id,
            "started_at": self._started_at,
            "ended_at": self._ended_at,
            "span_data": self._span_data.export(),
            "error": self._error,
        }
        routing = self._trace_metadata or {}
        own = getattr(self._span_data, "metadata", None)
        metadata = {
            **(own if isinstance(own, dict) else {}),
            **{key: routing[key] for key in _ROUTING_KEYS if key in routing},
        }
        return {**exported, "metadata": metadata} if metadata else exported
