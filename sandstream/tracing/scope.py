"""The trace and the span that the running code belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.tracing.spans import Span
    from sandstream.tracing.traces import Trace

_span: ContextVar[Span[Any] | None] = ContextVar("sandstream_span", default=None)
_trace: ContextVar[Trace | None] = ContextVar("sandstream_trace", default=None)


class Scope:
    """The current span and the current trace of a task or thread."""

    @classmethod
    def get_current_span(cls) -> Span[Any] | None:
        return _span.get()

    @classmethod
    def set_current_span(cls, span: Span[Any] | None) -> Token[Span[Any] | None]:
        return _span.set(span)

    @classmethod
    def reset_current_span(cls, token: Token[Span[Any] | None]) -> None:
        _span.reset(token)

    @classmethod
    def get_current_trace(cls) -> Trace | None:
        return _trace.get()

    @classmethod
    def set_current_trace(cls, trace: Trace | None) -> Token[Trace | None]:
        return _trace.set(trace)

    @classmethod
    def reset_current_trace(cls, token: Token[Trace | None]) -> None:
        _trace.reset(token)


@contextlib.contextmanager
def current(trace: Trace | None, span: Span[Any] | None) -> Iterator[None]:
    """Set both within the context; ``None`` hides the outer one."""
    of_trace, of_span = _trace.set(trace), _span.set(span)
    try:
        yield
    finally:
        _span.reset(of_span)
        _trace.reset(of_trace)
