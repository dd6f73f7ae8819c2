"""Processors and exporters that a program may add; none is active by default.

``add_trace_processor(BatchTraceProcessor(ConsoleSpanExporter()))`` prints spans on the terminal,
``add_trace_processor(default_processor())`` sends them to OpenAI's trace endpoint.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import Any, Final

from sandstream.exceptions import UserError
from sandstream.tracing.backend_exporter import BackendSpanExporter
from sandstream.tracing.processor_interface import TracingExporter, TracingProcessor
from sandstream.tracing.spans import Span
from sandstream.tracing.traces import Trace

__all__ = [
    "BackendSpanExporter",
    "BatchTraceProcessor",
    "ConsoleSpanExporter",
    "default_exporter",
    "default_processor",
]

logger = logging.getLogger(__name__)
_SHUTDOWN_S: Final = 5.0


class ConsoleSpanExporter(TracingExporter):
    """Prints traces and spans, for use during development."""

    def export(self, items: list[Trace | Span[Any]]) -> None:
        for item in items:
            if isinstance(item, Trace):
                print(f"trace {item.name} ({item.trace_id})")  # noqa: T201  what it is for
            else:
                print(f"span {item.export()}")  # noqa: T201


class BatchTraceProcessor(TracingProcessor):
    """Exports traces when they start and spans when they end, in batches, in its own thread.

    Args:
        exporter: Sends the batches.
        max_queue_size: How many items may wait; more are dropped.
        max_batch_size: How many items one batch has at most.
        schedule_delay: Seconds between two exports.
        export_trigger_ratio: Export earlier when the queue is filled to this fraction.

    Raises:
        UserError: A size is below 1, or the delay is not above 0.

    Example:
        add_trace_processor(BatchTraceProcessor(ConsoleSpanExporter(), schedule_delay=1.0))
    """

    def __init__(
        self,
        exporter: TracingExporter,
        max_queue_size: int = 8192,
        max_batch_size: int = 128,
        schedule_delay: float = 5.0,
        export_trigger_ratio: float = 0.7,
    ) -> None:
        if max_queue_size < 1 or max_batch_size < 1 or schedule_delay <= 0:
            raise UserError(
                "max_queue_size and max_batch_size must be at least 1, schedule_delay above 0"
            )
        self._exporter = exporter
        self._queue: queue.Queue[Trace | Span[Any]] = queue.Queue(maxsize=max_queue_size)
        self._max_batch_size = max_batch_size
        self._schedule_delay = schedule_delay
        self._trigger = max(1, int(max_queue_size * export_trigger_ratio))
        self._wake = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._exporting = threading.Lock()
        self.dropped = 0
        """How many were lost because the queue was full."""

    def on_trace_start(self, trace: Trace) -> None:
        self._put(trace)

    def on_trace_end(self, trace: Trace) -> None:
        pass  # it was sent when it started

    def on_span_start(self, span: Span[Any]) -> None:
        pass  # it is sent when it ends

    def on_span_end(self, span: Span[Any]) -> None:
        self._put(span)

    def _put(self, item: Trace | Span[Any]) -> None:
        self._start_thread()
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # log only at powers of two
                logger.warning("spans are dropped: too many wait", extra={"dropped": self.dropped})
        if self._queue.qsize() >= self._trigger:
            self._wake.set()

    def _start_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        with self._starting:  # after a fork the thread is gone
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="sandstream-traces", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            self._wake.wait(self._schedule_delay)
            self._wake.clear()
            self._export_all()
        self._export_all()

    def force_flush(self) -> None:
        self._export_all()

    def shutdown(self, timeout: float | None = None) -> None:
        """Export what is left.

        Args:
            timeout: How long to wait, in seconds; ``None`` is 5.
        """
        self._is_over = True
        limit_s = _SHUTDOWN_S if timeout is None else timeout
        if isinstance(self._exporter, BackendSpanExporter):
            self._exporter.stop_within(limit_s)
        self._wake.set()
        if self._thread is None or not self._thread.is_alive():
            self._export_all()
            return
        self._thread.join(limit_s)
        if self._thread.is_alive():
            logger.warning("the last spans could not be exported in time")

    def _export_all(self) -> None:
        with self._exporting:
            while batch := self._batch():
                try:
                    self._exporter.export(batch)
                except Exception:  # user code; the thread must continue
                    logger.exception("spans are lost: their exporter failed")

    def _batch(self) -> list[Trace | Span[Any]]:
        batch: list[Trace | Span[Any]] = []
        while len(batch) < self._max_batch_size:
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return batch


_lock = threading.Lock()
_exporter: BackendSpanExporter | None = None
_processor: BatchTraceProcessor | None = None


def default_exporter() -> BackendSpanExporter:
    """The exporter to OpenAI's trace endpoint whose key :func:`set_tracing_export_api_key` sets."""
    global _exporter
    with _lock:
        if _exporter is None:
            _exporter = BackendSpanExporter()
        return _exporter


def default_processor() -> BatchTraceProcessor:
    """A processor for :func:`default_exporter`; nothing is sent unless a program adds it."""
    global _processor
    exporter = default_exporter()
    with _lock:
        if _processor is None:
            _processor = BatchTraceProcessor(exporter)
        return _processor
