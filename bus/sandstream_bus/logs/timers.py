"""Durable timers: messages that JetStream keeps until they are due.

A user who may schedule a message can have it published to any subject of the stream, regardless of
permissions. So timers have their own stream, which only actors write. A due message arrives there
on a ``due`` subject; the relay of an actor publishes it to its target.

A fired timer is a hint, up to a quarter of a second late; the handler checks the run's state again.
Arming a timer with the same owner and name moves it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandstream_bus.errors import UndecodableMessage
from sandstream_bus.logs.codec import Codec
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.memories import Message as MemoryMessage
from sandstream_bus.wire.messages import Message
from sandstream_bus.wire.subjects import Subjects


class Timers:
    """Arms the timers of runs and memories, and relays due messages."""

    def __init__(self, connection: Connection, codec: Codec, subjects: Subjects) -> None:
        self._connection = connection
        self._codec = codec
        self._subjects = subjects

    async def arm(
        self,
        owner: str,
        name: str,
        target: str,
        message: Message | MemoryMessage,
        *,
        delay_s: float,
        msg_id: str,
        headers: dict[str, str] | None = None,
    ) -> datetime:
        """Publish ``message`` to ``target`` after ``delay_s``; armed once per ``msg_id``.

        ``owner``: a run, or the token of a memory scope.
        """
        due = datetime.now(UTC) + timedelta(seconds=delay_s)
        await self._connection.publish(
            self._subjects.timer(owner, name),
            await self._codec.encode(message),
            msg_id=msg_id,
            headers={
                **(headers or {}),
                h.SCHEDULE: f"@at {due.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}",
                h.SCHEDULE_TARGET: self._subjects.due(target),
            },
        )
        return due

    async def send_on(self, delivery: Delivery) -> None:
        """Publish a due message to its target. Safe to repeat: a target gets it once.

        Raises :class:`UndecodableMessage` for a message that does not come from a schedule: a
        server sends its acknowledgements to the reply subject that a publisher chose.
        """
        if h.SCHEDULER not in delivery.headers:
            raise UndecodableMessage("no timer has sent this")
        target = self._subjects.target_of_due(delivery.subject)
        is_memory = self._subjects.split(target).family == "memory"
        # an unreadable message must not be published again under the name of an actor
        await (self._codec.memory_event if is_memory else self._codec.run_event)(delivery.data)
        headers = {
            name: value
            for name, value in delivery.headers.items()
            if not name.startswith("Nats-")  # the schedule's own
        }
        await self._connection.publish(
            target,
            delivery.data,
            msg_id=f"due:{delivery.subject}:{delivery.time_ns}",
            headers=headers,
            budget_s=None,
        )
