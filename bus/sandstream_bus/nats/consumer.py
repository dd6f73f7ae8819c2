"""The pull loop: takes messages from a durable consumer, sends heartbeats during work, acks last.

It uses one inbox and one standing pull request that is topped up, and renewed after a reconnect,
after missed heartbeats and after a lost consumer. If the log itself was lost, it drops work that
the log no longer contains and recreates the consumer. It never holds more messages than it can
start at once, because messages of a dead process are redelivered only after ``ack_wait``. A message
that is redelivered while this process still works on it is not started twice: the newer delivery's
token replaces the older one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from nats.aio.msg import Msg

from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import BusError, BusUnavailable
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.log_guard import LogChange
from sandstream_bus.nats.topology import ConsumerSpec, Topology
from sandstream_bus.wire import headers as h

logger = logging.getLogger(__name__)

_EXPIRES_S = 30.0
_HEARTBEAT_S = 5.0


class Delivery:
    """One message in this process. How the handler ends decides how it is settled."""

    __slots__ = (
        "_reply",
        "adopted",
        "data",
        "deliveries",
        "fresh",
        "given_back",
        "headers",
        "held",
        "sequence",
        "settled",
        "subject",
        "time_ns",
    )

    def __init__(self, message: Msg) -> None:
        meta = _parse_reply(message.reply)
        self.subject = message.subject
        self.data = message.data
        self.headers: dict[str, str] = message.headers or {}
        self.sequence = meta.sequence
        self.deliveries = meta.deliveries
        self.time_ns = meta.time_ns
        self.adopted = 0
        """The number of redeliveries while this process was working on the message."""
        self.given_back = 0
        """How often this process had the message before and returned it."""
        self.settled = False
        self.fresh = False
        """Whether the message was certainly never delivered before. A count of one does not prove
        that:
        a killed server forgets counts, and a recreated consumer starts again.
        """
        self.held = False
        """Whether the handler only waits for something outside: then it takes no capacity."""
        self._reply = message.reply

    def adopt(self, newer: Delivery) -> None:
        """The server redelivered the message: only the newer token can settle it."""
        self._reply = newer._reply
        self.deliveries = newer.deliveries
        self.adopted += 1

    @property
    def attempt(self) -> int:
        """The number of this attempt at the message (see attempts.py)."""
        return self.deliveries - self.adopted

    @property
    def reply(self) -> str:
        return self._reply

    @property
    def stored(self) -> Stored:
        """The message as if read from the stream."""
        seconds, nanoseconds = divmod(self.time_ns, 1_000_000_000)
        stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        headers = {**self.headers, h.TIME: f"{stamp}.{nanoseconds:09d}Z"}
        return Stored(self.sequence, self.subject, self.data, headers)


class _Meta(NamedTuple):
    deliveries: int
    sequence: int
    time_ns: int


def _parse_reply(reply: str) -> _Meta:
    """``$JS.ACK[.domain.account].stream.consumer.delivered.sseq.cseq.time.pending[.token]``"""
    tokens = reply.split(".")
    shift = 2 if len(tokens) > 9 else 0
    return _Meta(int(tokens[4 + shift]), int(tokens[5 + shift]), int(tokens[7 + shift]))


class _Named(msgspec.Struct):
    """The fields that identify a request of a run or a sandbox."""

    call: str = ""
    op: str = ""


def described(delivery: Delivery) -> str:
    """The work of a delivery as text for people: its run or sandbox, and its call."""
    tokens = delivery.subject.split(".")
    kind = next((it for it in ("run", "sandbox", "task") if it in tokens), "")
    where = f"{kind} {tokens[tokens.index(kind) + 1]}" if kind else delivery.subject
    try:
        named = msgspec.json.decode(delivery.data, type=_Named)
    except msgspec.DecodeError:
        return where
    call = named.call or named.op
    return f"{where}, call {call}" if call else where


def spec_after(spec: ConsumerSpec, change: LogChange) -> ConsumerSpec:
    """The consumer for the log that was found instead of the lost one, in which positions of the
    lost log have no meaning.
    """
    if change.what == "other store":
        return msgspec.structs.replace(spec, start_sequence=None, only_new=False)
    if spec.only_new or spec.start_sequence is not None:
        first = min(spec.start_sequence or change.ends + 1, change.ends + 1)
        return msgspec.structs.replace(spec, start_sequence=first, only_new=False)
    return spec


Handler = Callable[[Delivery], Awaitable[None]]


class PullLoop:
    """Feeds one handler from one consumer until it is stopped.

    The handler settles the delivery (``ack``, ``nak``, ``term``) or raises; an exception is logged
    and the message is redelivered.
    """

    def __init__(
        self,
        connection: Connection,
        topology: Topology,
        spec: ConsumerSpec,
        handler: Handler,
        *,
        max_in_flight: int = 64,
        yields_to: PullLoop | None = None,
    ) -> None:
        """``yields_to``: a loop whose messages have priority. This loop takes only as many messages
        as the other one leaves capacity for.
        """
        self._yields_to = yields_to
        self._yielding: PullLoop | None = None
        if yields_to is not None:
            yields_to._yielding = self
        self._connection = connection
        self._topology = topology
        self._spec = spec
        self._stream = topology.stream_of(spec)
        self._reads_log = self._stream == topology.log
        kind = spec.kind or spec.name.partition("-")[0]  # harness, tools or actor
        self._before_ack, self._after_ack = f"{kind}.before_ack", f"{kind}.after_ack"
        self._handler = handler
        self._capacity = max_in_flight
        self._in_flight: dict[int, Delivery] = {}
        self._work: dict[Delivery, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: deque[list[int]] = deque()  # [id, messages still owed], oldest first
        self._next_request = 0
        self._last_heard = 0.0
        self._horizon = math.inf
        self._horizon_epoch = -1
        self._stopped = False
        self._recovering = False
        self._refused = ""
        """The last logged reason why the consumer could not be created."""
        self._inbox = ""
        self._idle = asyncio.Event()
        self._idle.set()
        self.redeliveries = 0

    async def start(self) -> None:
        await self._topology.ensure_consumer(self._connection, self._spec)
        self._inbox = self._connection.new_inbox()
        self._subscription = await self._connection.subscribe(
            self._inbox + ".*", self._on_message, deliveries=True
        )
        self._forget_reconnect = self._connection.on_reconnect(self._restart)
        guard = self._connection.guard
        self._forget_change = guard.on_change(self._on_change) if guard else lambda: None
        self._spawn(self._beat())
        self._spawn(self._watch())
        await self._look_at_horizon()
        await self._top_up()

    async def stop(self, grace_s: float = 10.0) -> None:
        """Take no more messages, let running work finish within ``grace_s``, then cancel it."""
        self._stopped = True
        self._forget_reconnect()
        self._forget_change()
        await self._subscription.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.flush()

    # --- settling ------------------------------------------------------------------------------

    async def ack(self, delivery: Delivery) -> None:
        """Acknowledge. A lost ack costs only a cheap redelivery, so it is not confirmed."""
        crashpoint(self._before_ack)
        await self._settle(delivery, b"+ACK")
        crashpoint(self._after_ack)

    async def nak(self, delivery: Delivery, delay_s: float) -> None:
        await self._settle(delivery, b'-NAK {"delay": %d}' % int(delay_s * 1e9))

    async def term(self, delivery: Delivery, reason: str) -> None:
        await self._settle(delivery, b"+TERM " + reason.replace("\n", " ")[:200].encode())

    async def _settle(self, delivery: Delivery, verb: bytes) -> None:
        delivery.settled = True
        with contextlib.suppress(BusUnavailable):  # an unsettled message is redelivered
            await self._connection.send(delivery.reply, verb)

    # --- pulling -------------------------------------------------------------------------------

    def _on_message(self, message: Msg) -> None:
        self._last_heard = time.monotonic()
        if not message.reply.startswith("$JS.ACK."):
            self._on_status(message)
            return
        if self._requests:
            self._requests[0][1] -= 1
            if self._requests[0][1] <= 0:
                self._requests.popleft()
        if self._stopped:
            return
        delivery = Delivery(message)
        delivery.fresh = self._is_fresh(delivery)
        self.redeliveries += delivery.deliveries > 1
        if self._connection.guard is not None and self._reads_log:
            self._connection.guard.saw(delivery.sequence, delivery.headers.get(h.MSG_ID, ""))
        running = self._in_flight.get(delivery.sequence)
        if running is not None and running.time_ns == delivery.time_ns:
            running.adopt(delivery)
            return
        if running is not None:
            self._drop(running)  # another log has another message at this sequence
        self._in_flight[delivery.sequence] = delivery
        self._idle.clear()
        task = self._work[delivery] = self._spawn(self._handle(delivery))
        task.add_done_callback(lambda _: self._finished(delivery))

    def _on_status(self, message: Msg) -> None:
        headers = message.headers or {}
        status = headers.get(h.STATUS, "")
        if status == "100":  # idle heartbeat
            return
        number = int(message.subject.rpartition(".")[2])
        for request in self._requests:
            if request[0] == number:
                self._requests.remove(request)
                break
        if self._stopped:
            return
        if status in ("404", "408") or "Exceeded" in headers.get(h.DESCRIPTION, ""):
            self._spawn(self._top_up())
        else:  # 409 consumer deleted, leadership change; 503 no responders
            logger.info(
                "pull request refused",
                extra={"status": status, "reason": headers.get(h.DESCRIPTION, "")},
            )
            self._spawn(self._recover())

    def _finished(self, delivery: Delivery) -> None:
        self._work.pop(delivery, None)
        if self._in_flight.get(delivery.sequence) is delivery:
            del self._in_flight[delivery.sequence]
        if not self._in_flight:
            self._idle.set()
        self._ask_if_due()
        self._wake_later_loops()

    def _wake_later_loops(self) -> None:
        """There is capacity again, also for the loops that yield to this one."""
        later = self._yielding
        while later is not None:
            later._ask_if_due()
            later = later._yielding

    def _ask_if_due(self) -> None:
        """Pull if at least half of the free capacity has no pull request. (Half of the free
        capacity, not of all: long-running work must not keep free places empty.)
        """
        owed = self._owed()
        if not self._stopped and self._room() - self._working() >= 2 * owed + (owed == 0):
            self._spawn(self._top_up())

    def _room(self) -> int:
        """How many messages this process may hold now."""
        first = self._yields_to
        return self._capacity if first is None else min(self._capacity, first._free())

    def _free(self) -> int:
        return self._room() - self._working()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            await self._handler(delivery)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception(
                "handler failed: consumer %s, subject %r, delivery %d",
                self._spec.name,
                delivery.subject,
                delivery.deliveries,
                extra={"actor": self._spec.name, "subject": delivery.subject},
            )

    def hold(self, delivery: Delivery) -> None:
        """The delivery's handler waits for something outside; pull other messages instead."""
        delivery.held = True
        self._spawn(self._top_up())
        self._wake_later_loops()

    def _working(self) -> int:
        return sum(not delivery.held for delivery in self._in_flight.values())

    def _owed(self) -> int:
        return sum(request[1] for request in self._requests)

    async def _top_up(self) -> None:
        wanted = self._room() - self._working() - self._owed()
        if wanted <= 0 or self._stopped or not self._connection.is_connected:
            return
        self._next_request += 1
        self._requests.append([self._next_request, wanted])
        body = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (
            wanted,
            int(_EXPIRES_S * 1e9),
            int(_HEARTBEAT_S * 1e9),
        )
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._spec.name}"
        with contextlib.suppress(BusUnavailable):  # asked for again on reconnect
            await self._connection.send(subject, body, f"{self._inbox}.{self._next_request}")

    async def _restart(self) -> None:
        """All standing pull requests ended with the connection."""
        self._requests.clear()
        self._horizon = math.inf
        await self._top_up()
        await self._look_at_horizon()

    async def _recover(self) -> None:
        """The consumer may be gone (deleted, or the store was lost): recreate it."""
        if self._recovering:
            return
        self._recovering = True
        try:
            await asyncio.sleep(0.2)
            guard = self._connection.guard
            if guard is not None:
                await guard.check()
                await guard.sound()
            await self._topology.ensure_consumer(self._connection, self._spec)
            self._refused = ""
        except BusError as error:  # the pull below is refused, which leads here again
            if self._refused != str(error):
                self._refused = str(error)
                logger.warning("cannot make the consumer: %s", error)
        finally:
            self._recovering = False
        self._horizon = math.inf
        await self._top_up()
        await self._look_at_horizon()

    # --- a lost log ------------------------------------------------------------------------------

    async def _on_change(self, change: LogChange) -> None:
        """The log was replaced or set back: stop work that it no longer contains."""
        guard = self._connection.guard
        assert guard is not None
        for delivery in tuple(self._in_flight.values()) if self._reads_log else ():
            stored = await guard.message_at(delivery.sequence)
            if stored is None or stored.time_ns != delivery.time_ns:
                self._drop(delivery)
        if self._reads_log:
            self._spec = spec_after(self._spec, change)
        await self._topology.ensure_consumer(self._connection, self._spec)
        self._requests.clear()
        self._horizon = math.inf
        await self._top_up()

    def _drop(self, delivery: Delivery) -> None:
        """Drop work without a result: the log never asked for it."""
        delivery.settled = True
        if self._in_flight.get(delivery.sequence) is delivery:
            del self._in_flight[delivery.sequence]
        task = self._work.pop(delivery, None)
        if task is None or task.done():
            return
        task.cancel()
        logger.warning(
            "dropped work that the log no longer contains: %s",
            described(delivery),
            extra={"subject": delivery.subject, "sequence": delivery.sequence},
        )

    async def _look_at_horizon(self) -> None:
        """Note the end of the log: anything up to it may have been delivered before."""
        epoch = self._connection.reconnects
        with contextlib.suppress(BusError):  # then all deliveries count as old: slower, but safe
            state = await self._topology.stream_state(self._connection, self._stream)
            self._horizon, self._horizon_epoch = state["last_seq"], epoch

    def _is_fresh(self, delivery: Delivery) -> bool:
        in_sight = self._horizon_epoch == self._connection.reconnects
        return in_sight and delivery.deliveries == 1 and delivery.sequence > self._horizon

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            silent = time.monotonic() - self._last_heard > 2.5 * _HEARTBEAT_S
            if silent and self._connection.is_connected:
                await self._restart()

    async def _beat(self) -> None:
        """Send a heartbeat for each message three times per ``ack_wait``."""
        while True:
            await asyncio.sleep(self._spec.ack_wait_s / 3)
            for delivery in tuple(self._in_flight.values()):
                if not delivery.settled:
                    with contextlib.suppress(BusUnavailable):
                        await self._connection.send(delivery.reply, b"+WPI")

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
