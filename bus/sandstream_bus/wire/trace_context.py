"""Trace context: which trace a message belongs to, and ids that follow from the log alone.

Nobody makes ids up while working. A span's id follows from the run and from what the span is about,
so that whoever reads the log, once more or in another process, finds the same spans, and whoever
publishes a message can name the span that will be drawn for it. The header is the W3C's
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
    """A span of a trace, as its children need to know it."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @classmethod
    def parse(cls, header: str | None) -> TraceContext | None:
        """What a ``traceparent`` says; None for none, or for one that is not valid."""
        match = _HEADER.fullmatch(header) if header else None
        if match is None:
            return None
        version, trace_id, span_id, flags = match.groups()
        if version == "ff" or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return None
        return cls(trace_id, span_id, bool(int(flags, 16) & 1))


def trace_id_of(run: str) -> str:
    """The trace of a run tree that belongs to no trace of its caller's; ``run`` is its root."""
    return hashlib.sha256(f"trace:{run}".encode()).hexdigest()[:32]


def span_id_of(owner: str, what: str) -> str:
    """The span of a run (or of a sandbox, a trace) that is about ``what``."""
    return hashlib.sha256(f"span:{owner}:{what}".encode()).hexdigest()[:16]


def run_span_id(run: str, reopens: int = 0) -> str:
    return span_id_of(run, f"run{reopens or ''}")


def call_span_id(run: str, call: str, again: str = "") -> str:
    """The span of a call; ``again`` tells requests of the same call apart."""
    return span_id_of(run, f"call:{call}{again}")


_incoming: ContextVar[str | None] = ContextVar("sandstream_incoming_traceparent", default=None)


@contextlib.contextmanager
def working_on(header: str | None) -> Iterator[None]:
    """While this lasts, what is done is part of the span that a message's header names."""
    token = _incoming.set(header)
    try:
        yield
    finally:
        _incoming.reset(token)


def incoming() -> TraceContext | None:
    """The span that the message being worked on names."""
    return TraceContext.parse(_incoming.get())
