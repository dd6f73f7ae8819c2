"""The log of runs: append with compare-and-set, send, read back.

An *append* is a decision: it succeeds only if nobody else wrote to the run since the caller last
looked. A *send* is a message that follows from a decision: any number of times, stored once. Both
survive lost acknowledgements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sandstream_bus.codec import Codec
from sandstream_bus.connection import PUBLISH_BUDGET_S, Connection
from sandstream_bus.direct import Stored, direct_get_last, direct_get_last_each, direct_get_many
from sandstream_bus.errors import (
    BusUnavailable,
    MessageError,
    StoreFull,
    UnknownMessage,
    WrongSequence,
)
from sandstream_bus.messages import Message, RunEvent
from sandstream_bus.publishing import Expect, PubAck
from sandstream_bus.remarks import is_remark, read_event
from sandstream_bus.subjects import RunId, Subjects


class LogEvent(NamedTuple):
    """One event of a run, decoded, with its place in the log."""

    sequence: int
    subject: str
    event: RunEvent
    stored: Stored


class Conflict(WrongSequence):
    """Somebody else appended first. ``news`` is what the caller has not seen yet."""

    def __init__(self, news: Sequence[LogEvent]) -> None:
        super().__init__("the run moved on; fold what is new and decide again")
        self.news = news


class RunLog:
    """All runs of one installation.

    ``budget_s`` is how long a publish is tried; None: for ever, for actors that hold an outcome.
    """

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        subjects: Subjects,
        stream: str,
        *,
        budget_s: float | None = PUBLISH_BUDGET_S,
    ) -> None:
        self._budget_s = budget_s
        self._connection = connection
        self._codec = codec
        self._subjects = subjects
        self._stream = stream

    async def append(
        self,
        run: RunId,
        subject: str,
        message: Message,
        *,
        after: int,
        msg_id: str,
        headers: dict[str, str] | None = None,
    ) -> int:
        """Store a decision if the run's last event is still the one at ``after``; its sequence.

        Raises :class:`Conflict`. A decision that was stored but whose acknowledgement got lost
        counts as stored.
        """
        data = await self._encode(message)
        while True:
            expect = Expect(after, self._subjects.run_all(run))
            try:
                ack = await self._connection.publish(
                    subject,
                    data,
                    msg_id=msg_id,
                    headers=headers,
                    expect=expect,
                    budget_s=self._budget_s,
                )
            except WrongSequence:
                news, last = await self._read_news(run, after)
                for event in news:
                    if event.stored.msg_id == msg_id:
                        return event.sequence
                if news or last == after:
                    raise Conflict(news) from None
                after = last  # only remarks that say nothing: what was decided still fits
            else:
                return ack.seq

    async def send(
        self, subject: str, message: Message, *, msg_id: str, headers: dict[str, str] | None = None
    ) -> PubAck:
        """Store a message that follows from a decision, once per ``msg_id``."""
        data = await self._encode(message)
        return await self._connection.publish(
            subject, data, msg_id=msg_id, headers=headers, budget_s=self._budget_s
        )

    async def create_once(
        self, subject: str, message: Message, *, msg_id: str, headers: dict[str, str] | None = None
    ) -> int | None:
        """Store the first message of a subject; None if somebody else did (another ``msg_id``)."""
        data = await self._encode(message)
        try:
            ack = await self._connection.publish(
                subject,
                data,
                msg_id=msg_id,
                headers=headers,
                expect=Expect(0, subject),
                budget_s=self._budget_s,
            )
        except WrongSequence:
            first = await self.last(subject)
            return first.sequence if first and first.stored.msg_id == msg_id else None
        return ack.seq

    async def _read_news(self, run: RunId, after: int) -> tuple[list[LogEvent], int]:
        """What made a decision fail, and where the log ends. Whoever must not lose what it holds
        waits for it.
        """
        while True:
            try:
                found = await self._stored(self._subjects.run_all(run), after=after)
                last = found[-1].sequence if found else after
                return await self._read_all(found, skip_unknown=False), last
            except BusUnavailable as error:
                if self._budget_s is not None:
                    raise
                self._connection.report_trouble(error)
                await asyncio.sleep(0.5)

    async def _encode(self, message: Message) -> bytes:
        """Big messages are stored as objects on the way: as insistently as the rest."""
        while True:
            try:
                return await self._codec.encode(message)
            except (StoreFull, BusUnavailable) as error:
                if self._budget_s is not None:
                    raise
                self._connection.report_trouble(error)
                await asyncio.sleep(0.5)

    async def read(
        self, run: RunId, *, after: int = 0, skip_unknown: bool = False
    ) -> list[LogEvent]:
        """The run's events after a sequence, in order, in one batched read."""
        return await self.read_subject(
            self._subjects.run_all(run), after=after, skip_unknown=skip_unknown
        )

    async def read_subject(
        self,
        subject: str,
        *,
        after: int = 0,
        limit: int | None = None,
        skip_unknown: bool = False,
    ) -> list[LogEvent]:
        """A subject's events. Observers skip those of a newer version, for others they raise.
        Nobody sees remarks that say nothing.
        """
        found = await self._stored(subject, after=after, limit=limit)
        return await self._read_all(found, skip_unknown=skip_unknown)

    async def _read_all(self, found: Sequence[Stored], *, skip_unknown: bool) -> list[LogEvent]:
        events: list[LogEvent] = []
        for stored in found:
            try:
                events.append(await self.decoded(stored))
            except MessageError as error:
                is_newer = skip_unknown and isinstance(error, UnknownMessage)
                if not is_newer and not is_remark(self._subjects, stored.subject):
                    raise
        return events

    async def _stored(
        self, subject: str, *, after: int = 0, limit: int | None = None
    ) -> Sequence[Stored]:
        return await direct_get_many(
            self._connection, self._stream, subject, after=after, limit=limit
        )

    async def first_subject(self, subject: str) -> str | None:
        """The subject of the first event that matches, without decoding it."""
        found = await self._stored(subject, limit=1)
        return found[0].subject if found else None

    async def last_sequence(self, run: RunId) -> int:
        """The sequence of the run's last event, without decoding any."""
        found = await self._stored(self._subjects.run_all(run))
        return found[-1].sequence if found else 0

    async def last(self, subject: str) -> LogEvent | None:
        """The last event of one subject."""
        stored = await direct_get_last(self._connection, self._stream, subject)
        return None if stored is None else await self.decoded(stored)

    async def last_each(self, subjects: Sequence[str]) -> list[LogEvent]:
        """The last event of each of many subjects, in one read."""
        found = await direct_get_last_each(self._connection, self._stream, subjects)
        return [await self.decoded(stored) for stored in found]

    async def decoded(self, stored: Stored) -> LogEvent:
        event = await read_event(self._codec, self._subjects, stored.subject, stored.data)
        return LogEvent(stored.sequence, stored.subject, event, stored)
