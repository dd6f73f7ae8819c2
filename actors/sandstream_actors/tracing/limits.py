"""Limits for spans: pure functions that cut values that are too long or too many.

Models, tools and people put anything into attributes. The limits and their variables are
OpenTelemetry's; where it has no limit, ours keeps one span from filling a store or a backend.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from sandstream_bus.environment import environment

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, Span, SpanEvent, SpanLink, Value

logger = logging.getLogger(__name__)

VALUE_LENGTH = 16 * 1024
CONTENT_LENGTH = 256 * 1024
_LIST_LENGTH = 256
_BIGGEST = 2**63 - 1
T = TypeVar("T")


class SpanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths are in characters."""

    value_length: int = VALUE_LENGTH
    content_length: int = CONTENT_LENGTH
    """The limit of a content attribute; contents exist only on request."""
    attributes: int = 64
    events: int = 128
    links: int = 128
    event_attributes: int = 64
    link_attributes: int = 64

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> SpanLimits:
        """With what OpenTelemetry's variables say; those for spans go before the general ones."""
        env = environment(environ)
        default = cls()
        length = _first(
            env, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"
        )
        count = _first(env, "OTEL_ATTRIBUTE_COUNT_LIMIT")
        inner = default.event_attributes if count is None else count
        return cls(
            value_length=default.value_length if length is None else length,
            content_length=default.content_length if length is None else length,
            attributes=_or(_first(env, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"), inner),
            events=_or(_first(env, "OTEL_SPAN_EVENT_COUNT_LIMIT"), default.events),
            links=_or(_first(env, "OTEL_SPAN_LINK_COUNT_LIMIT"), default.links),
            event_attributes=_or(_first(env, "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT"), inner),
            link_attributes=_or(_first(env, "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"), inner),
        )


def _first(env: Mapping[str, str], *names: str) -> int | None:
    """The first of these variables that is a number. As OpenTelemetry requires, an invalid value is
    logged and ignored.
    """
    for name in names:
        text = env.get(name, "").strip()
        if text.isdecimal():
            return int(text)
        if text:
            logger.warning("ignored a limit that is not a number", extra={name: text})
    return None


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def limited(span: Span, limits: SpanLimits) -> Span:
    """The span within the limits; the same object if nothing was cut."""
    if _surely_fits(span, limits):
        return span
    attributes = limited_attributes(span.attributes, limits.attributes, limits.value_length)
    contents = limited_attributes(span.contents, limits.attributes, limits.content_length)
    events = _same(span.events, [_limited_event(it, limits) for it in span.events[: limits.events]])
    links = _same(span.links, [_limited_link(it, limits) for it in span.links[: limits.links]])
    texts = [span.name, span.run, span.agent, span.error, span.error_message]
    kept = _same(texts, [shortened(text, limits.value_length) for text in texts])
    is_same = (
        attributes is span.attributes
        and contents is span.contents
        and events is span.events
        and links is span.links
        and kept is texts
    )
    if is_same:
        return span
    name, run, agent, error, message = kept
    return msgspec.structs.replace(
        span,
        name=name,
        run=run,
        agent=agent,
        error=error,
        error_message=message,
        attributes=attributes,
        contents=contents,
        events=events,
        links=links,
    )


def _surely_fits(span: Span, limits: SpanLimits) -> bool:
    """A quick check: nearly all spans are small and plain ASCII."""
    room = min(limits.value_length, limits.content_length)
    return (
        max(len(span.attributes), len(span.contents)) <= limits.attributes
        and len(span.events) <= limits.events
        and len(span.links) <= limits.links
        and all(len(it.attributes) <= limits.event_attributes for it in span.events)
        and all(len(it.attributes) <= limits.link_attributes for it in span.links)
        and _are_plain((span.name, span.run, span.agent, span.error, span.error_message), room)
        and _are_small(span.attributes, room)
        and (not span.contents or _are_small(span.contents, room))
        and all(_are_small(it.attributes, room) for it in span.events)
        and all(_are_small(it.attributes, room) for it in span.links)
    )


def _are_small(attributes: Attributes, room: int) -> bool:
    """Also checks the range of numbers and the length of lists."""
    for name, value in attributes.items():
        if name not in semconv.NAMES and not _are_plain((name,), room):
            return False
        if isinstance(value, str):
            if len(value) > room or not value.isascii():
                return False
        elif isinstance(value, list):
            if len(value) > _LIST_LENGTH or not _are_plain(value, room):
                return False
        elif isinstance(value, int) and not -_BIGGEST <= value <= _BIGGEST:
            return False
    return True


def _are_plain(texts: Iterable[str], room: int) -> bool:
    """Non-ASCII text needs a closer look: bytes count, and lone surrogates cannot be sent."""
    return all(len(text) <= room and text.isascii() for text in texts)


def _same(before: list[T], after: list[T]) -> list[T]:
    """The original list if no element has changed."""
    is_same = len(before) == len(after) and all(map(_is, before, after))
    return before if is_same else after


def _is(one: object, other: object) -> bool:
    return one is other


def _limited_event(event: SpanEvent, limits: SpanLimits) -> SpanEvent:
    kept = limited_attributes(event.attributes, limits.event_attributes, limits.value_length)
    if kept is event.attributes:
        return event
    return SpanEvent(name=event.name, time_ns=event.time_ns, attributes=kept)


def _limited_link(link: SpanLink, limits: SpanLimits) -> SpanLink:
    kept = limited_attributes(link.attributes, limits.link_attributes, limits.value_length)
    if kept is link.attributes:
        return link
    return SpanLink(trace_id=link.trace_id, span_id=link.span_id, attributes=kept)


def limited_attributes(attributes: Attributes, count: int, length: int) -> Attributes:
    """The first ``count`` attributes with limited values; the same object if nothing was cut."""
    kept = {
        shortened(key, length): limited_value(value, length)
        for key, value in list(attributes.items())[:count]
    }
    is_same = len(kept) == len(attributes) and all(
        key in attributes and attributes[key] is value for key, value in kept.items()
    )
    return attributes if is_same else kept


def limited_value(value: Value, length: int) -> Value:
    """The value, short enough, and in a range that every store and protocol can carry."""
    if isinstance(value, str):
        return shortened(value, length)
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -_BIGGEST <= value <= _BIGGEST else shortened(_digits(value), length)
    return _same(value, [shortened(one, length) for one in value[:_LIST_LENGTH]])


def _digits(number: int) -> str:
    """The magnitude of a huge number: writing out all digits can take very long."""
    return f"{'-' if number < 0 else ''}2^{number.bit_length()}"


def shortened(text: str, length: int) -> str:
    """The text, cut to ``length`` characters with a note if longer, and always valid UTF-8."""
    if len(text) > length:
        mark = f"… (shortened from {len(text)} characters)"
        room = length - len(mark)
        text = text[:room] + mark if room >= length // 2 else text[:length]
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate from broken JSON
        return text.encode("utf-8", "replace").decode()
    return text
