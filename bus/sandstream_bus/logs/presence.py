"""Presence: a process answers on a subject of its consumer, so that others can check that it lives.

The server notices at once when a process is gone for any reason, and reports no responders.
"""

from __future__ import annotations

import msgspec

from sandstream_bus.errors import BusUnavailable, NoResponders
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.subscription import CoreMessage, Subscription
from sandstream_bus.wire.subjects import Subjects, is_token


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process's answer: the newest event it has seen, and how it lost the log, if it did."""

    highest: int = 0
    lost: str = ""
    lost_at: str = ""


class Presence:
    """Answers for the consumers of this process, and asks about others."""

    def __init__(self, connection: Connection, subjects: Subjects) -> None:
        self._connection = connection
        self._subjects = subjects

    async def announce(self, consumer: str) -> Subscription:
        """Answer for a consumer until the returned subscription is closed."""

        def answer(question: CoreMessage) -> None:
            self._connection.answer(question, msgspec.json.encode(self._seen()))

        subject = self._subjects.alive(consumer)
        return await self._connection.subscribe(subject, answer)

    def _seen(self) -> Seen:
        guard = self._connection.guard
        if guard is None:
            return Seen()
        if guard.change is None:
            return Seen(highest=guard.highest)
        return Seen(highest=guard.highest, lost=guard.change.text, lost_at=guard.change.at)

    async def ask(self, consumer: str) -> Seen | None:
        """The answer of one of the consumer's processes; None: no process serves it.

        In doubt (no connection, a busy process) the consumer counts as served.
        """
        if not is_token(consumer):
            return None  # the name came from a message and is not a valid consumer name
        try:
            reply = await self._connection.request(
                self._subjects.alive(consumer), b"", timeout_s=1.0
            )
        except NoResponders:
            return None
        except (TimeoutError, BusUnavailable):
            return Seen()
        try:
            return msgspec.json.decode(reply.data, type=Seen)
        except msgspec.DecodeError:  # a process of an older version
            return Seen()

    async def is_served(self, consumer: str) -> bool:
        """Does any process serve this consumer?"""
        return await self.ask(consumer) is not None
