"""Ids of traces and spans: the SDK's, and the corresponding W3C ids.

``trace_`` and 32 hex digits contain the W3C trace id. The first 16 of a span's 24 digits are its
W3C id. Ids of another form, chosen by a user, are replaced by a digest.
"""

from __future__ import annotations

import hashlib
import re

from sandstream_bus.wire.trace_context import span_id_of

NO_OP = "no-op"
"""The id of traces and spans that are not recorded."""
_TRACE = re.compile(r"trace_([0-9a-f]{32})")
_SPAN = re.compile(r"span_([0-9a-f]{16})[0-9a-f]{8}")
_PADDING = "0" * 8


def w3c_trace_id(trace_id: str) -> str:
    match = _TRACE.fullmatch(trace_id)
    if match is not None and match[1].strip("0"):
        return match[1]
    return hashlib.sha256(f"trace-id:{trace_id}".encode()).hexdigest()[:32]


def w3c_span_id(trace_id: str, span_id: str) -> str:
    """The id of a span in the trace ``trace_id``, which may be an SDK or a W3C id."""
    match = _SPAN.fullmatch(span_id)
    if match is not None and match[1].strip("0"):
        return match[1]
    return span_id_of(trace_id, span_id)


def sdk_trace_id(trace_id: str) -> str:
    """The SDK's id of a W3C trace."""
    return f"trace_{trace_id}"


def sdk_span_id(span_id: str) -> str:
    """The SDK's id of a W3C span."""
    return f"span_{span_id}{_PADDING}"


def root_span_id(trace_id: str) -> str:
    """The span that represents a whole user trace; ``trace_id`` is the W3C id."""
    return span_id_of(trace_id, "trace")
