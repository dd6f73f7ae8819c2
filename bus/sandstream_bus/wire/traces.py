"""The messages about traces: spans that users create themselves.

The log already contains everything that a run does. A program publishes only its own measurements,
on ``<p>.trace.<trace>.spans``. Any client in any language can do so.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from sandstream_bus.wire.spec_base import Spec

TraceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
SpanId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of the tagged messages here."""


class ReportedSpan(Spec, frozen=True, kw_only=True):
    """A span that has ended."""

    span_id: SpanId
    parent_id: SpanId | None = None
    name: str
    operation: str = "custom"
    """``workflow`` for a whole trace, ``custom`` for anything in it."""
    start_ns: Nanoseconds
    """Nanoseconds since 1970, by the clock of the program that measured it."""
    end_ns: Nanoseconds
    error: str = ""
    attributes: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    """Attributes that may contain texts of people or models."""


class SpansReported(Message, frozen=True, kw_only=True, tag="spans.reported"):
    trace_id: TraceId
    spans: list[ReportedSpan]
    workflow_name: str = ""
    group_id: str | None = None
    sampled: bool = True


class SpansExported(Message, frozen=True, kw_only=True, tag="spans.exported"):
    """The ended spans of an open run were exported, up to an event of its log."""

    through: int


TraceEvent = SpansReported | SpansExported
