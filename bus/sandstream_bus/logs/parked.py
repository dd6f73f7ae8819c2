"""Parking: a message that no actor can handle is set aside with the reason instead of being
redelivered forever. It can be re-driven.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
from typing import NamedTuple

from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import MessageError
from sandstream_bus.logs.codec import INLINE_LIMIT_BYTES, decode_parked, encode
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last, fresh_many, is_number
from sandstream_bus.nats.objects import Objects
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire.headers import KEY, MSG_ID, SCHEDULE, SCHEDULE_TARGET
from sandstream_bus.wire.messages import Parked
from sandstream_bus.wire.subjects import Subjects, is_token

_BASE64 = "base64:"
_OWN_HEADERS = ("Nats-Expected", SCHEDULE, SCHEDULE_TARGET, MSG_ID, KEY)
"""Headers that are not published again. A task whose own run can still begin is not published at
all (see ``Client.redrive``). In all other cases the run has ended; with its key the task would
count as done, so it becomes another run.
"""


class ParkedEntry(NamedTuple):
    """A parked message with its position; people type the ``id``."""

    id: str
    parked: Parked
    time: str
    subject: str


class ParkingLot:
    """Reads and writes the parked messages of one installation."""

    def __init__(
        self, connection: Connection, subjects: Subjects, topology: Topology, objects: Objects
    ) -> None:
        self._connection = connection
        self._objects = objects
        self._subjects = subjects
        self._topology = topology

    async def park(self, delivery: Delivery, consumer: str, reason: str) -> None:
        """Store a copy with the reason. The caller then terminates the original."""
        is_big = len(delivery.data) > INLINE_LIMIT_BYTES
        parked = Parked(
            subject=delivery.subject,
            sequence=delivery.sequence,
            consumer=consumer,
            reason=reason[:4000],
            deliveries=delivery.deliveries,
            body="" if is_big else _to_text(delivery.data),
            body_digest=await self._objects.put(delivery.data) if is_big else "",
            headers=delivery.headers,
        )
        subject = self._subjects.parked(consumer, delivery.sequence)
        crashpoint("parking.before_park")
        await self._connection.publish(subject, encode(parked), msg_id=f"parked:{subject}")
        crashpoint("parking.after_park")

    async def count(self) -> int:
        """The number of parked messages, without reading them."""
        state = await self._topology.stream_state(self._connection, self._topology.parked)
        return int(state["messages"])

    async def list(self, limit: int | None = None) -> builtins.list[ParkedEntry]:
        """The parked messages, oldest first; ``limit``: only that many of the newest."""
        stream = self._topology.parked
        after = 0
        if limit is not None:
            state = await self._topology.stream_state(self._connection, stream)
            after = await self._before_newest(int(state["last_seq"]), int(state["messages"]), limit)
        found = await fresh_many(  # each subject has one message
            self._connection, stream, self._subjects.all_parked(), after=after
        )
        entries = [entry for entry in map(self._entry, found) if entry is not None]
        return entries if limit is None else entries[-limit:]

    async def _before_newest(self, last: int, messages: int, limit: int) -> int:
        """A sequence after which there are at least ``limit`` messages, but not many more."""
        stretch = limit
        if messages <= limit:
            return 0
        while stretch < last:
            kept = await fresh_many(
                self._connection,
                self._topology.parked,
                self._subjects.all_parked(),
                after=last - stretch,
                limit=limit,
            )
            if len(kept) >= limit:
                return last - stretch
            stretch *= 4  # other messages in between were dropped
        return 0

    async def get(self, entry_id: str) -> ParkedEntry | None:
        """The parked message with that id, or None."""
        consumer, _, sequence = entry_id.rpartition("/")
        if not is_token(consumer) or not is_number(sequence):
            return None
        subject = self._subjects.parked(consumer, int(sequence))
        stored = await fresh_last(self._connection, self._topology.parked, subject)
        return None if stored is None else self._entry(stored)

    async def redrive(self, entry: ParkedEntry) -> int:
        """Publish the original again under a new message id, then drop the parked copy."""
        headers = {
            key: value
            for key, value in entry.parked.headers.items()
            if not key.startswith(_OWN_HEADERS)
        }
        digest = entry.parked.body_digest
        ack = await self._connection.publish(
            entry.parked.subject,
            await self._objects.get(digest) if digest else _from_text(entry.parked.body),
            msg_id=f"redrive:{entry.id}:{entry.time}",
            headers=headers,
        )
        await self.drop(entry)
        return ack.seq

    async def drop(self, entry: ParkedEntry) -> None:
        await self._connection.request(
            f"$JS.API.STREAM.PURGE.{self._topology.parked}", encode({"filter": entry.subject})
        )

    def _entry(self, stored: Stored) -> ParkedEntry | None:
        """None for a message that no worker parked."""
        _, consumer, sequence = self._subjects.split(stored.subject)
        try:
            parked = decode_parked(stored.data)
        except MessageError:
            return None
        return ParkedEntry(f"{consumer}/{sequence}", parked, stored.time, stored.subject)


def _to_text(data: bytes) -> str:
    with contextlib.suppress(UnicodeDecodeError):
        text = data.decode()
        if not text.startswith(_BASE64):
            return text
    return _BASE64 + base64.b64encode(data).decode()


def _from_text(text: str) -> bytes:
    if text.startswith(_BASE64):
        return base64.b64decode(text.removeprefix(_BASE64))
    return text.encode()
