"""Read a store: runs, trees, spans, counters. Every query has its index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.counters import POSITION
from sandstream_actors.tracing.store.link import StoreLink
from sandstream_actors.tracing.store.rows import RUN_COLUMNS, SPAN_COLUMNS, facts_of, span_of
from sandstream_actors.tracing.store.schema import VERSION_KEY
from sandstream_actors.tracing.store.stats_queries import TraceStats, read_stats

Which = Literal["all", "top_level", "trees"]
"""All runs; runs without a parent; those with all runs below them."""
Before = tuple[int, str]
"""``started_ns`` and ``run`` of the last run of a page; the next page starts after it."""

_RUNS: Final = f"SELECT {', '.join(RUN_COLUMNS)} FROM runs"
_SPANS: Final = f"SELECT {', '.join(SPAN_COLUMNS)} FROM spans"
_NEWEST: Final = "ORDER BY started_ns DESC, run DESC LIMIT ?"


class TraceReader:
    """A read-only store. Its opener closes it."""

    def __init__(self, link: StoreLink) -> None:
        self._link = link

    @classmethod
    async def open_to_read(cls, path: Path) -> TraceReader | None:
        """Open without creating or changing anything; ``None`` if there is no store."""
        link = StoreLink(path)
        return TraceReader(link) if await link.open_to_read() else None

    async def close(self) -> None:
        await self._link.close()

    @property
    def path(self) -> Path:
        return self._link.path

    async def run(self, run: str) -> RunFacts | None:
        found = await self._facts(f"{_RUNS} WHERE run = ?", run)
        return found[0] if found else None

    async def runs(
        self,
        *,
        limit: int = 50,
        before: Before | None = None,
        status: str | None = None,
        agent: str | None = None,
        any_agent: str | None = None,
        since_ns: int | None = None,
        which: Which = "all",
    ) -> list[RunFacts]:
        """The newest runs first. ``trees`` adds the runs below them, regardless of the filters.
        ``agent`` is the last agent of a run, ``any_agent`` the first or the last one.
        """
        tests: dict[str, tuple[Any, ...]] = {}
        if which != "all":
            tests["parent = ''"] = ()
        if status is not None:
            tests["status = ?"] = (status,)
        if agent is not None:
            tests["agent = ?"] = (agent,)
        if any_agent is not None:
            tests["(agent = ? OR first_agent = ?)"] = (any_agent, any_agent)
        if since_ns is not None:
            tests["started_ns >= ?"] = (since_ns,)
        if before is not None:
            tests["(started_ns, run) < (?, ?)"] = before
        where = f"WHERE {' AND '.join(tests)}" if tests else ""
        values = [value for it in tests.values() for value in it]
        found = await self._facts(f"{_RUNS} {where} {_NEWEST}", *values, limit)
        if which != "trees" or not found:
            return found
        below = await self._facts(
            f"{_RUNS} WHERE root IN (SELECT value FROM json_each(?)) AND parent != '' "
            "ORDER BY started_ns DESC, run DESC",
            _json(facts.run for facts in found),
        )
        return sorted([*found, *below], key=lambda it: (it.started_ns, it.run), reverse=True)

    async def tree(self, root: str) -> list[RunFacts]:
        """The run at the top and all runs below it, oldest first."""
        return await self._facts(f"{_RUNS} WHERE root = ? ORDER BY started_ns", root)

    async def last_seqs(self, runs: Iterable[str]) -> dict[str, int]:
        """For those of the runs that are known to have ended: the last sequence that was read."""
        rows = await self._link.fetch(
            "SELECT run, last_seq FROM runs "
            "WHERE run IN (SELECT value FROM json_each(?)) AND is_over = 1",
            (_json(runs),),
        )
        return dict(rows)

    async def unfinished(self, limit: int, older_than_ns: int) -> list[RunFacts]:
        """Open runs that were last written before a time, the longest ago first."""
        return await self._facts(
            f"{_RUNS} WHERE is_over = 0 AND written_ns < ? ORDER BY written_ns LIMIT ?",
            older_than_ns,
            limit,
        )

    async def run_count(self) -> int:
        ((count,),) = await self._link.fetch("SELECT count(*) FROM runs")
        return int(count)

    async def active_count(self) -> int:
        ((count,),) = await self._link.fetch("SELECT count(*) FROM runs WHERE is_over = 0")
        return int(count)

    async def spans(self, run: str) -> list[Span]:
        """The ended spans of a run, ordered by start."""
        rows = await self._link.fetch(f"{_SPANS} WHERE run = ? ORDER BY start_ns", (run,))
        return list(map(span_of, rows))

    async def spans_of_tree(self, root: str) -> list[Span]:
        """The spans of all runs of a tree, and those that programs reported for its trace."""
        rows = await self._link.fetch(
            f"{_SPANS} WHERE run IN (SELECT run FROM runs WHERE root = ?) "
            "UNION "
            f"{_SPANS} WHERE trace_id = (SELECT trace_id FROM runs WHERE run = ?) AND run = '' "
            "ORDER BY start_ns",
            (root, root),
        )
        return list(map(span_of, rows))

    async def spans_of_trace(self, trace_id: str) -> list[Span]:
        """All spans with this trace id, including other runs of the same caller."""
        rows = await self._link.fetch(f"{_SPANS} WHERE trace_id = ? ORDER BY start_ns", (trace_id,))
        return list(map(span_of, rows))

    async def stats(self, since_ns: int = 0, *, agent: str | None = None) -> TraceStats:
        """Sums over the runs and calls that began since then."""
        return await read_stats(self._link, since_ns, agent)

    async def counters(self) -> dict[str, int]:
        """How much was dropped or skipped, and how many spans wait to be exported."""
        rows = await self._link.fetch(
            "SELECT key, value FROM meta WHERE key NOT IN (?, ?) "
            "UNION ALL SELECT 'outbox', count(*) FROM outbox",
            (VERSION_KEY, POSITION),
        )
        return dict(rows)

    async def position(self) -> int:
        """The sequence of the log up to which every run is in the store."""
        rows = await self._link.fetch("SELECT value FROM meta WHERE key = ?", (POSITION,))
        return int(rows[0][0]) if rows else 0

    async def _facts(self, sql: str, *values: Any) -> list[RunFacts]:
        return list(map(facts_of, await self._link.fetch(sql, values)))


def _json(values: Iterable[str]) -> str:
    return msgspec.json.encode(list(values)).decode()
