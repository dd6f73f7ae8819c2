"""Moves spans from the store's outbox to the exporters, in batches, in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import SandstreamError

from sandstream_actors.tracing.export.line import (
    Line,
    Pace,
    SpanTarget,
    Stopped,
    happened,
)
from sandstream_actors.tracing.export.turn import ExportTurn
from sandstream_actors.tracing.span import Span

logger = logging.getLogger(__name__)

BATCH_SPANS: Final = 512
BATCH_BYTES: Final = 2 * 1024 * 1024
"""By default, collectors accept 4 MiB by gRPC."""
GRACE_S: Final = 5.0

_encode = msgspec.json.Encoder().encode


class Outbox(Protocol):
    """The part of the store with numbered spans that wait to be exported."""

    async def outbox(self, limit: int) -> list[tuple[int, Span]]:
        """The oldest spans, with their numbers."""
        ...

    async def outbox_done(self, numbers: Iterable[int]) -> None: ...

    async def counters(self) -> dict[str, int]:
        """How many wait (``outbox``), how many were dropped so far (``spans_dropped``)."""
        ...

    async def count(self, name: str, by: int = 1) -> None: ...


class ExportLoop:
    """Runs from ``start`` to ``stop``. The caller owns the exporters.

    ``lock`` is a file by which processes that share a store agree on the one that exports.
    """

    def __init__(
        self,
        outbox: Outbox,
        exporters: Sequence[SpanTarget],
        *,
        lock: Path | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._outbox = outbox
        self._pace = pace or Pace()
        self._turn = ExportTurn(lock)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._lines = [Line(it, self._pace, self._stopping, outbox) for it in exporters]
        self._task: asyncio.Task[None] | None = None
        self._store_fails = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="export-loop")

    def wake(self) -> None:
        """Tell the loop that there is something in the outbox."""
        self._wake.set()

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Export what waits, within ``grace_s``, and end. The rest stays in the outbox."""
        if self._task is None:
            return
        self._stopping.set()
        self._wake.set()
        _, late = await asyncio.wait({self._task}, timeout=grace_s)
        for task in late:
            task.cancel()
        await asyncio.gather(self._task, return_exceptions=bool(late))
        self._task = None

    async def _run(self) -> None:
        try:
            with self._turn.given_up_at_end():
                await self._empty_outbox()
        except Exception:
            logger.exception("nothing is exported any more")
            raise

    async def _empty_outbox(self) -> None:
        while True:
            is_empty = not (self._turn.take() and await self._step())
            if is_empty and self._stopping.is_set():
                return
            if is_empty:
                await happened(self._wake, self._pace.poll_s)
                self._wake.clear()

    async def _step(self) -> bool:
        """Export a batch. ``False`` if there is none or it could not be exported."""
        try:
            batch = _batch(await self._outbox.outbox(BATCH_SPANS))
            if not batch:
                return False
            spans = [span for _, span in batch]
            crashpoint("tracing.before_export")
            await self._deliver(spans)
            crashpoint("tracing.after_export")
            await self._outbox.outbox_done([n for n, _ in batch])
        except Stopped:
            return False
        except SandstreamError as error:
            self._say_store_fails(error)
            return False
        self._store_fails = False
        return True

    async def _deliver(self, spans: list[Span]) -> None:
        """Deliver to all exporters in parallel; a stopped one does not interrupt the others."""
        deliveries = (line.deliver(spans) for line in self._lines)
        for outcome in await asyncio.gather(*deliveries, return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _say_store_fails(self, error: SandstreamError) -> None:
        if not self._store_fails:
            logger.warning("the outbox cannot be read", extra={"reason": str(error)})
        self._store_fails = True


def _batch(rows: list[tuple[int, Span]]) -> list[tuple[int, Span]]:
    """As many as fit into one request, but at least one."""
    size = 0
    for count, (_, span) in enumerate(rows):
        size += len(_encode(span))
        if size > BATCH_BYTES and count:
            return rows[:count]
    return rows
