"""Delivers events about the operations of sandbox sessions to sinks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from sandstream_bus.wire.error_text import error_text

from sandstream.sandbox.errors import OpName, SandboxError
from sandstream.sandbox.session.events import (
    EventPayloadPolicy,
    SandboxSessionEvent,
    SandboxSessionFinishEvent,
    SandboxSessionStartEvent,
)
from sandstream.sandbox.session.sinks import (
    ChainedSink,
    EventSink,
    SandboxSessionBoundSink,
    single_sinks,
)
from sandstream.sandbox.session.utils import shortened_text

if TYPE_CHECKING:
    from sandstream.sandbox.session.base_sandbox_session import BaseSandboxSession

logger = logging.getLogger(__name__)

# Sessions whose operations are not reported: an operation inside another one is part of it, and
# reporting what a sink does with its session would never end.
_untold: ContextVar[frozenset[uuid.UUID]] = ContextVar("sandstream_untold", default=frozenset())


@contextlib.contextmanager
def _not_telling(session_id: uuid.UUID) -> Iterator[None]:
    token = _untold.set(_untold.get() | {session_id})
    try:
        yield
    finally:
        _untold.reset(token)


class Instrumentation:
    """Delivers events to sinks, each with the data that the policies allow.

    The policy of an operation overrides ``payload_policy``; that of a sink overrides both. A sink
    that operations do not wait for still gets the events in order.

    Args:
        sinks: Where events go, in this order; ``None`` for no events.
        payload_policy: The data that events may contain; ``None`` is the default policy.
        payload_policy_by_op: Policies for single operations.

    Example:
        events = Instrumentation(sinks=[JsonlOutboxSink(Path("events.jsonl"))])
        client = UnixLocalSandboxClient(instrumentation=events)
    """

    def __init__(
        self,
        *,
        sinks: Sequence[EventSink] | None = None,
        payload_policy: EventPayloadPolicy | None = None,
        payload_policy_by_op: dict[OpName, EventPayloadPolicy] | None = None,
    ) -> None:
        self._sinks = list(sinks or ())
        self.payload_policy = payload_policy if payload_policy is not None else EventPayloadPolicy()
        self.payload_policy_by_op = dict(payload_policy_by_op or {})
        self._tasks: set[asyncio.Task[None]] = set()
        self._newest_task: dict[int, asyncio.Task[None]] = {}

    @property
    def sinks(self) -> list[EventSink]:
        return list(self._sinks)

    @property
    def is_heard(self) -> bool:
        return bool(self._sinks)

    def add_sink(self, sink: EventSink) -> None:
        """Add a sink. If it needs the session, it gets the sessions created from now on.

        Args:
            sink: The sink. It comes after the others.
        """
        self._sinks.append(sink)

    async def emit(self, event: SandboxSessionEvent) -> None:
        """Deliver an event to all sinks.

        Args:
            event: The event.
        """
        for sink in self._sinks:
            if isinstance(sink, ChainedSink):
                for inner in single_sinks(sink):
                    never_raise = inner.mode == "best_effort"
                    await self._handle(inner, self._allowed(event, inner), never_raise=never_raise)
            else:
                await self._deliver(sink, self._allowed(event, sink))

    async def flush(self) -> None:
        """Wait for running deliveries."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def _policy(self, op: OpName, sink: EventSink) -> EventPayloadPolicy:
        policy = self.payload_policy
        for override in (self.payload_policy_by_op.get(op), sink.payload_policy):
            if override is not None:
                set_fields = {name: getattr(override, name) for name in override.model_fields_set}
                policy = policy.model_copy(update=set_fields)
        return policy

    def _allowed(self, event: SandboxSessionEvent, sink: EventSink) -> SandboxSessionEvent:
        """The sink's own copy, with only the allowed data."""
        policy = self._policy(event.op, sink)
        copy = event.model_copy(deep=True)
        if not policy.include_write_len:
            copy.data.pop("bytes", None)
        if isinstance(copy, SandboxSessionFinishEvent):
            _allow_output(copy, policy)
        return copy

    async def _deliver(self, sink: EventSink, event: SandboxSessionEvent) -> None:
        match sink.mode:
            case "sync":
                await self._handle(sink, event)
            case "async" if sink.on_error == "raise":
                with _not_telling(event.session_id):
                    await sink.handle(event)
            case "async" | "best_effort":
                self._deliver_later(sink, event)
            case _:
                assert_never(sink.mode)

    def _deliver_later(self, sink: EventSink, event: SandboxSessionEvent) -> None:
        before = self._newest_task.get(id(sink))
        task = asyncio.create_task(self._handle_after(before, sink, event))
        self._newest_task[id(sink)] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle_after(
        self, before: asyncio.Task[None] | None, sink: EventSink, event: SandboxSessionEvent
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        await self._handle(sink, event, never_raise=True)

    async def _handle(
        self, sink: EventSink, event: SandboxSessionEvent, *, never_raise: bool = False
    ) -> None:
        try:
            with _not_telling(event.session_id):
                await sink.handle(event)
        except Exception as error:
            sink_name = sink.name or type(sink).__name__
            if sink.on_error == "raise" and not never_raise:
                raise RuntimeError(
                    f"sandbox event sink failed: {sink_name} while handling event {event.event_id}"
                ) from error
            if sink.on_error != "ignore":
                logger.warning(
                    "sandbox event sink %s failed; event %s of session %s is lost to it",
                    sink_name,
                    event.event_id,
                    event.session_id,
                    exc_info=True,
                )


def _allow_output(event: SandboxSessionFinishEvent, policy: EventPayloadPolicy) -> None:
    if not policy.include_exec_output:
        event.stdout = event.stderr = event.stdout_bytes = event.stderr_bytes = None
        return
    if event.stdout_bytes is not None:
        event.stdout = shortened_text(event.stdout_bytes, policy.max_stdout_chars)
    if event.stderr_bytes is not None:
        event.stderr = shortened_text(event.stderr_bytes, policy.max_stderr_chars)


@dataclass(slots=True)
class OperationFinish:
    """An operation's own description of its end, unless it raises."""

    data: dict[str, object]
    """The facts; initially those of the start event."""
    ok: bool = True
    stdout: bytes | None = None
    stderr: bytes | None = None

    def exited(self, exit_code: int, stdout: bytes, stderr: bytes) -> None:
        """A command ended. A failed command does not raise, but is not ok."""
        self.ok = exit_code == 0
        self.stdout, self.stderr = stdout, stderr
        self.data |= {"exit_code": exit_code, "process.exit.code": exit_code}


class SessionEvents:
    """The numbered events of one session."""

    def __init__(self, instrumentation: Instrumentation | None, session_id: uuid.UUID) -> None:
        self._instrumentation = instrumentation
        self._session_id = session_id
        self._seq = 0

    def bind_session(self, session: BaseSandboxSession) -> None:
        """Pass the session to the sinks that need it."""
        if self._instrumentation is None:
            return
        for sink in self._instrumentation.sinks:
            for single in single_sinks(sink):
                if isinstance(single, SandboxSessionBoundSink):
                    single.bind(session)

    def operation(
        self, op: OpName, /, **data: object
    ) -> AbstractAsyncContextManager[OperationFinish]:
        """Report the start of the body with these facts, and its end. Exceptions pass through."""
        instrumentation = self._instrumentation
        if (
            instrumentation is None
            or not instrumentation.is_heard
            or self._session_id in _untold.get()
        ):
            return contextlib.nullcontext(OperationFinish(data))
        return self._told_operation(instrumentation, op, data)

    async def flush(self) -> None:
        """Wait for running deliveries; returns at once in a sink, to avoid a deadlock."""
        if self._instrumentation is not None and self._session_id not in _untold.get():
            await self._instrumentation.flush()

    @contextlib.asynccontextmanager
    async def _told_operation(
        self, instrumentation: Instrumentation, op: OpName, data: dict[str, object]
    ) -> AsyncIterator[OperationFinish]:
        span_id = f"sandbox_op_{uuid.uuid4().hex}"
        start = SandboxSessionStartEvent(
            session_id=self._session_id, seq=self._next_seq(), op=op, span_id=span_id, data=data
        )
        await instrumentation.emit(start)
        finish = OperationFinish(dict(data))
        started_at = time.monotonic()
        try:
            with _not_telling(self._session_id):
                yield finish
        except (Exception, asyncio.CancelledError) as error:
            failed = OperationFinish(data, ok=False)
            await instrumentation.emit(self._finished(start, started_at, failed, error))
            raise
        await instrumentation.emit(self._finished(start, started_at, finish))

    def _finished(
        self,
        start: SandboxSessionStartEvent,
        started_at: float,
        finish: OperationFinish,
        error: BaseException | None = None,
    ) -> SandboxSessionFinishEvent:
        known = error if isinstance(error, SandboxError) else None
        return SandboxSessionFinishEvent(
            session_id=self._session_id,
            seq=self._next_seq(),
            op=start.op,
            span_id=start.span_id,
            data=finish.data,
            ok=finish.ok,
            duration_ms=(time.monotonic() - started_at) * 1000,
            error_code=known.error_code if known else None,
            error_type=type(error).__name__ if error is not None else None,
            error_message=error_text(error) if error is not None else None,
            error_retryable=known.retryable if known else None,
            stdout_bytes=finish.stdout,
            stderr_bytes=finish.stderr,
        )

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq
