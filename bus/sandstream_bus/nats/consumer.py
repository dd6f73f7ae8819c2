"""The pull loop: takes messages from a durable consumer, beats while they are worked on, acks last.

One inbox and one standing pull request that is topped up; asked for anew after a reconnect, after
missed heartbeats and after a lost consumer. It never holds more messages than it can start at once,
because what a dead process had taken waits out ``ack_wait``. A message that is delivered again
while this process still works on it is not started twice: the newer delivery's token replaces the
older one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from nats.aio.msg import Msg

from sandstream_bus import headers as h
from sandstream_bus.connection import Connection
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import BusError, BusUnavailable
from sandstream_bus.topology import ConsumerSpec, Topology

logger = logging.getLogger(__name__)

_EXPIRES_S = 30.0
_HEARTBEAT_S = 5.0


class Delivery:
    """One message in this process's hands. The handler's end decides what becomes of it."""

    __slots__ = (
        "_reply",
        "data",
        "deliveries",
        "fresh",
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
        self.settled = False
        self.fresh = False
        """Certainly nobody got it before. A count of one alone does not say that: a killed server
        forgets counts, and a consumer that is made again begins anew.
        """
        self.held = False
        """The handler only waits, for something outside: it takes no place in the loop's capacity.
        """
        self._reply = message.reply

    def adopt(self, newer: Delivery) -> None:
        """The server delivered it again: only the newer token can settle it."""
        self._reply = newer._reply
        self.deliveries = newer.deliveries

    @property
    def reply(self) -> str:
        return self._reply


class _Meta(NamedTuple):
    deliveries: int
    sequence: int
    time_ns: int


def _parse_reply(reply: str) -> _Meta:
    """``$JS.ACK[.domain.account].stream.consumer.delivered.sseq.cseq.time.pending[.token]``"""
    tokens = reply.split(".")
    shift = 2 if len(tokens) > 9 else 0
    return _Meta(int(tokens[4 + shift]), int(tokens[5 + shift]), int(tokens[7 + shift]))


Handler = Callable[[Delivery], Awaitable[None]]


class PullLoop:
    """Feeds one handler from one consumer until it is stopped.

    The handler settles the delivery (``ack``, ``nak``, ``term``) or raises; what it raises is
    logged and the message comes again.
    """

    def __init__(
        self,
        connection: Connection,
        topology: Topology,
        spec: ConsumerSpec,
        handler: Handler,
        *,
        max_in_flight: int = 64,
    ) -> None:
        self._connection = connection
        self._topology = topology
        self._spec = spec
        kind = spec.name.partition("-")[0]  # harness, tools or actor
        self._before_ack, self._after_ack = f"{kind}.before_ack", f"{kind}.after_ack"
        self._handler = handler
        self._capacity = max_in_flight
        self._in_flight: dict[int, Delivery] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: deque[list[int]] = deque()  # [id, messages still owed], oldest first
        self._next_request = 0
        self._last_heard = 0.0
        self._horizon = math.inf
        self._horizon_epoch = -1
        self._stopped = False
        self._inbox = ""
        self._idle = asyncio.Event()
        self._idle.set()
        self.redeliveries = 0

    async def start(self) -> None:
        await self._topology.ensure_consumer(self._connection, self._spec)
        self._inbox = self._connection.new_inbox()
        self._subscription = await self._connection.subscribe(self._inbox + ".*", self._on_message)
        self._forget_reconnect = self._connection.on_reconnect(self._restart)
        self._spawn(self._beat())
        self._spawn(self._watch())
        await self._look_at_horizon()
        await self._top_up()

    async def stop(self, grace_s: float = 10.0) -> None:
        """Take no more, let what runs finish until the grace is over, then let go of it."""
        self._stopped = True
        self._forget_reconnect()
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
        """Done. A lost ack costs one cheap redelivery, so nobody waits for it."""
        crashpoint(self._before_ack)
        await self._settle(delivery, b"+ACK")
        crashpoint(self._after_ack)

    async def nak(self, delivery: Delivery, delay_s: float) -> None:
        await self._settle(delivery, b'-NAK {"delay": %d}' % int(delay_s * 1e9))

    async def term(self, delivery: Delivery, reason: str) -> None:
        await self._settle(delivery, b"+TERM " + reason.replace("\n", " ")[:200].encode())

    async def _settle(self, delivery: Delivery, verb: bytes) -> None:
        delivery.settled = True
        with contextlib.suppress(BusUnavailable):  # not settled means delivered again
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
        running = self._in_flight.get(delivery.sequence)
        if running is not None:
            running.adopt(delivery)
            return
        self._in_flight[delivery.sequence] = delivery
        self._idle.clear()
        task = self._spawn(self._handle(delivery))
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
        del self._in_flight[delivery.sequence]
        if not self._in_flight:
            self._idle.set()
        # Half of the free places without a pull: ask. (Not half of all: what takes long must not
        # keep the others' places empty.)
        owed = self._owed()
        if not self._stopped and self._capacity - self._working() >= 2 * owed + (owed == 0):
            self._spawn(self._top_up())

    async def _handle(self, delivery: Delivery) -> None:
        try:
            await self._handler(delivery)
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("handler failed", extra={"subject": delivery.subject})

    def hold(self, delivery: Delivery) -> None:
        """The delivery's handler waits for something outside; pull others in its place."""
        delivery.held = True
        self._spawn(self._top_up())

    def _working(self) -> int:
        return sum(not delivery.held for delivery in self._in_flight.values())

    def _owed(self) -> int:
        return sum(request[1] for request in self._requests)

    async def _top_up(self) -> None:
        wanted = self._capacity - self._working() - self._owed()
        if wanted <= 0 or self._stopped or not self._connection.is_connected:
            return
        self._next_request += 1
        self._requests.append([self._next_request, wanted])
        body = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (
            wanted,
            int(_EXPIRES_S * 1e9),
            int(_HEARTBEAT_S * 1e9),
        )
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._topology.log}.{self._spec.name}"
        with contextlib.suppress(BusUnavailable):  # asked for again on reconnect
            await self._connection.send(subject, body, f"{self._inbox}.{self._next_request}")

    async def _restart(self) -> None:
        """All standing pulls died with the connection."""
        self._requests.clear()
        self._horizon = math.inf
        await self._top_up()
        await self._look_at_horizon()

    async def _recover(self) -> None:
        """The consumer may be gone (deleted, or the store was lost): make it again."""
        await asyncio.sleep(0.2)
        try:
            await self._topology.ensure_consumer(self._connection, self._spec)
        except BusError as error:  # the pull below is refused, which leads here again
            logger.warning("cannot make the consumer", extra={"error": str(error)})
        self._horizon = math.inf
        await self._top_up()
        await self._look_at_horizon()

    async def _look_at_horizon(self) -> None:
        """Whatever is in the log by now may have been delivered to somebody, whatever its count."""
        epoch = self._connection.reconnects
        with contextlib.suppress(BusError):  # then everything stays in doubt, which only costs time
            state = await self._topology.stream_state(self._connection, self._topology.log)
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
        """Tell the server, three times per ``ack_wait``, that work is going on."""
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
