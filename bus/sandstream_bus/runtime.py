"""The runtime below all actors (``sandstream_actors.base``): one durable consumer and its failures.

A handler ends in one of four ways. It returns: the message is acknowledged. It raises
:class:`Drop`: the message is acknowledged, and the reason is logged for debugging. It raises
:class:`Retry`: the message comes again after the delay. It raises anything else: the message is
parked with the reason, at once if it cannot be read, else after a few tries.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.errors import BusError, Drop, InvalidSubject, MessageError, Retry
from sandstream_bus.nats.consumer import Delivery, PullLoop
from sandstream_bus.nats.subscription import Subscription
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.wire.error_text import named_error
from sandstream_bus.wire.headers import MSG_ID

logger = logging.getLogger(__name__)

MAX_DELIVERIES = 10
_KEPT_ERRORS = 1000


class Worker:
    """A pull loop with the rules for failures: retry with a growing delay, then park."""

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
        yields_to: Worker | None = None,
    ) -> None:
        self._bus = bus
        self.spec = spec
        self._handle = handle
        self._max_deliveries = max_deliveries
        self._on_parked = on_parked
        self._announce = announce
        self._announced: Subscription | None = None
        self._errors: OrderedDict[int, list[str]] = OrderedDict()
        """The reasons why this process returned a message, by its sequence."""
        self.loop: PullLoop = PullLoop(
            bus.connection,
            bus.topology,
            spec,
            self._on_delivery,
            max_in_flight=max_in_flight,
            yields_to=yields_to.loop if yields_to is not None else None,
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
            errors = self._errors.pop(delivery.sequence, [])
            known = errors[-1] if errors else "the worker died each time"
            tries = numbered(delivery.deliveries - 1, "try", "tries")
            await self._park(delivery, f"given up after {tries}: {known}")
            return
        delivery.given_back = len(self._errors.get(delivery.sequence, ()))
        try:
            await self._handle_patiently(delivery)
        except Retry as retry:
            self._remember(delivery, str(retry))
            await self.loop.nak(delivery, retry.delay_s)
        except Drop as drop:
            self._dropped(delivery, str(drop))
            await self.loop.ack(delivery)
        except MessageError as error:
            await self._park(delivery, f"{error.code}: {error}")
        except Exception as error:
            failure = named_error(error)
            about = self._about(delivery)
            logger.exception("handling failed: %s", _told(about, failure), extra=about)
            self._remember(delivery, failure)
            await self.loop.nak(delivery, min(0.1 * 2**delivery.deliveries, 30.0))
        else:
            self._errors.pop(delivery.sequence, None)
            await self.loop.ack(delivery)

    def _dropped(self, delivery: Delivery, reason: str) -> None:
        self._errors.pop(delivery.sequence, None)
        extra = {
            "consumer": self.spec.name,
            "sequence": delivery.sequence,
            "subject": delivery.subject,
            "reason": reason,
        }
        logger.debug("message dropped", extra=extra)

    def _about(self, delivery: Delivery) -> dict[str, str]:
        """The data about a message for log records."""
        about = {
            "actor": self.spec.name,
            "subject": delivery.subject,
            "sequence": str(delivery.sequence),
            "attempt": f"{min(delivery.deliveries, self._max_deliveries)} of "
            f"{self._max_deliveries}",
        }
        with contextlib.suppress(InvalidSubject):  # for tasks and sandboxes the subject is enough
            about["run"] = self._bus.subjects.parse_run(delivery.subject).run
        return about

    def _remember(self, delivery: Delivery, error: str) -> None:
        """Keep the reason for parking. Bounded: another replica may get the message next."""
        self._errors.setdefault(delivery.sequence, []).append(error)
        while len(self._errors) > _KEPT_ERRORS:
            self._errors.popitem(last=False)

    async def _handle_patiently(self, delivery: Delivery) -> None:
        """Wait here for retries that do not count, because the server counts every delivery.

        A fault of the bus is such a wait: it says nothing about the message.
        """
        troubles: dict[str, BusError] = {}
        try:
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
                    troubles[error.code] = error
                    delay_s = 1.0
                else:
                    return
                self.loop.hold(delivery)
                await asyncio.sleep(delay_s)
                delivery.held = False
        finally:
            for trouble in troubles.values():
                self._bus.connection.troubles.over(trouble.code)

    async def _park(self, delivery: Delivery, reason: str) -> None:
        await self._bus.parking.park(delivery, self.spec.name, reason)
        # a message that no actor wrote has no meaning for a run: parking it is enough
        is_ours = bool(self.spec.stream) or MSG_ID in delivery.headers
        if self._on_parked is not None and is_ours:
            try:
                await self._on_parked(delivery, reason)
            except Exception as error:
                if isinstance(error, BusError) and error.retryable:
                    raise  # redelivered when the bus works again
                about = self._about(delivery)
                failure = named_error(error)
                text = "a parked message's run cannot be ended: %s"
                logger.exception(text, _told(about, failure), extra=about)
        await self.loop.term(delivery, reason)
        about = self._about(delivery) | {"reason": reason}
        logger.error("message parked: %s", _told(about, reason), extra=about)


def _told(about: Mapping[str, str], reason: str) -> str:
    """The same data in the text, because most formatters show nothing else of a record. Messages
    are untrusted, so control characters are escaped.
    """
    run = f" of run {about['run']}" if "run" in about else ""
    text = (
        f"{about['subject']}{run}, sequence {about['sequence']}, actor {about['actor']}, "
        f"attempt {about['attempt']}: {reason}"
    )
    return "".join(it if it.isprintable() else ascii(it)[1:-1] for it in text)
