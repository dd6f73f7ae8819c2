"""Message metadata in headers: identity, cause, trace. The body carries only the fact."""

from __future__ import annotations

from typing import Final

MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_SEQUENCE: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
SCHEDULE: Final = "Nats-Schedule"
SCHEDULE_TARGET: Final = "Nats-Schedule-Target"
SCHEDULER: Final = "Nats-Scheduler"
"""Set by the server on a message that a schedule has published: where the schedule was."""
TTL: Final = "Nats-TTL"

STREAM: Final = "Nats-Stream"
SEQUENCE: Final = "Nats-Sequence"
SUBJECT: Final = "Nats-Subject"
TIME: Final = "Nats-Time-Stamp"
NUM_PENDING: Final = "Nats-Num-Pending"
UPTO_SEQUENCE: Final = "Nats-UpTo-Sequence"
STATUS: Final = "Status"
DESCRIPTION: Final = "Description"

CAUSE: Final = "Sandstream-Cause"
"""The stream sequence of the event that led to this message."""
BEFORE: Final = "Sandstream-Before"
"""The sequences of the run's events before a decision, oldest first, up to a useful number."""
OVERLAPPING: Final = "Sandstream-Overlapping"
"""Written to a replicated stream: another event of the run may precede it."""
KEY: Final = "Sandstream-Key"
"""Of a task: the submitter's idempotency key, if it is not the message id."""
OPERATION: Final = "Sandstream-Operation"
"""Where to send the answer to a request that cannot be decoded."""
DELIVERIES: Final = "Sandstream-Deliveries"
"""How often the causing event was delivered before this message was written, if more than once.
Deliveries to a process that was still working on it do not count.
"""
GIVEN_BACK: Final = "Sandstream-Given-Back"
"""How many of these deliveries the writer had itself and gave back, to try again later."""
WORKER: Final = "Sandstream-Worker"
"""The process that wrote the message: ``host:pid:instance``."""
ACTION: Final = "Sandstream-Action"
"""The operation whose outcome a sandbox reply is, for readers that do not have the request."""
TRACEPARENT: Final = "traceparent"
