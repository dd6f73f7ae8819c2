"""Puts traces into the store, and from there on their way out; waits for a store in trouble.

The log has everything that waits here, so waiting costs nothing but time. It is done in the
message's own place in the actor: a full disk must not let messages pile up in memory.
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
"""Trouble is over after so long without: on a disk that is almost full, some writes succeed."""
T = TypeVar("T")


class TraceKeeper:
    """What the actor and its sweep share. It owns neither the store nor the exporter."""

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
        """A run is under way."""
        await self._patiently(lambda: self.store.begin(self._redactor.redact_facts(facts)))

    async def keep(
        self, facts: RunFacts | None, spans: Sequence[Span], *, exported_through: int = 0
    ) -> list[Span]:
        """What has ended of a run, or of no run; those that were not known before."""
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
        """What another replica exports, or will: kept here so that this store is whole."""
        ended = self._ended(facts, spans)
        clean = self._redactor.redact_facts(facts)
        await self._patiently(lambda: self.store.record(clean, ended, is_backfill=True))

    async def rebuild(self, bus: Bus) -> CaughtUp:
        """Fill a store that was begun anew with all that the log has."""
        return await catch_up(bus, self.store, redactor=self._redactor)

    async def count_skipped(self, events: int) -> None:
        """Events that cannot be read here. Counted with each reading, so it is an upper bound."""
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
        """Do it until the store can; said once, and when it is over."""
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
