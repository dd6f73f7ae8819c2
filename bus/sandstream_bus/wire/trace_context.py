"""Trace context: the trace of a message, and span ids that follow from the log alone.

A span's id is derived from its run and its purpose. So every reader of the log computes the same
spans, and a publisher can name the span of a message before it exists. The header is the W3C's
``traceparent``.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16


class TraceContext(NamedTuple):
    """A span of a trace, as its children refer to it."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @classmethod
    def parse(cls, header: str | None) -> TraceContext | None:
        """A parsed ``traceparent``; None if it is missing or invalid."""
        match = _HEADER.fullmatch(header) if header else None
        if match is None:
            return None
        version, trace_id, span_id, flags = match.groups()
        if version == "ff" or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return None
        return cls(trace_id, span_id, bool(int(flags, 16) & 1))


def trace_id_of(run: str) -> str:
    """The trace of a run tree whose caller has no trace; ``run`` is its root."""
    return hashlib.sha256(f"trace:{run}".encode()).hexdigest()[:32]


def span_id_of(owner: str, what: str) -> str:
    """The span of a run (or of a sandbox, a trace) for the purpose ``what``."""
    return hashlib.sha256(f"span:{owner}:{what}".encode()).hexdigest()[:16]


def run_span_id(run: str, reopens: int = 0) -> str:
    return span_id_of(run, f"run{reopens or ''}")


def call_span_id(run: str, call: str, again: str = "") -> str:
    """The span of a call; ``again`` distinguishes requests of the same call."""
    return span_id_of(run, f"call:{call}{again}")


_incoming: ContextVar[str | None] = ContextVar("sandstream_incoming_traceparent", default=None)


@contextlib.contextmanager
def working_on(header: str | None) -> Iterator[None]:
    """Within this context, work is part of the span that a message's header names."""
    token = _incoming.set(header)
    try:
        yield
    finally:
        _incoming.reset(token)


def incoming() -> TraceContext | None:
    """The span that the message being worked on names."""
    return TraceContext.parse(_incoming.get())
