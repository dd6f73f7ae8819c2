"""A span as it is folded, kept and drawn. Exporters translate it, nobody else needs to."""

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
"""What a span is about: an agent's work, a model call, a tool call, a handoff, a guardrail, a
person's answer that is waited for, a rate limit that is waited for, something done in a sandbox,
reading or writing a conversation, other code of the user's, the publishing of a message, the work
that a message leads to; and what programs report by themselves: a whole trace, anything else.
"""
Kind = Literal["internal", "client", "producer", "consumer"]


class SpanEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that happened at one moment of a span."""

    name: str
    time_ns: int
    attributes: Attributes = {}


class SpanLink(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Another span that this one follows from without being inside of it."""

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
    """0 while it lasts."""
    queued_ns: int = 0
    """How long it had waited for somebody to begin with it, before ``start_ns``."""
    error: str = ""
    """What kind of failure it ended with; empty: none."""
    error_message: str = ""
    attributes: Attributes = {}
    contents: Attributes = {}
    """What people, models and tools have said; there only on request."""
    events: list[SpanEvent] = []
    links: list[SpanLink] = []
    first_seq: int = 0
    last_seq: int = 0
    """The event that ended it; 0 while it lasts. It tells what was exported up to an event."""
    sampled: bool = True

    @property
    def is_open(self) -> bool:
        return self.end_ns == 0

    @property
    def is_message(self) -> bool:
        """Is it about a message on its way, and not about the work?"""
        return self.operation in ("send", "process")
