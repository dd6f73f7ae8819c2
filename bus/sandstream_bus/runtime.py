"""The actor runtime: handlers by message type, durable, scaled by starting the actor once more.

A handler has three ends. It returns: the message is acknowledged. It raises :class:`Retry`: the
message comes again after the delay. It raises anything else: the message comes again a few times,
then it is parked with the reason. See :class:`Actor` for actors of one's own; the harness and the
tool host use the :class:`Worker` below it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, cast

from sandstream_bus.bus import Bus
from sandstream_bus.consumer import Delivery, PullLoop
from sandstream_bus.errors import BusError, MessageError, Retry
from sandstream_bus.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    InputStaged,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    TurnRequested,
)
from sandstream_bus.subjects import RunId, check_token
from sandstream_bus.subscription import Subscription
from sandstream_bus.topology import ConsumerSpec

logger = logging.getLogger(__name__)

MAX_DELIVERIES = 10
_KEPT_ERRORS = 1000

_KINDS: dict[type[Any], tuple[str, ...]] = {
    RunStarted: ("start.*",),
    RunRestored: ("start.*",),
    ConversationOpened: ("history",),
    InputStaged: ("input",),
    ApprovalRequested: ("approval.requested",),
    ApprovalDecided: ("approval.decided",),
    RunWaiting: ("waiting",),
    ChildWaiting: ("result.*",),
    TurnRequested: ("turn.*",),
    RunReopened: ("turn.*",),
    RunMoved: ("turn.*",),
    ModelAnswered: ("model", "result.*"),
    ModelDeferred: ("model",),
    CallRequested: ("call.*", "child"),
    CallStarted: ("started.*",),
    CallFinished: ("result.*",),
    CancelRequested: ("cancel",),
    RunDone: ("done",),
}


class Worker:
    """A pull loop plus the rules for failures: retry with a growing delay, then park."""

    def __init__(
        self,
        bus: Bus,
        spec: ConsumerSpec,
        handle: Callable[[Delivery], Awaitable[None]],
        *,
        max_in_flight: int = 64,
        max_deliveries: int = MAX_DELIVERIES,
        on_parked: Callable[[Delivery, str], Awaitable[None]] | None = None,
        announce: bool = True,
    ) -> None:
        self._bus = bus
        self.spec = spec
        self._handle = handle
        self._max_deliveries = max_deliveries
        self._on_parked = on_parked
        self._announce = announce
        self._announced: Subscription | None = None
        self._errors: OrderedDict[int, str] = OrderedDict()
        self.loop = PullLoop(
            bus.connection, bus.topology, spec, self._on_delivery, max_in_flight=max_in_flight
        )

    async def start(self) -> None:
        if self._announce:
            self._announced = await self._bus.presence.announce(self.spec.name)
        await self.loop.start()

    async def stop(self, grace_s: float = 10.0) -> None:
        await self.loop.stop(grace_s)
        if self._announced is not None:
            await self._announced.close()

    async def _on_delivery(self, delivery: Delivery) -> None:
        if delivery.deliveries > self._max_deliveries:
            known = self._errors.pop(delivery.sequence, "the worker died each time")
            await self._park(delivery, f"given up after {delivery.deliveries - 1} tries: {known}")
            return
        try:
            await self._handle_patiently(delivery)
        except Retry as retry:
            self._remember(delivery, str(retry))
            await self.loop.nak(delivery, retry.delay_s)
        except MessageError as error:
            await self._park(delivery, f"{error.code}: {error}")
        except Exception as error:
            logger.exception("handling failed", extra={"subject": delivery.subject})
            self._remember(delivery, f"{type(error).__name__}: {error}")
            await self.loop.nak(delivery, min(0.1 * 2**delivery.deliveries, 30.0))
        else:
            self._errors.pop(delivery.sequence, None)
            await self.loop.ack(delivery)

    def _remember(self, delivery: Delivery, error: str) -> None:
        """For the reason of a parking. Bounded: another replica may get the message next."""
        self._errors[delivery.sequence] = error
        while len(self._errors) > _KEPT_ERRORS:
            self._errors.popitem(last=False)

    async def _handle_patiently(self, delivery: Delivery) -> None:
        """A wait that does not count is spent here: the server counts every delivery.

        A fault of the bus is such a wait: it says nothing about the message.
        """
        in_trouble = False
        while True:
            try:
                await self._handle(delivery)
            except Retry as retry:
                if retry.counts:
                    raise
                delay_s = retry.delay_s
            except BusError as error:
                if not error.retryable:
                    raise
                self._bus.connection.report_trouble(error)
                in_trouble = True
                delay_s = 1.0
            else:
                if in_trouble:
                    self._bus.connection.trouble_over()
                return
            self.loop.hold(delivery)
            await asyncio.sleep(delay_s)
            delivery.held = False

    async def _park(self, delivery: Delivery, reason: str) -> None:
        await self._bus.parking.park(delivery, self.spec.name, reason)
        if self._on_parked is not None:
            try:
                await self._on_parked(delivery, reason)
            except Exception as error:
                if isinstance(error, BusError) and error.retryable:
                    raise  # comes again when the bus is well
                logger.exception("a parked message's run cannot be ended")
        await self.loop.term(delivery, reason)
        logger.error("message parked", extra={"subject": delivery.subject, "reason": reason})


class Received(NamedTuple):
    """Where an event came from, for handlers of one's own."""

    run: RunId
    sequence: int
    deliveries: int
    headers: dict[str, str]
    bus: Bus


E = TypeVar("E")
EventHandler = Callable[[E, Received], Awaitable[None]]


class Actor:
    """An actor of one's own: a named, durable reader of the log.

    Every replica that is started under the same name shares the work; each event is handled by one
    of them, at least once. Use ``received.run`` and ``received.sequence`` as idempotency key for
    effects outside.
    """

    def __init__(self, name: str, *, max_in_flight: int = 16, from_beginning: bool = False) -> None:
        self.name = check_token(name, "the actor's name")
        self._max_in_flight = max_in_flight
        self._from_beginning = from_beginning
        self._handlers: dict[type[Any], EventHandler[Any]] = {}
        self._worker: Worker | None = None

    def on(self, kind: type[E]) -> Callable[[EventHandler[E]], EventHandler[E]]:
        """Handle events of this type."""
        if kind not in _KINDS:
            names = ", ".join(sorted(known.__name__ for known in _KINDS))
            raise TypeError(f"{kind!r} is not a run event; handle one of: {names}")
        if kind in self._handlers:
            raise TypeError(f"actor {self.name!r} has two handlers for {kind.__name__}")

        def register(handler: EventHandler[E]) -> EventHandler[E]:
            self._handlers[kind] = cast(EventHandler[Any], handler)
            return handler

        return register

    async def start(self, bus: Bus) -> None:
        if not self._handlers:
            raise TypeError(f"actor {self.name!r} handles nothing: decorate a function with @on")
        kinds = sorted({kind for message in self._handlers for kind in _KINDS[message]})
        prefix = bus.subjects.prefix
        spec = ConsumerSpec(
            name=f"actor-{self.name}",
            filters=[f"{prefix}.run.*.{kind}" for kind in kinds],
            only_new=not self._from_beginning,
        )

        async def handle(delivery: Delivery) -> None:
            event = await bus.codec.run_event(delivery.data)
            handler = self._handlers.get(type(event))
            if handler is not None:
                run = bus.subjects.parse_run(delivery.subject).run
                received = Received(
                    run, delivery.sequence, delivery.deliveries, delivery.headers, bus
                )
                await handler(event, received)

        self._worker = Worker(bus, spec, handle, max_in_flight=self._max_in_flight)
        await self._worker.start()

    async def stop(self) -> None:
        if self._worker is not None:
            await self._worker.stop()

    async def run(self, bus: Bus) -> None:
        """Work until cancelled."""
        await self.start(bus)
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()
