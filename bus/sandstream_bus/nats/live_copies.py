"""Recognizes live messages that are copies of stored events.

The stream publishes a copy of each run event below ``<p>.live.``. Clients without permission can
also cause messages there: a server sends its acknowledgements, and messages that a client reads,
to the reply subject of the request. So a message counts as a copy only if its headers say that it
comes from the log, and from the subject that belongs to the live one.
"""

from __future__ import annotations

from sandstream_bus.nats.fresh import is_number
from sandstream_bus.nats.leader import Stored
from sandstream_bus.nats.subscription import CoreMessage
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.subjects import Subjects


def stored_copy(message: CoreMessage, subjects: Subjects, log: str) -> Stored | None:
    """The stored event that the stream ``log`` sent; None if it is another message."""
    headers = message.headers or {}
    sequence = headers.get(h.SEQUENCE, "")
    subject = headers.get(h.SUBJECT, "")
    if headers.get(h.STREAM) != log or not is_number(sequence):
        return None
    if not subject or message.subject != subjects.live_copy(subject):
        return None
    return Stored(int(sequence), subject, message.data, headers)


def is_unstored(message: CoreMessage) -> bool:
    """Can it be a genuine live message such as a delta? Those have no headers of a server."""
    headers = message.headers or {}
    return not any(name.startswith("Nats-") for name in headers)
