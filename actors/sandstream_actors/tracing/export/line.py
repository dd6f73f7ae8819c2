"""Delivers spans to one exporter: waits for a dead endpoint, and isolates refused spans.

A dead endpoint only costs time: the batch waits, and the outbox behind it is bounded. A batch that
the endpoint refuses permanently is sent a few times, then in parts. Spans that are still refused
are dropped, counted and logged.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

import msgspec

from sandstream_actors.tracing.export.otel_failures import Failure
from sandstream_actors.tracing.span import Span

logger = logging.getLogger(__name__)

TRIES: Final = 3
"""How often a refused batch is sent unchanged."""
_PARTS: Final = 8
WAITING: Final = "outbox"
DROPPED: Final = "spans_dropped"


class SpanTarget(Protocol):
    """The part of ``Exporter`` that a line needs."""

    name: str
    failure: Failure | None

    async def export(self, spans: list[Span]) -> bool: ...


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting times, in seconds."""

    first_s: float = 1.0
    """After the first failure; doubled after each further one."""
    longest_s: float = 60.0
    poll_s: float = 1.0
    """Between two checks of an empty outbox without a wake-up."""


class Counters(Protocol):
    """The counters of the store; see ``Outbox``."""

    async def counters(self) -> dict[str, int]: ...

    async def count(self, name: str, by: int = 1) -> None: ...


class Stopped(Exception):
    """The loop is stopping, so there is no retry."""


class Line:
    """The delivery to one exporter. ``stopping`` ends all waiting."""

    def __init__(
        self,
        target: SpanTarget,
        pace: Pace,
        stopping: asyncio.Event,
        counters: Counters,
    ) -> None:
        self._target = target
        self._pace = pace
        self._stopping = stopping
        self._counters = counters
        self._is_down = False
        self._delay_s = pace.first_s

    async def deliver(self, spans: list[Span]) -> None:
        """Return when the spans have arrived or were dropped; else raise ``Stopped``."""
        refusals = 0
        while (failure := await self._sent(spans)) is not None:
            if failure.is_for_good:
                refusals += 1
                if refusals == TRIES:
                    await self._salvage(spans, failure)
                    return
            await self._say_down(failure)
            await self._pause()

    async def _sent(self, spans: list[Span]) -> Failure | None:
        if await self._target.export(spans):
            await self._say_up()
            return None
        failure = self._target.failure or Failure(reason="the exporter does not say why")
        if not failure.rejected:
            return failure
        await self._say_up()
        await self._drop(spans, failure, min(failure.rejected, len(spans)))
        return None

    async def _salvage(self, spans: list[Span], failure: Failure) -> None:
        """Send a refused batch in parts, so that all spans except the cause get through. If every
        part is refused, no single span is the cause, and all are dropped.
        """
        size = -(-len(spans) // _PARTS)
        parts = [spans[at : at + size] for at in range(0, len(spans), size)]
        refused: list[list[Span]] = []
        if len(parts) > 1:
            for part in parts:
                failed = await self._sent(part)
                if failed is None:
                    continue
                if failed.is_for_good:
                    refused.append(part)
                else:
                    await self.deliver(part)
        else:
            refused = parts
        if size == 1 or len(refused) == len(parts):
            lost = [span for part in refused for span in part]
            await self._drop(lost, failure, len(lost))
            return
        for part in refused:
            await self._salvage(part, failure)

    async def _drop(self, spans: list[Span], failure: Failure, count: int) -> None:
        """Count and log ``count`` lost spans."""
        if not count:
            return
        await self._counters.count(DROPPED, count)
        await self._tell(
            "dropped spans that the endpoint refuses",
            reason=failure.reason,
            spans=count,
            first=spans[0].name,
        )

    async def _say_down(self, failure: Failure) -> None:
        if self._is_down:
            return
        self._is_down = True
        await self._tell("spans cannot be exported; they wait", reason=failure.reason)

    async def _say_up(self) -> None:
        self._delay_s = self._pace.first_s
        if not self._is_down:
            return
        self._is_down = False
        await self._tell("spans are exported again")

    async def _tell(self, what: str, **details: Any) -> None:
        counters = await self._counters.counters()
        details |= {"waiting": counters.get(WAITING, 0), "dropped": counters.get(DROPPED, 0)}
        logger.warning(what, extra={"exporter": self._target.name, **details})

    async def _pause(self) -> None:
        """Wait, longer each time. Raises ``Stopped`` if the loop is stopping."""
        if await happened(self._stopping, self._delay_s):
            raise Stopped
        self._delay_s = min(self._delay_s * 2, self._pace.longest_s)


async def happened(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
