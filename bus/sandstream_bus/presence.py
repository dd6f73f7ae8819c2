"""Who is there: a worker answers on a subject of its consumer, so that others can ask if it lives.

The server knows at once when a process is gone, however it went, and says that nobody answers.
"""

from __future__ import annotations

from sandstream_bus.connection import Connection
from sandstream_bus.errors import BusUnavailable, NoResponders
from sandstream_bus.subjects import Subjects
from sandstream_bus.subscription import CoreMessage, Subscription


class Presence:
    """Answers for the workers of this process, and asks for others."""

    def __init__(self, connection: Connection, subjects: Subjects) -> None:
        self._connection = connection
        self._subjects = subjects

    async def announce(self, consumer: str) -> Subscription:
        """Answer for a consumer until the subscription is closed."""

        def answer(question: CoreMessage) -> None:
            self._connection.send_soon(question.reply, b"+OK")

        subject = self._subjects.alive(consumer)
        return await self._connection.subscribe(subject, answer)

    async def is_served(self, consumer: str) -> bool:
        """Does anybody serve this consumer? In doubt (no connection, a busy process): yes."""
        try:
            await self._connection.request(self._subjects.alive(consumer), b"", timeout_s=1.0)
        except NoResponders:
            return False
        except (TimeoutError, BusUnavailable):
            return True
        return True
