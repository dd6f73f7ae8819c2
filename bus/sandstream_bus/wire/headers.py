"""Message metadata in headers: identity, cause, trace. The body carries only the fact."""

from __future__ import annotations

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
DELIVERIES: Final = "Sandstream-Deliveries"
"""How often that event was delivered before this message came of it, where that is not once."""
ACTION: Final = "Sandstream-Action"
"""What a reply of a sandbox is the outcome of, for readers that do not have the request."""
TRACEPARENT: Final = "traceparent"


def caused_by(sequence: int, traceparent: str | None, deliveries: int = 1) -> dict[str, str]:
    """Headers of a message that follows from the event at ``sequence``."""
    headers = {CAUSE: str(sequence)}
    if traceparent:
        headers[TRACEPARENT] = traceparent
    if deliveries > 1:
        headers[DELIVERIES] = str(deliveries)
    return headers
