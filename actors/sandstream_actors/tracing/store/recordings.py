"""Write facts and spans of many runs in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import aiosqlite
import msgspec

from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.limits import SpanLimits, limited
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.counters import add_to_counter
from sandstream_actors.tracing.store.rows import (
    RUN_COLUMNS,
    SPAN_COLUMNS,
    SPAN_SUMS,
    Row,
    run_row,
    span_row,
    whole_span,
)

SPANS_DROPPED: Final = "spans_dropped"


def _marks(count: int) -> str:
    return ", ".join("?" * count)


_ALL_OF_RUN: Final = (*RUN_COLUMNS, "is_over", "written_ns")
_PUT_RUN: Final = (
    f"INSERT INTO runs ({', '.join(_ALL_OF_RUN)}) VALUES ({_marks(len(_ALL_OF_RUN))}) "
    f"ON CONFLICT (run) DO UPDATE SET {', '.join(f'{it} = excluded.{it}' for it in _ALL_OF_RUN)} "
    "WHERE excluded.last_seq >= runs.last_seq"
)
_ALL_OF_SPAN: Final = (*SPAN_COLUMNS, *SPAN_SUMS, "is_handled")
_PUT_SPAN: Final = (
    f"INSERT OR IGNORE INTO spans ({', '.join(_ALL_OF_SPAN)}) VALUES ({_marks(len(_ALL_OF_SPAN))})"
)
_KNOWN: Final = (
    "SELECT s.trace_id, s.span_id, s.is_handled, s.run, s.kind FROM json_each(?) AS wanted "
    "CROSS JOIN spans AS s ON s.trace_id = json_extract(wanted.value, '$[0]') "
    "AND s.span_id = json_extract(wanted.value, '$[1]')"
)


Key = tuple[str, str]
"""The ids of a trace and a span."""


class _State(NamedTuple):
    """What is known about a stored span."""

    is_handled: bool
    """Whether it was processed, rather than only filled in from the log."""
    is_reported: bool


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that are ready to be written; all conversions are done."""

    run: Row | None
    spans: list[Span]
    rows: list[Row]
    outgoing: list[bytes]
    """The encoded spans for the outbox; empty if they are not exported."""
    exported_through: int
    is_backfill: bool
    outbox_limit: int


def recording_of(
    facts: RunFacts | None,
    spans: Sequence[Span],
    limits: SpanLimits,
    *,
    now_ns: int,
    outbox_limit: int,
    export: bool = False,
    exported_through: int = 0,
    is_backfill: bool = False,
) -> Recording:
    ended = [limited(span, limits) for span in spans if not span.is_open]
    return Recording(
        run=None if facts is None else run_row(facts, limits, now_ns),
        spans=ended,
        rows=[span_row(span) for span in ended],
        outgoing=[whole_span(span) for span in ended] if export else [],
        exported_through=exported_through,
        is_backfill=is_backfill,
        outbox_limit=outbox_limit,
    )


async def apply_recordings(
    connection: aiosqlite.Connection, recordings: Sequence[Recording]
) -> list[list[Span]]:
    """Write the recordings; return the new spans of each."""
    runs = [it.run for it in recordings if it.run is not None]
    if runs:
        await connection.executemany(_PUT_RUN, runs)
    states = await _states(connection, recordings)
    inserts: dict[Key, Row] = {}
    handled: list[Key] = []
    replaced: list[Key] = []
    outgoing: dict[Key, bytes] = {}
    news: list[list[Span]] = []
    for recording in recordings:
        new: list[Span] = []
        for index, (span, row) in enumerate(zip(recording.spans, recording.rows, strict=True)):
            key = (span.trace_id, span.span_id)
            is_reported = _is_reported(span.run, span.kind)
            state = states.get(key)
            if state is not None and state.is_reported and not is_reported:
                outgoing.pop(key, None)
                replaced.append(key)  # the id of a future span is predictable and can be forged
                state = None
            if state is not None and (
                state.is_handled or recording.is_backfill or is_reported != state.is_reported
            ):
                continue
            if state is None:
                inserts[key] = (*row, not recording.is_backfill)
            else:
                handled.append(key)
            states[key] = _State(not recording.is_backfill, is_reported)
            new.append(span)
            is_exported = 0 < span.last_seq <= recording.exported_through
            if recording.outgoing and span.sampled and not is_exported:
                outgoing[key] = recording.outgoing[index]
        news.append(new)
    if replaced:
        for table in ("spans", "outbox"):
            await connection.executemany(
                f"DELETE FROM {table} WHERE trace_id = ? AND span_id = ?", replaced
            )
    if inserts:
        await connection.executemany(_PUT_SPAN, list(inserts.values()))
    if handled:
        await connection.executemany(
            "UPDATE spans SET is_handled = 1 WHERE trace_id = ? AND span_id = ?", handled
        )
    if outgoing:
        await connection.executemany(
            "INSERT INTO outbox (trace_id, span_id, span) VALUES (?, ?, ?)",
            [(*key, data) for key, data in outgoing.items()],
        )
        await _bound_outbox(connection, recordings[0].outbox_limit)
    return news


def _is_reported(run: str, kind: str) -> bool:
    """Whether a program reported the span, rather than a run's log or a sandbox's reply. Any client
    can report anything, so spans from the log take precedence.
    """
    return not run and kind == "internal"


async def _states(
    connection: aiosqlite.Connection, recordings: Sequence[Recording]
) -> dict[Key, _State]:
    """The spans that are already stored."""
    keys = [(span.trace_id, span.span_id) for it in recordings for span in it.spans]
    if not keys:
        return {}
    rows = await connection.execute_fetchall(_KNOWN, (msgspec.json.encode(keys).decode(),))
    return {
        (trace, span): _State(bool(handled), _is_reported(run, kind))
        for trace, span, handled, run, kind in rows
    }


async def _bound_outbox(connection: aiosqlite.Connection, limit: int) -> None:
    """Drop the oldest spans of an outbox that is too long. Counting is expensive, so it is done
    only if the range of numbers exceeds the limit.
    """
    ((first, last),) = await connection.execute_fetchall(
        "SELECT (SELECT min(n) FROM outbox), (SELECT max(n) FROM outbox)"
    )
    if last is None or last - first < limit:
        return
    ((waiting,),) = await connection.execute_fetchall("SELECT count(*) FROM outbox")
    await drop_oldest(connection, waiting - limit)


async def drop_oldest(connection: aiosqlite.Connection, count: int) -> int:
    """Drop the oldest spans of the outbox and count them; return how many were dropped."""
    if count <= 0:
        return 0
    cursor = await connection.execute(
        "DELETE FROM outbox WHERE n IN (SELECT n FROM outbox ORDER BY n LIMIT ?)", (count,)
    )
    dropped = cursor.rowcount
    if dropped:
        await add_to_counter(connection, SPANS_DROPPED, dropped)
    return dropped
