"""Message metadata in headers: identity, cause, trace. The body carries only the fact."""

from __future__ import annotations

import os
from typing import Final

MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
SCHEDULE: Final = "Nats-Schedule"
SCHEDULE_TARGET: Final = "Nats-Schedule-Target"
TTL: Final = "Nats-TTL"

SEQUENCE: Final = "Nats-Sequence"
SUBJECT: Final = "Nats-Subject"
TIME: Final = "Nats-Time-Stamp"
NUM_PENDING: Final = "Nats-Num-Pending"
STATUS: Final = "Status"
DESCRIPTION: Final = "Description"

CAUSE: Final = "Sandstream-Cause"
"""The stream sequence of the event that led to this message."""
OPERATION: Final = "Sandstream-Operation"
"""Whom to answer though a request cannot be read."""
TRACEPARENT: Final = "traceparent"


def new_traceparent() -> str:
    """A sampled W3C trace context with random ids."""
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"


def child_traceparent(parent: str) -> str:
    """The same trace, a new span id."""
    version, trace_id, _, flags = parent.split("-", 3)
    return f"{version}-{trace_id}-{os.urandom(8).hex()}-{flags}"


def caused_by(sequence: int, traceparent: str | None) -> dict[str, str]:
    """Headers of a message that follows from the event at ``sequence``."""
    headers = {CAUSE: str(sequence)}
    if traceparent:
        headers[TRACEPARENT] = traceparent
    return headers
