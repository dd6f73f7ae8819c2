"""Reports to the bus the traces and spans that a program makes by itself.

What runs do is in their logs; this is the rest. Spans are sent in batches over the connection of
the runs, once there is one. If too many wait, new ones are dropped, which is counted and logged: no
run waits for the reporter or fails because of it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import logging
import threading
import uuid
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from sandstream_bus.errors import BusError
from sandstream_bus.wire.traces import ReportedSpan, SpansReported

from sandstream.tracing.reported_spans import reported_span, reported_trace
from sandstream.tracing.spans import Span, SpanImpl
from sandstream.tracing.traces import Trace, TraceImpl

if TYPE_CHECKING:
    from sandstream_bus.bus import Bus

    from sandstream.settings import Settings

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 8192
"""How many spans may wait for a bus or for a slow one."""
MAX_BATCH: Final = 128
BATCH_DELAY_S: Final = 0.5
RETRY_DELAY_S: Final = 2.0
SEND_BUDGET_S: Final = 2.0
FLUSH_S: Final = 5.0
_KEPT_TRACES: Final = 256


class _Waiting(NamedTuple):
    """A span to report, with the data about its trace."""

    trace_id: str
    workflow_name: str
    group_id: str | None
    span: ReportedSpan


class _Line:
    """A connection to a bus, with the event loop that it belongs to."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.loop = asyncio.get_running_loop()
        self.news = asyncio.Event()
        self.sending = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None
        self.is_in_trouble = False


class Reporter:
    """The reporter of a process. Thread-safe."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._lines: list[_Line] = []
        self._settings: Settings | None = None
        self._with_runs: deque[str] = deque(maxlen=_KEPT_TRACES)
        """User traces that contain runs: without the remaining spans they would be incomplete."""
        self.dropped = 0
        """How many spans were lost because too many waited."""

    # --- collecting ----------------------------------------------------------------------------

    def trace_ended(self, trace: Trace) -> None:
        if isinstance(trace, TraceImpl) and not trace.is_of_run:
            self._add(trace, reported_trace(trace))

    def span_ended(self, span: Span[Any]) -> None:
        if not isinstance(span, SpanImpl) or span.is_of_run:
            return
        try:
            told = reported_span(span)
        except Exception:  # custom span data may raise anything
            logger.exception("a span cannot be reported", extra={"span": span.span_id})
            return
        self._add(span.trace, told)

    def _add(self, trace: Trace | None, told: tuple[str, ReportedSpan]) -> None:
        trace_id, span = told
        name = trace.name if trace is not None else ""
        one = _Waiting(trace_id, name, getattr(trace, "group_id", None), span)
        with self._lock:
            if len(self._waiting) >= self._max_waiting:
                self.dropped += 1
                if self.dropped & (self.dropped - 1) == 0:  # log only at powers of two
                    logger.warning(
                        "spans of the program are dropped: too many wait to be sent",
                        extra={"dropped": self.dropped},
                    )
                return
            self._waiting.append(one)
            line = self._lines[-1] if self._lines else None
        if line is not None and not line.loop.is_closed():
            line.loop.call_soon_threadsafe(line.news.set)

    # --- the bus -------------------------------------------------------------------------------

    def has_run(self, trace_id: str) -> None:
        """Note that a run was started in this trace."""
        with self._lock:
            self._with_runs.append(trace_id)

    def attach(self, bus: Bus, settings: Settings | None = None) -> None:
        """Send over this bus from now on; call it on the bus's event loop. With ``settings``, the
        connection can be opened again to send what is left when the program ends.
        """
        line = _Line(bus)
        line.task = asyncio.ensure_future(self._keep_sending(line))
        with self._lock:
            self._lines = [*(it for it in self._lines if not it.loop.is_closed()), line]
            has_news = bool(self._waiting)
            self._settings = settings or self._settings
        if has_news:
            line.news.set()

    async def detach(self, bus: Bus) -> None:
        """The bus is about to be closed: send what is left."""
        with self._lock:
            found = [line for line in self._lines if line.bus is bus]
            self._lines = [line for line in self._lines if line.bus is not bus]
        for line in found:
            if line.task is not None and not line.task.done():
                line.task.cancel()
                await self._send_all(line)
            # at the end of an event loop, the receiver of acknowledgements has already ended
            while bus.connection.is_connected and (batch := self._take()):
                for message in _messages(batch):
                    self._send_now(bus, message)

    def _send_now(self, bus: Bus, message: SpansReported) -> None:
        from sandstream_bus.logs.codec import INLINE_LIMIT_BYTES  # late: it imports the whole bus

        data = msgspec.json.encode(message)
        if len(data) <= INLINE_LIMIT_BYTES:
            bus.connection.publish_now(bus.subjects.trace_spans(message.trace_id), [data])
        elif len(message.spans) > 1:
            for span in message.spans:
                self._send_now(bus, msgspec.structs.replace(message, spans=[span]))
        else:
            self.dropped += 1
            logger.warning("a span of the program is dropped: it is too big to be sent at the end")

    async def _keep_sending(self, line: _Line) -> None:
        while True:
            await line.news.wait()
            await asyncio.sleep(BATCH_DELAY_S)
            line.news.clear()
            if not await self._send_all(line):
                await asyncio.sleep(RETRY_DELAY_S)
                line.news.set()

    async def _send_all(self, line: _Line) -> bool:
        """Send what waits; ``False`` if the bus cannot take it now."""
        async with line.sending:
            while batch := self._take():
                try:
                    for message in _messages(batch):
                        await _send(line.bus, message)
                except BusError as error:
                    self._put_back(batch)
                    if not line.is_in_trouble:
                        logger.warning("spans of the program wait", extra={"why": str(error)})
                    line.is_in_trouble = True
                    return False
                except BaseException:
                    self._put_back(batch)
                    raise
                line.is_in_trouble = False
        return True

    def _take(self) -> list[_Waiting]:
        with self._lock:
            count = min(MAX_BATCH, len(self._waiting))
            return [self._waiting.popleft() for _ in range(count)]

    def _put_back(self, batch: list[_Waiting]) -> None:
        """Some may have been sent already; readers recognise duplicates by their ids."""
        with self._lock:
            self._waiting.extendleft(reversed(batch))

    def force_flush(self) -> None:
        """Send what waits. Blocks until done, except on the event loop that has to do it."""
        with self._lock:
            line = self._lines[-1] if self._lines else None
        if line is None or line.loop.is_closed():
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is line.loop:
            line.task, old = asyncio.ensure_future(self._flush_then_keep_sending(line)), line.task
            if old is not None:
                old.cancel()
        elif line.loop.is_running():
            sending = asyncio.run_coroutine_threadsafe(self._send_all(line), line.loop)
            try:
                sending.result(FLUSH_S)
            except concurrent.futures.TimeoutError:
                logger.warning("spans of the program could not be sent in time")
        elif running is None:  # run_sync leaves its loop open between runs
            line.loop.run_until_complete(self._send_all(line))

    def shutdown(self) -> None:
        """The program ends: send spans that came after its runs over a new connection."""
        self.force_flush()
        with self._lock:
            is_needed = any(it.trace_id in self._with_runs for it in self._waiting)
        if self._settings is None or self._lines or not is_needed:
            return
        try:
            asyncio.run(self._send_the_rest(self._settings))
        except Exception as error:  # noqa: BLE001  not everything works in an ending interpreter
            logger.warning("the last spans of the program are lost", extra={"why": str(error)})

    async def _send_the_rest(self, settings: Settings) -> None:
        from sandstream._surface.connection import open_bus

        async with asyncio.timeout(FLUSH_S):
            opened = await open_bus(settings, name="sandstream-spans")
            try:
                await self._send_all(_Line(opened.bus))
            finally:
                await opened.close()

    async def _flush_then_keep_sending(self, line: _Line) -> None:
        await self._send_all(line)
        await self._keep_sending(line)


def _messages(batch: Iterable[_Waiting]) -> list[SpansReported]:
    """One message for each trace."""
    of_trace = sorted(batch, key=lambda it: it.trace_id)
    messages = []
    for trace_id, group in itertools.groupby(of_trace, key=lambda it: it.trace_id):
        members = list(group)
        named = next((it for it in members if it.workflow_name), members[0])
        messages.append(
            SpansReported(
                trace_id=trace_id,
                spans=[it.span for it in members],
                workflow_name=named.workflow_name,
                group_id=named.group_id,
            )
        )
    return messages


async def _send(bus: Bus, message: SpansReported) -> None:
    await bus.connection.publish(
        bus.subjects.trace_spans(message.trace_id),
        await bus.codec.encode(message),
        msg_id=f"{message.trace_id}:spans:{uuid.uuid4().hex}",
        budget_s=SEND_BUDGET_S,
    )
