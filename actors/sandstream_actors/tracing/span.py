"""A span as it is folded, stored and displayed. Only exporters translate it."""

from __future__ import annotations

from typing import Literal

import msgspec

Value = str | bool | int | float | list[str]
Attributes = dict[str, Value]

Operation = Literal[
    "agent",
    "chat",
    "tool",
    "handoff",
    "guardrail",
    "approval",
    "wait",
    "sandbox",
    "memory",
    "code",
    "send",
    "process",
    "workflow",
    "custom",
]
"""What a span represents: an agent's work, a model call, a tool call, a handoff, a guardrail,
waiting for an approval, waiting for a rate limit, an operation in a sandbox, reading or writing a
conversation, other user code, publishing a message, processing a message; and, reported by
programs: a whole trace (``workflow``), or anything else (``custom``).
"""
Kind = Literal["internal", "client", "producer", "consumer"]


class SpanEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that happened at one moment of a span."""

    name: str
    time_ns: int
    attributes: Attributes = {}


class SpanLink(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Another span that this one follows from without being its child."""

    trace_id: str
    span_id: str
    attributes: Attributes = {}


class Span(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Times are the server's, in nanoseconds since 1970, and never run backwards within a run."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str
    operation: Operation
    kind: Kind = "internal"
    run: str = ""
    agent: str = ""
    start_ns: int
    end_ns: int = 0
    """0 while the span is open."""
    queued_ns: int = 0
    """How long the work had been waiting before ``start_ns``."""
    error: str = ""
    """The kind of failure; empty if there was none."""
    error_message: str = ""
    attributes: Attributes = {}
    contents: Attributes = {}
    """What people, models and tools said; only on request."""
    events: list[SpanEvent] = []
    links: list[SpanLink] = []
    first_seq: int = 0
    last_seq: int = 0
    """The event that ended the span; 0 while open. Compared with the mark of exports."""
    sampled: bool = True

    @property
    def is_open(self) -> bool:
        return self.end_ns == 0

    @property
    def is_message(self) -> bool:
        """Whether it is about the transport of a message rather than work."""
        return self.operation in ("send", "process")
