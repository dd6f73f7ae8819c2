"""The trace store: facts about runs, their spans, and an outbox of spans to export.

It is one SQLite file, which several processes may share. It can be rebuilt from the log, so losing
it is harmless; what it has acknowledged survives the death of any process. Contents are only in the
outbox, until they are exported.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import aiosqlite
import msgspec

from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.limits import SpanLimits
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.counters import POSITION, add_to_counter, set_counter
from sandstream_actors.tracing.store.database import Prepare
from sandstream_actors.tracing.store.link import StoreLink
from sandstream_actors.tracing.store.queries import TraceReader
from sandstream_actors.tracing.store.recordings import SPANS_DROPPED, recording_of
from sandstream_actors.tracing.store.retention import Retained, retain
from sandstream_actors.tracing.store.rows import span_of_outbox
from sandstream_actors.tracing.store.writer import StoreWriter

logger = logging.getLogger(__name__)

_DAY_NS: Final = 86_400 * 1_000_000_000
MAX_AGE_DAYS: Final = 30.0
MAX_BYTES: Final = 1024**3
OUTBOX_LIMIT: Final = 100_000


class TraceStore(TraceReader):
    """A writable store. Open it with :meth:`open`; its opener closes it."""

    def __init__(
        self,
        link: StoreLink,
        *,
        max_age_days: float,
        max_bytes: int,
        outbox_limit: int,
        limits: SpanLimits,
    ) -> None:
        super().__init__(link)
        self._max_age_days = max_age_days
        self._max_bytes = max_bytes
        self._outbox_limit = outbox_limit
        self._limits = limits
        self._writer = StoreWriter(link)

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        max_age_days: float = MAX_AGE_DAYS,
        max_bytes: int = MAX_BYTES,
        outbox_limit: int = OUTBOX_LIMIT,
        limits: SpanLimits | None = None,
        prepare: Prepare | None = None,
    ) -> TraceStore:
        """Create or migrate the store. A damaged one is moved aside; see ``replaced``.

        ``prepare`` gets each writing connection, to set SQLite limits on it. Raises
        :class:`StoreUnavailable` and :class:`StoreTooNew`.
        """
        link = StoreLink(path, prepare)
        await link.open()
        return cls(
            link,
            max_age_days=max_age_days,
            max_bytes=max_bytes,
            outbox_limit=outbox_limit,
            limits=SpanLimits.from_env() if limits is None else limits,
        )

    async def close(self) -> None:
        """Write pending requests, then close."""
        await self._writer.close()
        await super().close()

    @property
    def replaced(self) -> Path | None:
        """Where a damaged store was moved, if this one replaced it since it was opened. The owner
        then reads the log again.
        """
        return self._link.replaced

    # --- runs -------------------------------------------------------------------------------------

    async def begin(self, facts: RunFacts) -> None:
        """Record that a run has started, unless more is already known about it."""
        await self.record(facts, ())

    async def record(
        self,
        facts: RunFacts | None,
        spans: Sequence[Span],
        *,
        export: bool = False,
        exported_through: int = 0,
        is_backfill: bool = False,
    ) -> list[Span]:
        """Store the facts and the ended spans of a run.

        Older facts never overwrite newer ones. Nothing is stored for a run with tracing disabled.

        Args:
            facts: may be ``None`` for spans of no run.
            export: put new spans into the outbox, except those that ended up to
                ``exported_through``.
            is_backfill: fill gaps from the log; such spans still count as new for the next caller
                without it.

        Returns:
            The new spans, once they are committed.
        """
        if facts is not None and not facts.traced:
            return []
        return await self._writer.record(
            recording_of(
                facts,
                spans,
                self._limits,
                now_ns=time.time_ns(),
                outbox_limit=self._outbox_limit,
                export=export,
                exported_through=exported_through,
                is_backfill=is_backfill,
            )
        )

    async def advance(self, position: int) -> None:
        """Note that all runs up to this sequence of the log are stored."""
        await self._writer.change(lambda it: set_counter(it, POSITION, position))

    async def count(self, name: str, by: int = 1) -> None:
        """Add to one of the ``counters``."""
        await self._writer.change(lambda it: add_to_counter(it, name, by))

    # --- export -----------------------------------------------------------------------------------

    async def outbox(self, limit: int) -> list[tuple[int, Span]]:
        """The oldest waiting spans with their numbers. They stay until :meth:`outbox_done`, so only
        one of the processes that share a store may export.
        """
        rows = await self._link.fetch("SELECT n, span FROM outbox ORDER BY n LIMIT ?", (limit,))
        found: list[tuple[int, Span]] = []
        unreadable: list[int] = []
        for n, data in rows:
            try:
                found.append((n, span_of_outbox(data)))
            except msgspec.MsgspecError:
                unreadable.append(n)
        if unreadable:
            logger.error(
                "dropped spans that cannot be read any more", extra={"count": len(unreadable)}
            )
            await self.outbox_done(unreadable)
            await self.count(SPANS_DROPPED, len(unreadable))
        return found

    async def outbox_done(self, numbers: Iterable[int]) -> None:
        """Delete spans that were exported or never will be."""
        rows = [(n,) for n in numbers]

        async def forget(connection: aiosqlite.Connection) -> None:
            await connection.executemany("DELETE FROM outbox WHERE n = ?", rows)

        await self._writer.change(forget)

    # --- maintenance ------------------------------------------------------------------------------

    async def retain(self, now_ns: int) -> Retained:
        """Delete what is too old or too much. The owner calls it from time to time."""
        oldest_ns = now_ns - int(self._max_age_days * _DAY_NS)
        return await retain(self._writer, oldest_ns=oldest_ns, max_bytes=self._max_bytes)
