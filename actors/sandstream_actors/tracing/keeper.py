"""Stores traces and hands them to the exporter; waits while the store is unavailable.

The log holds everything that waits here, so waiting only costs time. A message waits in its own
slot of the actor, so a full disk does not pile up messages in memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint

from sandstream_actors.tracing.catch_up import EVENTS_SKIPPED, CaughtUp, catch_up
from sandstream_actors.tracing.export.loop import ExportLoop
from sandstream_actors.tracing.export.sampling import Sampler
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.metrics.instruments import Metrics
from sandstream_actors.tracing.redaction import Redactor
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.errors import StoreError
from sandstream_actors.tracing.store.trace_store import TraceStore

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
CALM_S: Final = 10.0
"""Trouble ends after this long without a failure: on an almost full disk, some writes succeed."""
T = TypeVar("T")


class TraceKeeper:
    """Shared by the actor and its sweep. It owns neither the store nor the exporter."""

    def __init__(
        self,
        store: TraceStore,
        *,
        export: ExportLoop | None = None,
        metrics: Metrics | None = None,
        sampler: Sampler | None = None,
        redact: Redactor | None = None,
    ) -> None:
        self.store = store
        self._export = export
        self._metrics = metrics
        self._sampler = sampler or Sampler()
        self._redactor = redact or Redactor()
        self._is_in_trouble = False
        self._failed_at = 0.0

    @property
    def exports(self) -> bool:
        return self._export is not None

    async def begin(self, facts: RunFacts) -> None:
        """Record that a run has started."""
        await self._patiently(lambda: self.store.begin(self._redactor.redact_facts(facts)))

    async def keep(
        self, facts: RunFacts | None, spans: Sequence[Span], *, exported_through: int = 0
    ) -> list[Span]:
        """Store ended spans, of a run or of none; return those that were new."""
        ended = self._ended(facts, spans)
        clean = None if facts is None else self._redactor.redact_facts(facts)
        crashpoint("tracing.before_record")
        new = await self._patiently(
            lambda: self.store.record(
                clean, ended, export=self.exports, exported_through=exported_through
            )
        )
        crashpoint("tracing.after_record")
        if new and self._export is not None:
            self._export.wake()
        if self._metrics is not None:
            self._metrics.observe(new)
        return new

    async def fill_in(self, facts: RunFacts, spans: Sequence[Span]) -> None:
        """Store what another replica exports, so that this store is complete."""
        ended = self._ended(facts, spans)
        clean = self._redactor.redact_facts(facts)
        await self._patiently(lambda: self.store.record(clean, ended, is_backfill=True))

    async def rebuild(self, bus: Bus) -> CaughtUp:
        """Fill a newly created store with everything in the log."""
        return await catch_up(bus, self.store, redactor=self._redactor)

    async def count_skipped(self, events: int) -> None:
        """Count unreadable events. Each reading counts them again, so this is an upper bound."""
        await self._patiently(lambda: self.store.count(EVENTS_SKIPPED, events))

    def _ended(self, facts: RunFacts | None, spans: Sequence[Span]) -> list[Span]:
        root = facts.root if facts is not None else ""
        ended: list[Span] = []
        for span in spans:
            if not span.is_open:
                span.sampled = self._sampler.keeps(span.trace_id, sampled=span.sampled, root=root)
                ended.append(span)
        return self._redactor.redact_spans(ended)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Retry until the store succeeds; log the first failure and the recovery."""
        while True:
            try:
                result = await work()
            except StoreError as error:
                self._note_trouble(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._note_success()
                return result

    def _note_trouble(self, error: StoreError) -> None:
        self._failed_at = time.monotonic()
        if not self._is_in_trouble:
            self._is_in_trouble = True
            logger.error(
                "traces wait: the store cannot be used; nothing is lost, they are in the log",
                extra={"why": str(error)},
            )

    def _note_success(self) -> None:
        if self._is_in_trouble and time.monotonic() - self._failed_at > CALM_S:
            self._is_in_trouble = False
            logger.warning("the trace store can be used again")
