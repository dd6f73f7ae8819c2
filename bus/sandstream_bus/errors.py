"""The root of the error tree. Every error has a stable ``code``; nobody branches on message text.

SandstreamError
├── BusError
│   ├── BusUnavailable      the server cannot be reached (retryable)
│   │   └── NoResponders    nobody listens on that subject
│   ├── StoreFull           JetStream refuses to store: no space, or a limit is reached (retryable)
│   ├── PermissionDenied    the server forbids a subject
│   ├── PayloadTooLarge     a message is above the limit
│   ├── WrongSequence       a compare-and-set lost: somebody else appended first
│   ├── TopologyError       a stream or consumer cannot be made or does not fit
│   ├── ObjectMissing       a referenced object is not in the store
│   └── EmbeddedServerError the private nats-server cannot be started (see embedded.py)
├── MessageError
│   ├── InvalidSubject      a token cannot be part of a subject
│   ├── UndecodableMessage  the bytes are not the message that the subject promises
│   └── UnknownMessage      the ``type`` is not known to this version
└── Retry                   a handler asks for redelivery after a delay (not a failure)
"""

from __future__ import annotations

from typing import ClassVar


class SandstreamError(Exception):
    """Root of all errors that Sandstream raises by itself."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False


class BusError(SandstreamError):
    code = "bus"


class BusUnavailable(BusError):
    code = "bus.unavailable"
    retryable = True


class NoResponders(BusUnavailable):
    code = "bus.no_responders"


class StoreFull(BusError):
    code = "bus.store_full"
    retryable = True


class PermissionDenied(BusError):
    code = "bus.permission_denied"


class PayloadTooLarge(BusError):
    code = "bus.payload_too_large"

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{what} has {size_bytes} bytes; the limit is {limit_bytes} bytes")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class WrongSequence(BusError):
    code = "bus.wrong_sequence"


class TopologyError(BusError):
    code = "bus.topology"


class ObjectMissing(BusError):
    code = "bus.object_missing"


class MessageError(SandstreamError):
    code = "message"


class InvalidSubject(MessageError):
    code = "message.invalid_subject"


class UndecodableMessage(MessageError):
    code = "message.undecodable"


class UnknownMessage(MessageError):
    code = "message.unknown_type"


class Retry(SandstreamError):
    """Raised by a handler: deliver this message again after ``delay_s``."""

    code = "retry"
    retryable = True

    def __init__(self, reason: str, *, delay_s: float = 1.0, counts: bool = True) -> None:
        super().__init__(reason)
        self.delay_s = delay_s
        self.counts = counts
        """False: waiting for something outside, not a failure; never leads to parking."""
