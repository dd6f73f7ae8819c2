"""The root of the error tree. Every error has a stable ``code``; never branch on message text.

SandstreamError
├── BusError
│   ├── BusUnavailable      the server cannot be reached (retryable)
│   │   ├── NoResponders    no process listens on that subject
│   │   └── LogBehind       a stream does not yet have what it has acknowledged
│   ├── StoreFull           JetStream refuses to store: no space, or a limit is reached (retryable)
│   │   └── StoreUnwritable the server answers but does not store: its disk is full or broken
│   ├── LogLost             the log, or this part of it, is gone: emptied or replaced (retryable)
│   ├── PermissionDenied    the server forbids a subject
│   ├── PayloadTooLarge     a message is above the limit
│   ├── WrongSequence       a compare-and-set failed: another process appended first
│   ├── TopologyError       a stream or consumer cannot be created or does not fit
│   │   ├── NotSetUp        streams of the installation are missing
│   │   └── StreamsDiffer   streams are not as this release needs them
│   ├── InvalidRetention    a setting of the installation makes no sense (see retention.py)
│   ├── InvalidRole         there is no such role for a user of the server (see roles.py)
│   ├── ObjectMissing       a referenced object is not in the store
│   ├── ObjectDenied        a referenced object is in a store that this user may not read
│   └── EmbeddedServerError the private nats-server cannot be started (see embedded.py)
├── MessageError
│   ├── InvalidSubject      a token cannot be part of a subject
│   ├── UndecodableMessage  the bytes are not a valid message of their subject
│   │   └── ContentMissing  the object behind the message is gone; also an ObjectMissing
│   └── UnknownMessage      the ``type`` is not known to this version
├── Retry                   a handler asks for redelivery after a delay (not a failure)
└── Drop                    a handler says that a message has no meaning (not a failure)
"""

from __future__ import annotations

from typing import ClassVar


class SandstreamError(Exception):
    """Root of all errors that Sandstream itself raises."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False


class BusError(SandstreamError):
    code = "bus"


class BusUnavailable(BusError):
    code = "bus.unavailable"
    retryable = True


class NoResponders(BusUnavailable):
    code = "bus.no_responders"


class LogBehind(BusUnavailable):
    code = "bus.log_behind"


class StoreFull(BusError):
    code = "bus.store_full"
    retryable = True
    stream: str = ""
    """The stream that refuses, if known."""


class StoreUnwritable(StoreFull):
    """The server answers requests but acknowledges no writes."""

    code = "bus.store_unwritable"


class LogLost(BusError):
    """The log, or its part about a run, is gone: the store was emptied or replaced.

    Retryable, because the operator may restore the store: actors wait, callers get the error.
    """

    code = "bus.log_lost"
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

    def __init__(self, message: str, *, last: int | None = None) -> None:
        super().__init__(message)
        self.last = last
        """The actual last sequence, if the server reports it."""


class TopologyError(BusError):
    code = "bus.topology"

    def __init__(self, text: str, *, err_code: int = 0) -> None:
        super().__init__(text)
        self.err_code = err_code
        """JetStream's own code, if the server refused a request."""


class NotSetUp(TopologyError):
    code = "bus.not_set_up"

    def __init__(self, text: str, missing: list[str]) -> None:
        super().__init__(text)
        self.missing = missing


class StreamsDiffer(TopologyError):
    code = "bus.streams_differ"


class ObjectMissing(BusError):
    code = "bus.object_missing"


class ObjectDenied(BusError):
    """A message is too big for the log, and this user may not read the object that has it."""

    code = "bus.object_denied"


class MessageError(SandstreamError):
    code = "message"


class InvalidSubject(MessageError):
    code = "message.invalid_subject"


class UndecodableMessage(MessageError):
    code = "message.undecodable"


class ContentMissing(UndecodableMessage, ObjectMissing):
    """The message is a claim for an object that is not in the store. Objects are stored before
    their claims, so it will not appear later.
    """

    code = "message.content_missing"


class UnknownMessage(MessageError):
    code = "message.unknown_type"


class Retry(SandstreamError):
    """Raised by a handler: deliver this message again later.

    Args:
        reason: Why, for logs and for the parked message.
        delay_s: How many seconds to wait.
        counts: Whether this is a failed attempt. False: waiting for something outside, which never
            leads to parking.

    Example:
        @actor.on(RunDone)
        async def tell(event: RunDone, received: Received) -> None:
            if not await hook.is_up():
                raise Retry("the web hook is down", delay_s=30, counts=False)
            await hook.post(received.run, event.status)
    """

    code = "retry"
    retryable = True

    def __init__(self, reason: str, *, delay_s: float = 1.0, counts: bool = True) -> None:
        super().__init__(reason)
        self.delay_s = delay_s
        self.counts = counts
        """False: waiting for something outside, not a failure; never leads to parking."""


class Drop(SandstreamError):
    """Raised by a handler: the message is readable but has no meaning here, such as a result for a
    run that does not exist. It is acknowledged, and logged at debug level.
    """

    code = "drop"
