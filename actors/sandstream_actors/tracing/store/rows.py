"""Convert facts and spans to rows and back. Pure; rows never hold contents."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sandstream_bus.wire.messages import ErrorInfo, TokenUsage

from sandstream_actors.secrets.patterns import scrub
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.limits import SpanLimits, shortened
from sandstream_actors.tracing.span import Attributes, Span, SpanEvent, SpanLink

Row = tuple[Any, ...]
_BIGGEST: Final = 2**63 - 1
_LABEL_LENGTH: Final = 256
_MOST_COUNTED: Final = 2**40
"""A cap, so that sums of foreign numbers do not overflow."""

_TEXTS: Final = (
    *("run", "trace_id", "root", "parent", "workflow", "group_id", "session", "key"),
    *("agent", "first_agent", "model", "pool", "status"),
)
_TIMES: Final = ("started_ns", "ended_ns")
_USAGE: Final = TokenUsage.__struct_fields__
_COUNTS: Final = ("turns", "tool_calls", "children", "retries", "takeovers")
RUN_COLUMNS: Final = (
    *_TEXTS,
    *_TIMES,
    *_COUNTS,
    *_USAGE,
    *("error_code", "error_message", "last_seq", "truncated"),
)
"""The columns of facts; the table also has ``is_over`` and ``written_ns``."""

SPAN_COLUMNS: Final = (
    *("trace_id", "span_id", "run", "parent_id", "name", "operation", "kind", "agent"),
    *("start_ns", "end_ns", "queued_ns", "error", "error_message", "last_seq", "rest"),
)
"""The columns of a span; the table also has the columns that are summed."""
SPAN_SUMS: Final = (
    *("model", "tool", "input_tokens", "output_tokens", "retries", "attempts", "takeovers"),
)


class _Rest(msgspec.Struct, array_like=True):
    """The fields that are read only with the span itself."""

    attributes: Attributes
    events: list[SpanEvent]
    links: list[SpanLink]
    first_seq: int
    sampled: bool


_encode = msgspec.msgpack.Encoder().encode
_decode_rest = msgspec.msgpack.Decoder(_Rest).decode
_decode_span = msgspec.msgpack.Decoder(Span).decode


def run_row(facts: RunFacts, limits: SpanLimits, now_ns: int) -> Row:
    """In the order of ``RUN_COLUMNS``, then ``is_over`` and ``written_ns``.

    ``ErrorInfo.data`` is omitted, because it may hold contents. An error message may quote
    contents, so secrets are masked.
    """
    error = facts.error
    values = msgspec.structs.asdict(facts)
    usage = msgspec.structs.asdict(facts.usage)
    return (
        *(shortened(values[name], limits.value_length) for name in _TEXTS),
        *(_whole(values[name]) for name in _TIMES),
        *(_count(values[name]) for name in _COUNTS),
        *(_count(usage[name]) for name in _USAGE),
        shortened(error.code, limits.value_length) if error else "",
        shortened(scrub(error.message), limits.value_length) if error else "",
        facts.last_seq,
        facts.truncated,
        facts.is_over,
        now_ns,
    )


def facts_of(row: Row) -> RunFacts:
    """Facts from the columns ``RUN_COLUMNS``."""
    values = dict(zip(RUN_COLUMNS, row, strict=True))
    code, message = values.pop("error_code"), values.pop("error_message")
    usage = TokenUsage(**{name: values.pop(name) for name in _USAGE})
    values["truncated"] = bool(values["truncated"])
    error = ErrorInfo(code=code, message=message) if code or message else None
    return RunFacts(usage=usage, error=error, **values)


def span_row(span: Span) -> Row:
    """The row of a limited span, in the order of ``SPAN_COLUMNS``, then ``SPAN_SUMS``."""
    rest = _Rest(span.attributes, span.events, span.links, span.first_seq, span.sampled)
    attributes = span.attributes
    model = attributes.get(semconv.REQUEST_MODEL) or attributes.get(semconv.RESPONSE_MODEL, "")
    return (
        *(span.trace_id, span.span_id, span.run, span.parent_id, span.name),
        *(span.operation, span.kind, _label(span.agent)),
        *(_whole(span.start_ns), _whole(span.end_ns), _whole(span.queued_ns)),
        *(_label(span.error), span.error_message, span.last_seq, _encode(rest)),
        _label(str(model)),
        _label(str(attributes.get(semconv.TOOL_NAME, ""))),
        _count(attributes.get(semconv.INPUT_TOKENS)),
        _count(attributes.get(semconv.OUTPUT_TOKENS)),
        _count(attributes.get(semconv.RETRIES)),
        max(1, _count(attributes.get(semconv.ATTEMPTS))),
        _count(attributes.get(semconv.TAKEOVERS)),
    )


def span_of(row: Row) -> Span:
    """A span from the columns ``SPAN_COLUMNS``."""
    values = dict(zip(SPAN_COLUMNS, row, strict=True))
    rest = _decode_rest(values.pop("rest"))
    return Span(
        attributes=rest.attributes,
        events=rest.events,
        links=rest.links,
        first_seq=rest.first_seq,
        sampled=rest.sampled,
        **values,
    )


def whole_span(span: Span) -> bytes:
    """The complete span for the exporter, including contents."""
    return _encode(span)


def span_of_outbox(data: bytes) -> Span:
    return _decode_span(data)


def _label(text: str) -> str:
    """Shorten a value that rows are grouped by."""
    return shortened(text, _LABEL_LENGTH)


def _count(value: object) -> int:
    return max(0, min(value, _MOST_COUNTED)) if isinstance(value, int) else 0


def _whole(number: int) -> int:
    """Clamp to the range of a column."""
    return max(-_BIGGEST, min(number, _BIGGEST))
