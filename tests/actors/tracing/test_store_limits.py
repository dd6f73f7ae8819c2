"""What a span may carry: cut and marked, never more than the limits, the same object if it fits."""

from __future__ import annotations

import logging

import pytest
from actors.tracing.traces_by_hand import span
from sandstream_actors.tracing.limits import SpanLimits, limited, limited_value, shortened
from sandstream_actors.tracing.span import Attributes, SpanEvent, SpanLink


def test_the_defaults_and_the_variables() -> None:
    assert SpanLimits.from_env({}) == SpanLimits(value_length=16_384, attributes=64)
    general = {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "100", "OTEL_ATTRIBUTE_COUNT_LIMIT": "7"}
    found = SpanLimits.from_env(general)
    assert (found.value_length, found.content_length) == (100, 100)
    assert (found.attributes, found.event_attributes, found.link_attributes) == (7, 7, 7)
    special = {
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "50",
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1",
        "OTEL_SPAN_EVENT_COUNT_LIMIT": "2",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "3",
        "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "4",
        "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": "0",
    }
    assert SpanLimits.from_env(general | special) == SpanLimits(
        value_length=50,
        content_length=50,
        attributes=1,
        events=2,
        links=3,
        event_attributes=4,
        link_attributes=0,
    )


def test_a_variable_that_is_no_number_is_told_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert SpanLimits.from_env({"OTEL_SPAN_EVENT_COUNT_LIMIT": "many"}) == SpanLimits()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert vars(record)["OTEL_SPAN_EVENT_COUNT_LIMIT"] == "many"


def test_texts_are_cut_and_marked() -> None:
    assert shortened("short", 5) == "short"
    cut = shortened("ü" * 5000, 200)
    assert len(cut) == 200
    assert cut.endswith("… (shortened from 5000 characters)") and cut.startswith("ü" * 100)
    assert shortened("abcdef", 3) == "abc", "no room for a mark"
    assert shortened("abc", 0) == ""
    assert shortened("half \ud83d pair", 99) == "half ? pair"


def test_values_that_no_protocol_carries() -> None:
    assert limited_value(True, 9) is True
    assert limited_value(2**63 - 1, 9) == 2**63 - 1
    assert limited_value(-(2**100), 9) == "-2^101"
    assert limited_value(10**100_000, 20) == "2^332193"
    assert limited_value(float("inf"), 9) == float("inf")
    assert limited_value(["abc", "abcdef"], 3) == ["abc", "abc"]
    assert limited_value(["a"] * 1000, 3) == ["a"] * 256


def test_a_span_within_the_limits_is_the_same_object() -> None:
    attributes: Attributes = {"a": "b", "names": ["c"]}
    fits = span(
        attributes=attributes,
        contents={"said": "x" * 100_000},
        events=[SpanEvent(name="e", time_ns=1, attributes=attributes)],
        links=[SpanLink(trace_id="t", span_id="s", attributes=attributes)],
    )
    assert limited(fits, SpanLimits()) is fits


def test_each_part_of_a_span_is_limited() -> None:
    many: Attributes = {f"a{n}": "x" * 50 for n in range(10)}
    big = span(
        name="n" * 50,
        error_message="m" * 50,
        attributes=many,
        contents=many,
        events=[SpanEvent(name="e", time_ns=n, attributes=many) for n in range(10)],
        links=[SpanLink(trace_id="t", span_id=str(n), attributes=many) for n in range(10)],
    )
    limits = SpanLimits(
        value_length=9,
        content_length=20,
        attributes=5,
        events=4,
        links=3,
        event_attributes=2,
        link_attributes=1,
    )
    kept = limited(big, limits)
    assert (kept.name, kept.error_message) == ("n" * 9, "m" * 9)
    assert kept.attributes == {f"a{n}": "x" * 9 for n in range(5)}
    assert kept.contents == {f"a{n}": "x" * 20 for n in range(5)}
    assert [it.time_ns for it in kept.events] == [0, 1, 2, 3]
    assert kept.events[0].attributes == {"a0": "x" * 9, "a1": "x" * 9}
    assert [it.span_id for it in kept.links] == ["0", "1", "2"]
    assert kept.links[0].attributes == {"a0": "x" * 9}
    assert len(big.attributes) == 10 and len(big.events) == 10, "the span itself is as it was"
    assert (kept.span_id, kept.start_ns) == (big.span_id, big.start_ns)
