"""Parking: a message that no worker can handle is set aside with the reason, never looped, and can
be re-driven.
"""

from __future__ import annotations

import base64
import contextlib
from typing import NamedTuple

from sandstream_bus.codec import INLINE_LIMIT_BYTES, decode_parked, encode
from sandstream_bus.connection import Connection
from sandstream_bus.consumer import Delivery
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.direct import Stored, direct_get_many
from sandstream_bus.headers import MSG_ID, SCHEDULE, SCHEDULE_TARGET
from sandstream_bus.messages import Parked
from sandstream_bus.objects import Objects
from sandstream_bus.subjects import Subjects
from sandstream_bus.topology import Topology

_BASE64 = "base64:"
_OWN_HEADERS = ("Nats-Expected", SCHEDULE, SCHEDULE_TARGET, MSG_ID)


class ParkedEntry(NamedTuple):
    """A parked message with its own place: ``id`` is what people type."""

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
        """Keep a copy with the reason. The caller terminates the original afterwards."""
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

    async def list(self) -> list[ParkedEntry]:
        found = await direct_get_many(  # each subject has one message
            self._connection, self._topology.parked, f"{self._subjects.prefix}.parked.>", after=0
        )
        return [entry for entry in map(self._entry, found) if entry is not None]

    async def get(self, entry_id: str) -> ParkedEntry | None:
        return next((entry for entry in await self.list() if entry.id == entry_id), None)

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
        entry_id = stored.subject.removeprefix(f"{self._subjects.prefix}.parked.").replace(".", "/")
        return ParkedEntry(entry_id, decode_parked(stored.data), stored.time, stored.subject)


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
