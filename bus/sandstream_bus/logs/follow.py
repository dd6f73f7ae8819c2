"""Follows runs: replay from any sequence, then live, without gaps or duplicates. Creates no
consumer.

First a core subscription to the republished events, then a batched read; both are joined by
sequence. When messages may be missing (after a reconnect or a long silence) the log is read again.
Live messages that do not come from the log are ignored (see :mod:`live_copies`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from sandstream_bus.errors import LogLost, MessageError, ObjectMissing, UnknownMessage
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.logs.remarks import is_stray
from sandstream_bus.logs.runs import LogEvent, RunLog
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.leader import Stored
from sandstream_bus.nats.live_copies import is_unstored, stored_copy
from sandstream_bus.wire.messages import LiveEvent, RunDone, RunReopened
from sandstream_bus.wire.subjects import RunId, Subjects

if TYPE_CHECKING:
    from nats.aio.msg import Msg

logger = logging.getLogger(__name__)

Begin = Callable[[], Awaitable[Sequence[LogEvent]]]
"""Starts a run; returns its events so far."""

_SILENCE_S = 10.0
_LONGEST_SILENCE_S = 60.0
"""The log is read again after a silence, in case a live message got lost; the interval grows for
a run that is silent for long.
"""
_decode_live = msgspec.json.Decoder(LiveEvent).decode


class Follower:
    """Follows runs; holds no state between calls."""

    def __init__(self, connection: Connection, log: RunLog, subjects: Subjects) -> None:
        self._connection = connection
        self._log = log
        self._subjects = subjects

    async def run(
        self,
        run: RunId,
        *,
        after: int = 0,
        deltas: bool = False,
        begin: Begin | None = None,
        on_listening: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncGenerator[LogEvent | LiveEvent, None]:
        """The run's events after a sequence, up to and including its ``done``.

        With ``deltas`` also the model's stream events, which are not stored: only those from now
        on. ``begin`` starts the run after the subscription, so that no delta is missed. If another
        process starts the run, ``on_listening`` is called to tell it once the server knows the
        subscription.
        """
        async with self._subscribed(self._subjects.live_all(run), settle=begin is None) as inbox:
            last = after
            epoch = self._log.epoch
            # events stored from here on also arrive live, in order with the deltas
            upto = await self._log.end() if deltas and begin is None else None
            if on_listening is not None:
                await on_listening()
            # events stored before the subscription must be read
            news: Sequence[LogEvent] | None = await begin() if begin else None
            while True:
                if news is None:
                    if epoch != self._log.epoch:
                        epoch, last = self._log.epoch, min(last, await self._end_of(run))
                    news = await self._log.read(run, after=last, skip_unknown=True)
                    if upto is not None:
                        news = [it for it in news if it.sequence <= upto]
                        upto = None
                ended = False
                for event in news:
                    last = event.sequence
                    yield event
                    ended = type(event.event) is RunDone or (
                        ended and type(event.event) is not RunReopened
                    )
                if ended:
                    return
                news = ()
                message = await inbox.next()
                if message is None:
                    news = None
                    continue
                stored = self._stored(message)
                if stored is None:
                    delta = self._delta(run, message) if deltas else None
                    if delta is not None:
                        yield delta
                    continue
                if stored.sequence <= last:
                    continue
                live = await self._decoded(stored)
                if live is None:
                    continue
                last = live.sequence
                yield live
                if type(live.event) is RunDone:
                    return

    async def done(self, run: RunId, *, begin: Begin | None = None) -> RunDone:
        """Wait for the end of the run: one subscription, one read. ``begin`` as in :meth:`run`."""
        subject = self._subjects.done(run)
        listening = self._subscribed(self._subjects.live("done", run), settle=begin is None)
        async with listening as inbox:
            ended: RunDone | None = None
            for known in await begin() if begin else ():
                if isinstance(known.event, RunDone):
                    ended = known.event
                elif isinstance(known.event, RunReopened):
                    ended = None
            if ended is not None:
                return ended
            is_known = begin is not None
            epoch = self._log.epoch
            while True:
                if epoch != self._log.epoch:
                    epoch = self._log.epoch
                    await self._end_of(run)
                found = None if is_known else await self._log.observed_last(subject)
                is_known = False
                if found is not None and isinstance(found.event, RunDone):
                    later = await self._log.read(run, after=found.sequence, skip_unknown=True)
                    if not any(isinstance(it.event, RunReopened) for it in later):
                        return found.event
                message = await inbox.next()
                is_known = message is not None  # otherwise read the log
                stored = None if message is None else self._stored(message)
                live = None if stored is None else await self._decoded(stored)
                if live is not None and isinstance(live.event, RunDone):
                    return live.event

    async def rest(
        self, run: RunId, *, begin: Begin, is_at_rest: Callable[[Sequence[LogEvent]], bool]
    ) -> int:
        """Wait until the run ends or waits for people; return the sequence of its first event, or 0
        if unknown. ``begin`` as in :meth:`run`; its result may show that the run already rests. The
        caller then reads the log, because the run may have continued.
        """
        subjects = [self._subjects.done(run), self._subjects.waiting(run)]
        live = [self._subjects.live(kind, run) for kind in ("done", "waiting")]
        async with self._subscribed(*live, settle=False) as inbox:
            known = await begin()
            first = known[0].sequence if known else 0
            if is_at_rest(known):
                return first
            last = known[-1].sequence if known else 0
            epoch = self._log.epoch
            while True:
                message = await inbox.next()
                if epoch != self._log.epoch:
                    epoch, last = self._log.epoch, min(last, await self._end_of(run))
                if message is not None:
                    stored = self._stored(message)
                    if stored is not None and stored.sequence > last:
                        return first
                elif any(it.sequence > last for it in await self._log.last_each(subjects)):
                    return first

    async def _end_of(self, run: RunId) -> int:
        """The run's last sequence in a log that was replaced or set back.

        Raises :class:`LogLost` if the run is not in it.
        """
        last = await self._log.last_sequence(run)
        if last == 0:
            change = self._connection.guard.change if self._connection.guard else None
            why = change.text if change else "the log was lost"
            raise LogLost(f"run {run} is no longer in the log: {why}")
        return last

    async def all(self) -> AsyncIterator[LogEvent | None]:
        """Every stored event of all runs from now on; None if events may be missing."""
        async with self._subscribed(self._subjects.live_all()) as inbox:
            while True:
                message = await inbox.next()
                if message is None:
                    yield None
                elif (stored := self._stored(message)) is not None:
                    try:
                        event = await self._decoded(stored)
                    except (MessageError, ObjectMissing) as error:  # only this run's problem
                        logger.warning(
                            "skipped an event",
                            extra={"subject": message.subject, "why": str(error)},
                        )
                        continue
                    if event is not None:
                        yield event

    def _stored(self, message: Msg) -> Stored | None:
        return stored_copy(message, self._subjects, self._log.stream)

    def _delta(self, run: RunId, message: Msg) -> LiveEvent | None:
        """A stream event of the model; None for any other message sent there."""
        if message.subject != self._subjects.delta(run) or not is_unstored(message):
            return None
        try:
            return _decode_live(message.data)
        except NOT_JSON:
            return None

    async def _decoded(self, stored: Stored) -> LogEvent | None:
        try:
            return await self._log.observed(stored)
        except MessageError as error:
            is_newer = isinstance(error, UnknownMessage)  # written by a newer version
            if not is_newer and not is_stray(self._subjects, stored.subject, stored.headers):
                raise
            logger.warning("skipped an event", extra={"subject": stored.subject, "why": str(error)})
            return None

    @asynccontextmanager
    async def _subscribed(self, *subjects: str, settle: bool = True) -> AsyncIterator[_Inbox]:
        """Subscribe. ``settle``: wait until the server knows the subscription; not needed before
        our own publish, which follows it on the same connection.
        """
        inbox = _Inbox()
        breaks = self._connection.breaks

        def receive(message: Msg) -> None:
            nonlocal breaks
            if breaks != self._connection.breaks:
                # arrived on a new connection, before the reconnect callbacks: first read what was
                # written during the break
                breaks = self._connection.breaks
                inbox.put_nowait(None)
            inbox.put_nowait(message)

        subscriptions = [await self._connection.subscribe(it, receive) for it in subjects]
        # the server must know the subscription before the log is read, or an event could be missed
        if settle:
            await self._connection.flush()

        async def doubt() -> None:
            inbox.put_nowait(None)

        forget = self._connection.on_reconnect(doubt)
        try:
            yield inbox
        finally:
            forget()
            for subscription in subscriptions:
                await subscription.close()


class _Inbox(asyncio.Queue["Msg | None"]):
    """Live messages; None means that the log must be read again."""

    def __init__(self) -> None:
        super().__init__()
        self._silence_s = _SILENCE_S

    async def next(self) -> Msg | None:
        """The next message; None when it is time to read the log again."""
        if not self.empty():
            return self.get_nowait()
        try:
            async with asyncio.timeout(self._silence_s):
                message = await self.get()
        except TimeoutError:
            self._silence_s = min(2 * self._silence_s, _LONGEST_SILENCE_S)
            return None
        self._silence_s = _SILENCE_S
        return message
