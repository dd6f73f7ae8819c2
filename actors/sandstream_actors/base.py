"""The base of all actors: ours derive from it, and users get the same class, ``sandstream.Actor``.

An actor is a named, durable reader of the log. It names the messages that it reads and handles each
of them. The base and the :class:`Worker` below it do the rest:

    start          prepare, listen to cancel requests, read messages, start background work
    presence       each consumer answers whether a replica serves it
    heartbeats     a message in progress is not redelivered to another replica
    cancellation   ``cancellations`` stops the work of a cancelled run
    failures       a message is retried, then parked; then ``on_parked`` is called
    results        ``answer`` publishes the outcome of a call, with the headers that belong to it
    stop           end background work, finish messages in progress, then close

A new actor: derive from this class (or use ``@actor.on``), and enter it into ``registry.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.carriers import carrier
from sandstream_bus.errors import PayloadTooLarge
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    ErrorInfo,
    InputStaged,
    Message,
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
from sandstream_bus.wire.subjects import RunId, check_token, is_token

from sandstream_actors.run.cancellations import Cancellations
from sandstream_actors.run.forced_ends import end_parked_run
from sandstream_actors.run.headers import answering

GRACE_S = 10.0
"""How long messages in progress may take when an actor stops."""

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


class Received(NamedTuple):
    """Where an event came from.

    Example:
        @actor.on(RunDone)
        async def tell(event: RunDone, received: Received) -> None:
            await hook.post(event.status, key=f"{received.run}-{received.sequence}")
    """

    run: RunId
    """The run that the event belongs to."""
    sequence: int
    """The number of the event in the log. With ``run``, it is an idempotency key for effects."""
    deliveries: int
    """How often the event has been delivered; the first time is 1."""
    headers: dict[str, str]
    """The headers of the message, such as the trace context."""
    bus: Bus
    """The bus, for further reads and requests."""


E = TypeVar("E")
EventHandler = Callable[[E, Received], Awaitable[None]]


class Actor:
    """A named, durable reader of the log.

    All replicas that are started under one name share the work: each event is handled by one of
    them, at least once. Use ``received.run`` and ``received.sequence`` as the idempotency key of
    effects outside.

    Args:
        name: Identifies the actor. Replicas with the same name share the work.
        bus: The bus, unless :meth:`start` or :meth:`run` is given it.
        max_in_flight: How many messages one replica handles at a time.
        from_beginning: A new actor reads all events that the log holds, not only new ones.

    Example:
        actor = Actor("webhook")

        @actor.on(RunDone)
        async def tell(event: RunDone, received: Received) -> None: ...

        await actor.run(bus)
    """

    hears_cancellations: ClassVar[bool] = False
    """Whether cancel requests reach this actor as soon as they are stored (``cancellations``)."""

    def __init__(
        self,
        name: str,
        *,
        bus: Bus | None = None,
        max_in_flight: int = 16,
        from_beginning: bool = False,
    ) -> None:
        self.name = check_token(name, "the actor's name")
        self._max_in_flight = max_in_flight
        self._from_beginning = from_beginning
        self._handlers: dict[type[Any], EventHandler[Any]] = {}
        self._workers: list[Worker] = []
        self._work: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._background: list[asyncio.Task[None]] = []
        if bus is not None:
            self._attach(bus)

    def _attach(self, bus: Bus) -> None:
        self._bus = bus
        self._cancellations = Cancellations(bus)

    # --- what an actor reads ---------------------------------------------------------------------

    def on(self, kind: type[E]) -> Callable[[EventHandler[E]], EventHandler[E]]:
        """Handle the events of this type.

        Args:
            kind: The class of the event, from :mod:`sandstream.events`.

        Returns:
            A decorator for an async function of the event and a :class:`Received`.

        Raises:
            TypeError: It is not the type of a run event, or it has a handler already.
        """
        if kind not in _KINDS:
            names = ", ".join(sorted(known.__name__ for known in _KINDS))
            raise TypeError(f"{kind!r} is not a run event; handle one of: {names}")
        if kind in self._handlers:
            raise TypeError(f"actor {self.name!r} has two handlers for {kind.__name__}")

        def register(handler: EventHandler[E]) -> EventHandler[E]:
            self._handlers[kind] = cast(EventHandler[Any], handler)
            return handler

        return register

    def reads(
        self, spec: ConsumerSpec, *, announce: bool = True, yields_to: Worker | None = None
    ) -> Worker:
        """Read this consumer from :meth:`start` to :meth:`stop`.

        Args:
            spec: The durable consumer: its name and the subjects that it reads.
            announce: Whether the worker answers that a replica serves the consumer.
            yields_to: A worker whose messages come first.

        Returns:
            The worker, which the actor starts and stops.
        """
        worker = self.worker_for(spec, announce=announce, yields_to=yields_to)
        self._workers.append(worker)
        return worker

    def worker_for(
        self, spec: ConsumerSpec, *, announce: bool = True, yields_to: Worker | None = None
    ) -> Worker:
        """A worker that the caller starts and stops.

        :meth:`handle` gets its messages, and :meth:`on_parked` those that cannot be handled.

        Args:
            spec: The durable consumer: its name and the subjects that it reads.
            announce: Whether the worker answers that a replica serves the consumer.
            yields_to: A worker whose messages come first.
        """
        return Worker(
            self._bus,
            spec,
            self.handle,
            max_in_flight=self._max_in_flight,
            on_parked=self.on_parked,
            announce=announce,
            yields_to=yields_to,
        )

    def carries(
        self,
        stream: str,
        name: str,
        filters: list[str],
        carry: Callable[[Delivery], Awaitable[None]],
    ) -> None:
        """Carry messages of another stream to the log. All actors with this consumer share it.

        Args:
            stream: The name of the other stream.
            name: The name of the durable consumer.
            filters: The subjects to carry.
            carry: Publishes one message to the log. It must not have a second effect if it is
                called again.
        """
        self._workers.append(carrier(self._bus, stream, name, filters, carry))

    def works_on(self, *work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this in the background between :meth:`start` and :meth:`stop`.

        Args:
            work: Async functions without arguments. They are cancelled when the actor stops.
        """
        self._work.extend(work)

    # --- what an actor does ----------------------------------------------------------------------

    async def prepare(self) -> None:
        """Called by :meth:`start` before any message arrives; may add workers and handlers."""

    def _read_handled(self) -> None:
        """Read the events that have handlers."""
        kinds = sorted({kind for message in self._handlers for kind in _KINDS[message]})
        spec = ConsumerSpec(
            name=f"actor-{self.name}",
            filters=self._bus.subjects.events(*kinds),
            only_new=not self._from_beginning,
        )
        self._workers = [self.worker_for(spec)]

    async def handle(self, delivery: Delivery) -> None:
        """Handle one message. See :mod:`sandstream_bus.runtime` for how a handler may end.

        Args:
            delivery: The message, with its headers and its number of deliveries.
        """
        event = await self._bus.codec.run_event(delivery.data)
        handler = self._handlers.get(type(event))
        if handler is not None:
            run = self._bus.subjects.delivered_run(delivery.subject).run
            where = (run, delivery.sequence, delivery.deliveries, delivery.headers, self._bus)
            await handler(event, Received(*where))

    async def on_parked(self, delivery: Delivery, reason: str) -> None:
        """Called after a message was parked. Its run continues.

        Args:
            delivery: The message.
            reason: Why it was parked.
        """

    async def end_run_of(self, delivery: Delivery, reason: str) -> None:
        """End the run of a message that was parked: the run would wait forever.

        Args:
            delivery: The parked message.
            reason: Why it was parked, for the error of the run.
        """
        run = self._bus.subjects.parse_run(delivery.subject).run
        if is_token(run):
            await end_parked_run(self._bus, run, reason)

    async def answer(
        self,
        run: RunId,
        call: CallRequested,
        outcome: Message,
        delivery: Delivery,
        *,
        after: int | None = None,
    ) -> None:
        """Publish the outcome of a delivered call. One that is too large becomes an error.

        Args:
            run: The run of the call.
            call: The call.
            outcome: What happened, usually a :class:`CallFinished`.
            delivery: The message that asked for the call.
            after: The last event of the run that the outcome follows; ``None`` is the call's
                request.
        """
        subject = self._bus.subjects.result(run, call.reply_pool)

        async def send(result: Message) -> None:
            await self._bus.work_log.send_after(
                run,
                subject,
                result,
                after=delivery.sequence if after is None else after,
                # one id for each request: after a move the call is requested again, and the server
                # must not treat an earlier result, which no longer counts, as a duplicate of this
                # one
                msg_id=f"{run}:{call.call}:result:{delivery.sequence}",
                headers=answering(delivery),
            )

        try:
            await send(outcome)
        except PayloadTooLarge as error:
            await send(failed_call(call, f"The result is too large: {error}", error.code))

    # --- life ------------------------------------------------------------------------------------

    async def start(self, bus: Bus | None = None) -> None:
        """Begin to work.

        Args:
            bus: The bus; ``None`` if the constructor got it.

        Raises:
            TypeError: The actor handles nothing.
        """
        if bus is not None:
            self._attach(bus)
        if self._handlers:
            self._read_handled()
        await self.prepare()
        if not self._workers:
            raise TypeError(f"actor {self.name!r} handles nothing: decorate a function with @on")
        if self.hears_cancellations:
            # the replica that holds the work must get the cancel request, not only the one to which
            # the request is delivered
            await self._cancellations.start()
        await asyncio.gather(*(worker.start() for worker in self._workers))
        self._background = [asyncio.ensure_future(work()) for work in self._work]

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Take no more messages, and let those in progress finish.

        Unfinished messages are redelivered, here or to another replica.

        Args:
            grace_s: How many seconds they may take.
        """
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self.hears_cancellations:
            await self._cancellations.stop()
        await asyncio.gather(*(worker.stop(grace_s) for worker in self._workers))

    async def run(self, bus: Bus | None = None) -> None:
        """Work until cancelled.

        Args:
            bus: The bus; ``None`` if the constructor got it.
        """
        await self.start(bus)
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()


def failed_call(call: CallRequested, text: str, code: str) -> CallFinished:
    """The result of a failed call: the model reads the text as its output."""
    return CallFinished(
        call=call.call,
        kind=call.kind,
        turn=call.turn,
        output=Raw(msgspec.json.encode(text)),
        error=ErrorInfo(code=code, message=text),
    )
