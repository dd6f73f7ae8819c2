"""The log of runs: append with compare-and-set, send, read.

An *append* is a decision: it succeeds only if nothing was written to the run since the caller last
read it. A *send* is a message that follows from a decision: it may be repeated and is stored once.
Both survive lost acknowledgements.

An event may name its *predecessor*, the previous event of its run. Decisions always do, and
:meth:`RunLog.send_after` tries to. A reader whose state ends at the predecessor needs no read at
all, and others follow the predecessors back (:mod:`chain`).

All reads are fresh.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec

from sandstream_bus.errors import (
    BusError,
    BusUnavailable,
    LogLost,
    MessageError,
    ObjectDenied,
    StoreFull,
    UnknownMessage,
    WrongSequence,
)
from sandstream_bus.logs.chain import Chain
from sandstream_bus.logs.codec import Codec
from sandstream_bus.logs.events import Appended
from sandstream_bus.logs.events import Conflict as Conflict
from sandstream_bus.logs.events import LogEvent as LogEvent
from sandstream_bus.logs.events import Sent as Sent
from sandstream_bus.logs.open_runs import OpenRuns, is_over, opened_by
from sandstream_bus.logs.remarks import is_stray, read_event
from sandstream_bus.logs.unread import in_place_of
from sandstream_bus.nats.connection import PUBLISH_BUDGET_S, Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import (
    fresh_last,
    fresh_last_each,
    fresh_many,
    fresh_next,
    is_number,
    many_reaching,
)
from sandstream_bus.nats.publication import Expect, PubAck
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.messages import Message, RunReopened
from sandstream_bus.wire.open_runs import OpenRun
from sandstream_bus.wire.subjects import RunId

logger = logging.getLogger(__name__)

_UNDER_WAY_S = 0.005
_UNDER_WAY_TRIES = 400
_CHAIN_TRIES = 3
"""How often a message that is not a decision is tried with a predecessor."""
_NEAR = 256
"""A part of the log up to this length is read by subject, in one request."""


class RunLog:
    """All runs of one installation.

    ``budget_s`` limits the retries of a publish; None: no limit, for actors that hold a result.
    """

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        topology: Topology,
        open_runs: OpenRuns,
        *,
        budget_s: float | None = PUBLISH_BUDGET_S,
    ) -> None:
        self._open_runs = open_runs
        self._budget_s = budget_s
        self._connection = connection
        self._codec = codec
        self._topology = topology
        self._subjects = topology.subjects
        self.stream = topology.log
        self._chain = Chain(connection, self._subjects, self.stream)

    @property
    def has_proof(self) -> bool:
        """Is it certain that an event directly follows the predecessor it names?

        A replicated stream compares only with what it has applied, and with pending writes that
        expect the same: another pending event of the run may come in between. There, decisions
        still exclude each other, but events in between must be read.
        """
        return not self._topology.is_replicated

    @property
    def epoch(self) -> int:
        """Changes when the log was lost: earlier sequences and states are void."""
        return self._connection.guard.epoch if self._connection.guard is not None else 0

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
        """Store a decision if the run's last event is still the one at ``after``; return its
        sequence.

        An event that opens the run is also entered into the index of open runs. Raises
        :class:`Conflict`. A decision that was stored but whose acknowledgement got lost counts as
        stored.
        """
        entry = opened_by(message)
        if isinstance(message, RunReopened):
            entry = await self._entry_again(run)
        data = await self._encode(message)
        if entry is None:
            return (await self._append(run, subject, data, after, msg_id, headers)).sequence
        breaks = self._connection.breaks
        # sent first on the same connection, but not awaited: a start costs one round trip
        entering = asyncio.ensure_future(
            self._open_runs.enter(run, entry, budget_s=PUBLISH_BUDGET_S)
        )
        await asyncio.sleep(0)
        is_new = False
        try:
            stored = await self._append(run, subject, data, after, msg_id, headers)
            is_new = stored.is_new
            return stored.sequence
        finally:
            await self._entered(run, entering, may_be_over=not is_new, breaks=breaks)

    async def _entered(
        self, run: RunId, entering: asyncio.Future[None], *, may_be_over: bool, breaks: int
    ) -> None:
        """Wait for the index entry. If it fails, only log that: the run has started."""
        try:
            await entering
            # it was open before, or the connection broke and delayed the entry: it may have ended
            if may_be_over or breaks != self._connection.breaks:
                await self.leave_if_over(run)
        except BusError as error:
            extra = {"run_id": run, "why": str(error)}
            logger.error("a run is not in the index of open runs, and lists lack it", extra=extra)

    async def enter_again(self, run: RunId, entry: OpenRun) -> None:
        """Make sure that an open run is in the index: its opener may have died before."""
        await self._open_runs.enter(run, entry, budget_s=self._budget_s)
        await self.leave_if_over(run)

    async def leave_if_over(self, run: RunId) -> None:
        """Remove an entry that was made without knowing whether the run is still open. A process
        that ends the run after this check removes the entry itself.
        """
        try:
            events = await self.read(run, skip_unknown=True)
        except MessageError:  # then it cannot be reopened
            end = await self.observed_last(self._subjects.done(run))
            events = [end] if end is not None else []
        if is_over([it.event for it in events]):
            await self._open_runs.leave(run)

    async def _entry_again(self, run: RunId) -> OpenRun:
        """The entry of a reopened run: its age is that of its start."""
        first = await self.read_subject(self._subjects.start(run, "*"), limit=1, skip_unknown=True)
        if not first:
            return OpenRun(waited=True)
        entry = opened_by(first[0].event) or OpenRun()
        # it may have been waiting for people
        return msgspec.structs.replace(entry, since=first[0].stored.time, waited=True)

    async def _append(
        self,
        run: RunId,
        subject: str,
        data: bytes,
        after: int,
        msg_id: str,
        headers: dict[str, str] | None,
    ) -> Appended:
        patience = _UNDER_WAY_TRIES
        headers = self._marked(headers)
        while True:
            expect = Expect(after, self._subjects.run_all(run))
            try:
                ack = await self._publish(subject, data, msg_id, headers, expect)
            except WrongSequence:
                news, last = await self._read_news(run, after)
                for event in news:
                    if event.stored.msg_id == msg_id:
                        return Appended(event.sequence, is_new=False)
                if news or patience == 0:
                    raise Conflict(news) from None
                if last == after:  # another write is pending, on a replicated stream
                    patience -= 1
                    await asyncio.sleep(_UNDER_WAY_S)
                after = last  # only ignored remarks: the decision still fits
            else:
                return Appended(ack.seq, is_new=not ack.duplicate)

    async def send(
        self, subject: str, message: Message, *, msg_id: str, headers: dict[str, str] | None = None
    ) -> PubAck:
        """Store a message that follows from a decision, once per ``msg_id``."""
        data = await self._encode(message)
        return await self._publish(subject, data, msg_id, headers)

    async def send_after(
        self,
        run: RunId,
        subject: str,
        message: Message,
        *,
        after: int,
        msg_id: str,
        headers: dict[str, str] | None = None,
    ) -> Sent:
        """Like :meth:`send`, but the event names its predecessor if that is cheap.

        ``after`` is a guess. If it is wrong, the server reports the right sequence. If many write
        at once, the event is stored without a predecessor.
        """
        data = await self._encode(message)
        guess = after
        headers = self._marked(headers)
        for _ in range(_CHAIN_TRIES):
            try:
                expect = Expect(guess, self._subjects.run_all(run))
                ack = await self._publish(subject, data, msg_id, headers, expect)
            except WrongSequence as error:
                if error.last is None:  # another write is pending, on a replicated stream
                    await asyncio.sleep(_UNDER_WAY_S)
                else:
                    guess = error.last
            else:
                return Sent(ack.seq, None if ack.duplicate else guess)
        ack = await self._publish(subject, data, msg_id, headers)
        return Sent(ack.seq, None)

    async def _publish(
        self,
        subject: str,
        data: bytes,
        msg_id: str,
        headers: dict[str, str] | None,
        expect: Expect | None = None,
    ) -> PubAck:
        return await self._connection.publish(
            subject, data, msg_id=msg_id, headers=headers, expect=expect, budget_s=self._budget_s
        )

    def _marked(self, headers: dict[str, str] | None) -> dict[str, str] | None:
        """Mark an event on a replicated stream: its named predecessor proves nothing."""
        return headers if self.has_proof else {**(headers or {}), h.OVERLAPPING: "1"}

    async def create_once(
        self, subject: str, message: Message, *, msg_id: str, headers: dict[str, str] | None = None
    ) -> int | None:
        """Store the first message of a subject; None if one with another ``msg_id`` exists."""
        data = await self._encode(message)
        after = 0
        while True:
            try:
                ack = await self._publish(subject, data, msg_id, headers, Expect(after, subject))
            except WrongSequence:
                found = await self._stored(subject, after=after)
                events = await self._read_all(found, skip_unknown=False)
                if events or not found:
                    is_ours = bool(events) and events[0].stored.msg_id == msg_id
                    return events[0].sequence if is_ours else None
                after = found[-1].sequence  # only ignored messages: none of them counts as first
            else:
                return ack.seq

    async def _read_news(self, run: RunId, after: int) -> tuple[list[LogEvent], int]:
        """The events that caused a conflict, and the end of the run's log. An actor, which must not
        lose its decision, waits until the log can be read.
        """
        trouble: BusError | None = None
        while True:
            try:
                found = await self.stored(run, after=after)
                last = found[-1].sequence if found else after
                news = await self._read_all(found, skip_unknown=False)
            except (BusUnavailable, LogLost) as error:
                if self._budget_s is not None:
                    raise
                trouble = error
                self._connection.report_trouble(error)
                await asyncio.sleep(0.5)
            else:
                if trouble is not None:
                    self._connection.troubles.over(trouble.code)
                return news, last

    async def _encode(self, message: Message) -> bytes:
        """Encode; big messages are stored as objects, with the same retries as other writes."""
        trouble: BusError | None = None
        while True:
            try:
                data = await self._codec.encode(message)
            except (StoreFull, BusUnavailable, LogLost) as error:
                if self._budget_s is not None:
                    raise
                trouble = error
                self._connection.report_trouble(error)
                await asyncio.sleep(0.5)
            else:
                if trouble is not None:
                    self._connection.troubles.over(trouble.code)
                return data

    async def read(
        self, run: RunId, *, after: int = 0, skip_unknown: bool = False
    ) -> list[LogEvent]:
        """All events of the run after a sequence, in order.

        A caller that knows where the run began passes that as ``after``: a short part of the log is
        read faster.
        """
        return await self._read_all(await self.stored(run, after=after), skip_unknown=skip_unknown)

    async def read_upto(self, run: RunId, last: Stored, *, after: int) -> list[LogEvent]:
        """The run's events after a sequence, at least up to the known event ``last``."""
        found = await self._between(self._subjects.run_all(run), last, after)
        return await self._read_all(found, skip_unknown=False)

    async def stored(self, run: RunId, *, after: int = 0) -> Sequence[Stored]:
        """Like :meth:`read`, without decoding."""
        subject = self._subjects.run_all(run)
        last = await fresh_last(self._connection, self.stream, subject)
        if last is None or last.sequence <= after:
            return []
        return await self._between(subject, last, after)

    async def _between(self, run_all: str, last: Stored, after: int) -> Sequence[Stored]:
        if self.has_proof and self._chain.predecessor(run_all, last) == after:
            return [last]
        if last.sequence - after > _NEAR:
            if self.has_proof:
                found = await self._chain.back_to(run_all, last, after=after)
                if found is not None:
                    return found
            # For a batch, the server counts all messages after its start, but it finds the next
            # message without counting. So no run that just began makes it count the whole log.
            first = await fresh_next(self._connection, self.stream, run_all, after=after)
            after = first.sequence - 1 if first is not None else after
        return await many_reaching(
            self._connection, self.stream, run_all, after=after, upto=last.sequence
        )

    async def read_reaching(self, run: RunId, *, after: int, upto: int) -> list[LogEvent]:
        """The run's events after a sequence, at least up to the one at ``upto``."""
        found = await many_reaching(
            self._connection, self.stream, self._subjects.run_all(run), after=after, upto=upto
        )
        return await self._read_all(found, skip_unknown=False)

    async def read_subject(
        self,
        subject: str,
        *,
        after: int = 0,
        limit: int | None = None,
        skip_unknown: bool = False,
    ) -> list[LogEvent]:
        """Up to ``limit`` events of a subject. Events of a newer version raise unless
        ``skip_unknown`` is set. Stray messages are left out.
        """
        found = await self._stored(subject, after=after, limit=limit)
        events = await self._read_all(found, skip_unknown=skip_unknown)
        if limit is not None and len(found) >= limit > len(events):  # stray messages used places
            rest = await self._stored(subject, after=found[-1].sequence)
            events += await self._read_all(rest, skip_unknown=skip_unknown)
        return events[:limit]

    async def _read_all(self, found: Sequence[Stored], *, skip_unknown: bool) -> list[LogEvent]:
        events: list[LogEvent] = []
        for stored in found:
            try:
                event = await (self.observed(stored) if skip_unknown else self.decoded(stored))
            except MessageError as error:
                is_newer = skip_unknown and isinstance(error, UnknownMessage)
                if not is_newer and not is_stray(self._subjects, stored.subject, stored.headers):
                    raise
            else:
                if event is not None:
                    events.append(event)
        return events

    async def _stored(
        self, subject: str, *, after: int = 0, limit: int | None = None
    ) -> Sequence[Stored]:
        return await fresh_many(self._connection, self.stream, subject, after=after, limit=limit)

    async def first_subject(self, subject: str) -> str | None:
        """The subject of the first event that matches, without decoding it."""
        found = await self._stored(subject, limit=1)
        return found[0].subject if found else None

    async def has_begun(self, run: RunId, headers: Mapping[str, str] | None = None) -> bool:
        """Does the run have its start event? This costs one small request, however long the log is;
        reading a run that was never started would cost a search.

        ``headers``: those of an event of the run. If it names its predecessor, no request is
        needed:
        the server has verified that there is one.
        """
        if headers is not None and h.MSG_ID in headers:
            before = headers.get(h.EXPECTED_SEQUENCE, "")
            below = headers.get(h.EXPECTED_SUBJECT) == self._subjects.run_all(run)
            if below and is_number(before) and int(before) > 0:
                return True
        subject = self._subjects.start(run, "*")
        return await fresh_last(self._connection, self.stream, subject) is not None

    async def last_sequence(self, run: RunId) -> int:
        """The sequence of the run's last event, without decoding any."""
        last = await fresh_last(self._connection, self.stream, self._subjects.run_all(run))
        return last.sequence if last else 0

    async def end(self) -> int:
        """The last sequence of the whole log."""
        state = await self._topology.stream_state(self._connection, self.stream)
        return int(state["last_seq"])

    async def last(self, subject: str) -> LogEvent | None:
        """The last event of one subject."""
        stored = await fresh_last(self._connection, self.stream, subject)
        return None if stored is None else await self._last_of(stored)

    async def last_each(self, subjects: Sequence[str]) -> list[LogEvent]:
        """The last event of each of many subjects."""
        found = await fresh_last_each(self._connection, self.stream, subjects)
        events = [await self._last_of(stored) for stored in found]
        return sorted(it for it in events if it is not None)

    async def _last_of(self, stored: Stored) -> LogEvent | None:
        """The last message of a subject, or the event before it if that message is stray."""
        try:
            return await self.decoded(stored)
        except MessageError:
            if not is_stray(self._subjects, stored.subject, stored.headers):
                raise
        return await self.last_observed(stored)

    async def last_observed(self, stored: Stored) -> LogEvent | None:
        """Like :meth:`observed`, for the last message of a subject. If it is stray, the event
        before it counts: the stray message may have been sent to hide it.
        """
        found = await self._read_all([stored], skip_unknown=True)
        if not found and is_stray(self._subjects, stored.subject, stored.headers):
            found = await self.read_subject(stored.subject, skip_unknown=True)
        return found[-1] if found else None

    async def observed_last(self, subject: str) -> LogEvent | None:
        """The last event of one subject for an observer: None if it cannot be read."""
        stored = await fresh_last(self._connection, self.stream, subject)
        return None if stored is None else await self.last_observed(stored)

    async def observed(self, stored: Stored) -> LogEvent | None:
        """Like :meth:`decoded`, for observers: None for an event that is too big for this user to
        read. The end of a run gets a substitute.
        """
        try:
            return await self.decoded(stored)
        except ObjectDenied as error:
            event = in_place_of(stored, error)
        return None if event is None else LogEvent(stored.sequence, stored.subject, event, stored)

    async def decoded(self, stored: Stored) -> LogEvent:
        event = await read_event(self._codec, self._subjects, stored.subject, stored.data)
        return LogEvent(stored.sequence, stored.subject, event, stored)
