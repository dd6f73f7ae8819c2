"""Following runs: replay from any sequence, then live, without gap or duplicate. No consumer is
made.

Core subscription to the republished events first, then a batched read, then both spliced by
sequence. After every doubt (a reconnect, a long silence) the log is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
from nats.aio.msg import Msg

from sandstream_bus import headers as h
from sandstream_bus.codec import Codec
from sandstream_bus.connection import Connection
from sandstream_bus.direct import Stored
from sandstream_bus.errors import MessageError, ObjectMissing, UnknownMessage
from sandstream_bus.log import LogEvent, RunLog
from sandstream_bus.messages import LiveEvent, RunDone, RunReopened
from sandstream_bus.remarks import is_remark
from sandstream_bus.subjects import RunId, Subjects

logger = logging.getLogger(__name__)

Begin = Callable[[], Awaitable[Sequence[LogEvent]]]
"""Starts a run; the events that it has then."""

_SILENCE_S = 10.0
_decode_live = msgspec.json.Decoder(LiveEvent).decode


class Follower:
    """Opens followings of runs; holds no state between them."""

    def __init__(
        self, connection: Connection, log: RunLog, codec: Codec, subjects: Subjects
    ) -> None:
        self._connection = connection
        self._log = log
        self._codec = codec
        self._subjects = subjects

    async def run(
        self, run: RunId, *, after: int = 0, deltas: bool = False, begin: Begin | None = None
    ) -> AsyncGenerator[LogEvent | LiveEvent, None]:
        """The run's events after a sequence, up to and including its ``done``.

        With ``deltas`` also the model's stream events, which are not stored: only those from now
        on. ``begin`` starts the run once somebody listens, so that no delta is missed.
        """
        async with self._subscribed(self._subjects.live_all(run), settle=begin is None) as inbox:
            last = after
            # what was stored before the subscription must be read
            news: Sequence[LogEvent] | None = await begin() if begin else None
            while True:
                if news is None:
                    news = await self._log.read(run, after=last, skip_unknown=True)
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
                message = await _next(inbox)
                if message is None:
                    news = None
                    continue
                if not _is_stored(message):
                    if deltas and message.subject == self._subjects.delta(run):
                        yield _decode_live(message.data)
                    continue
                live = await self._decoded(message)
                if live is None or live.sequence <= last:
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
            while True:
                found = None if is_known else await self._log.last(subject)
                is_known = False
                if found is not None and isinstance(found.event, RunDone):
                    later = await self._log.read(run, after=found.sequence, skip_unknown=True)
                    if not any(isinstance(it.event, RunReopened) for it in later):
                        return found.event
                message = await _next(inbox)
                if message is not None:
                    event = await self._codec.run_event(message.data)
                    assert isinstance(event, RunDone)
                    return event

    async def rest(
        self, run: RunId, *, begin: Begin, is_at_rest: Callable[[Sequence[LogEvent]], bool]
    ) -> None:
        """Wait until the run ends or waits for people. ``begin`` as in :meth:`run`; what it returns
        may show that the run rests already. The caller reads the log then: the run may be on its
        way again.
        """
        subjects = [self._subjects.done(run), self._subjects.waiting(run)]
        live = [self._subjects.live(kind, run) for kind in ("done", "waiting")]
        async with self._subscribed(*live, settle=False) as inbox:
            known = await begin()
            if is_at_rest(known):
                return
            last = known[-1].sequence if known else 0
            while True:
                message = await _next(inbox)
                if message is not None:
                    if int((message.headers or {})[h.SEQUENCE]) > last:
                        return
                elif any(it.sequence > last for it in await self._log.last_each(subjects)):
                    return

    async def all(self) -> AsyncIterator[LogEvent | None]:
        """Every stored event of every run from now on; None after a doubt, when some may be
        missing.
        """
        async with self._subscribed(self._subjects.live_all()) as inbox:
            while True:
                message = await _next(inbox)
                if message is None:
                    yield None
                elif _is_stored(message):
                    try:
                        event = await self._decoded(message)
                    except (MessageError, ObjectMissing) as error:  # one run's, not the watcher's
                        logger.warning(
                            "skipped an event",
                            extra={"subject": message.subject, "why": str(error)},
                        )
                        continue
                    if event is not None:
                        yield event

    async def _decoded(self, message: Msg) -> LogEvent | None:
        headers = message.headers or {}
        stored = Stored(int(headers[h.SEQUENCE]), headers[h.SUBJECT], message.data, headers)
        try:
            return await self._log.decoded(stored)
        except MessageError as error:
            is_newer = isinstance(error, UnknownMessage)  # written by a newer version: not for us
            if not is_newer and not is_remark(self._subjects, stored.subject):
                raise
            logger.warning("skipped an event", extra={"subject": stored.subject, "why": str(error)})
            return None

    @asynccontextmanager
    async def _subscribed(
        self, *subjects: str, settle: bool = True
    ) -> AsyncIterator[asyncio.Queue[Msg | None]]:
        """Listen. ``settle``: wait until the server knows; not needed before a publish of our own,
        which comes after the subscription on the same connection.
        """
        inbox: asyncio.Queue[Msg | None] = asyncio.Queue()
        breaks = self._connection.breaks

        def receive(message: Msg) -> None:
            nonlocal breaks
            if breaks != self._connection.breaks:
                # came on a new connection, before anybody was told of the reconnect: what was
                # written during the break comes first
                breaks = self._connection.breaks
                inbox.put_nowait(None)
            inbox.put_nowait(message)

        subscriptions = [await self._connection.subscribe(it, receive) for it in subjects]
        # the server must know of the subscription before the log is read, or an event falls between
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


def _is_stored(message: Msg) -> bool:
    """Is it the stream's copy of an event, and not a delta?"""
    return h.SEQUENCE in (message.headers or {})


async def _next(inbox: asyncio.Queue[Msg | None]) -> Msg | None:
    """The next message; None when it is time to read the log again."""
    if not inbox.empty():
        return inbox.get_nowait()
    try:
        async with asyncio.timeout(_SILENCE_S):
            return await inbox.get()
    except TimeoutError:
        return None
