"""One exporter's way out: patient with an endpoint that is down, and stopped by no refused batch.

An endpoint that is down costs nothing but time: the batch waits, and the outbox behind it is
bounded. One that refuses a batch for good gets it a few times, then in parts; what is still refused
is dropped, counted and told.
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
"""How often a refused batch is sent as it is."""
_PARTS: Final = 8
WAITING: Final = "outbox"
DROPPED: Final = "spans_dropped"


class SpanTarget(Protocol):
    """What ``Exporter`` is to a line."""

    name: str
    failure: Failure | None

    async def export(self, spans: list[Span]) -> bool: ...


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited, in seconds."""

    first_s: float = 1.0
    """After the first failure; twice as long after each further one."""
    longest_s: float = 60.0
    poll_s: float = 1.0
    """Between two looks into an empty outbox that nobody has told about."""


class Counters(Protocol):
    """What the store counts; ``Outbox`` says what it is."""

    async def counters(self) -> dict[str, int]: ...

    async def count(self, name: str, by: int = 1) -> None: ...


class Stopped(Exception):
    """There is no time to try again."""


class Line:
    """``stopping`` ends all waiting."""

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
        """Return when they have arrived or are given up; ``Stopped`` if neither could be done."""
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
        """Send a refused batch in parts: all but the cause gets through. If none does, it is not
        one of the spans.
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
        """So many of the spans are lost."""
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
        """Wait, longer each time. Raises ``Stopped`` if there is to be no next time."""
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
