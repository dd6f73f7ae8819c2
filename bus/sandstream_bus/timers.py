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
from sandstream_bus.messages import Message
from sandstream_bus.subjects import RunId, Subjects


class Timers:
    """Arms the timers of runs."""

    def __init__(self, connection: Connection, codec: Codec, subjects: Subjects) -> None:
        self._connection = connection
        self._codec = codec
        self._subjects = subjects

    async def arm(
        self,
        run: RunId,
        name: str,
        target: str,
        message: Message,
        *,
        delay_s: float,
        msg_id: str,
        headers: dict[str, str] | None = None,
    ) -> datetime:
        """Have ``message`` published to ``target`` after ``delay_s``; armed once per ``msg_id``."""
        due = datetime.now(UTC) + timedelta(seconds=delay_s)
        await self._connection.publish(
            self._subjects.timer(run, name),
            await self._codec.encode(message),
            msg_id=msg_id,
            headers={
                **(headers or {}),
                h.SCHEDULE: f"@at {due.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}",
                h.SCHEDULE_TARGET: target,
            },
        )
        return due
