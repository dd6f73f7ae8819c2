"""Durable timers: a message that JetStream delivers later, to a subject that an actor already
consumes.

A fired timer is a hint, up to a quarter of a second late; the handler looks at the run's state
again. Arming the same name of a run again moves the timer.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandstream_bus import headers as h
from sandstream_bus.codec import Codec
from sandstream_bus.connection import Connection
from sandstream_bus.memory_messages import Message as MemoryMessage
from sandstream_bus.messages import Message
from sandstream_bus.subjects import Subjects


class Timers:
    """Arms the timers of runs and memories."""

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
        """Have ``message`` published to ``target`` after ``delay_s``; armed once per ``msg_id``.

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
                h.SCHEDULE_TARGET: target,
            },
        )
        return due
