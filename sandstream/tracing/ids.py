"""Ids of traces and spans: those of the SDK, and those of the W3C that they stand for.

``trace_`` and 32 hex digits are the W3C's trace id. Of a span's 24 digits the first 16 are its id
there. What a user has named otherwise gets a digest in place of its name.
"""

from __future__ import annotations

import hashlib
import re

from sandstream_bus.trace_context import span_id_of

NO_OP = "no-op"
"""The id of whatever is not recorded."""
_TRACE = re.compile(r"trace_([0-9a-f]{32})")
_SPAN = re.compile(r"span_([0-9a-f]{16})[0-9a-f]{8}")
_PADDING = "0" * 8


def w3c_trace_id(trace_id: str) -> str:
    match = _TRACE.fullmatch(trace_id)
    if match is not None and match[1].strip("0"):
        return match[1]
    return hashlib.sha256(f"trace-id:{trace_id}".encode()).hexdigest()[:32]


def w3c_span_id(trace_id: str, span_id: str) -> str:
    """Of a span in the trace ``trace_id``, which is named in either way."""
    match = _SPAN.fullmatch(span_id)
    if match is not None and match[1].strip("0"):
        return match[1]
    return span_id_of(trace_id, span_id)


def sdk_trace_id(trace_id: str) -> str:
    """The SDK's name of a W3C trace."""
    return f"trace_{trace_id}"


def sdk_span_id(span_id: str) -> str:
    """The SDK's name of a W3C span."""
    return f"span_{span_id}{_PADDING}"


def root_span_id(trace_id: str) -> str:
    """The span that stands for a whole trace of the user's; ``trace_id`` is the W3C's."""
    return span_id_of(trace_id, "trace")
