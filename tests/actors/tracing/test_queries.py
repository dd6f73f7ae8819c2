"""What can be asked of a store: lists, trees, sums; and that each question has its index."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from actors.tracing.traces_by_hand import DAY, SECOND, chat, facts, opened, span, tool
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.link import StoreLink
from sandstream_actors.tracing.store.queries import TraceReader
from sandstream_actors.tracing.store.stats_queries import CallStats, Latency, RunStats
from sandstream_bus.wire.messages import ErrorInfo


def test_lists_are_paged_and_filtered(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            for n in range(10):
                status = "failed" if n % 3 == 0 else "completed"
                agent = "a" if n % 2 else "b"
                at = (n // 2 + 1) * SECOND  # two each have the same time
                await store.record(facts(f"r{n}", status=status, agent=agent, started_ns=at), [])

            async def names(**how: Any) -> list[str]:
                return [it.run for it in await store.runs(**how)]

            everything = [f"r{n}" for n in range(9, -1, -1)]
            assert await names() == everything
            pages: list[str] = []
            page = await store.runs(limit=3)
            while page:
                pages += [it.run for it in page]
                last = (page[-1].started_ns, page[-1].run)
                page = await store.runs(limit=3, before=last)
            assert pages == everything
            assert await names(status="failed") == ["r9", "r6", "r3", "r0"]
            assert await names(agent="a", limit=2) == ["r9", "r7"]
            assert await names(agent="a", status="failed") == ["r9", "r3"]
            assert await names(since_ns=4 * SECOND) == ["r9", "r8", "r7", "r6"]
            assert await names(
                since_ns=4 * SECOND, status="completed", before=(5 * SECOND, "")
            ) == ["r7"]

    asyncio.run(main())


def test_trees(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            await store.record(facts("top", started_ns=1), [span("top", 1)])
            await store.record(
                facts("mid", started_ns=2, parent="top", root="top", trace_id="trace-top"),
                [span("mid", 2, trace_id="trace-top")],
            )
            await store.record(
                facts("leaf", started_ns=3, parent="mid", root="top", trace_id="trace-top"),
                [span("leaf", 3, trace_id="trace-top")],
            )
            await store.record(facts("other", started_ns=4), [span("other")])
            await store.record(None, [span("", 0, trace_id="trace-top", span_id="mine")])
            assert [it.run for it in await store.tree("top")] == ["top", "mid", "leaf"]
            assert [it.run for it in await store.runs(which="top_level")] == ["other", "top"]
            assert [it.run for it in await store.runs(which="trees")] == [
                *("other", "leaf", "mid", "top")
            ]
            assert [it.run for it in await store.runs(which="trees", limit=1)] == ["other"]
            ids = ["mine", "top-1", "mid-2", "leaf-3"]
            assert [it.span_id for it in await store.spans_of_tree("top")] == ids
            assert [it.span_id for it in await store.spans_of_trace("trace-top")] == ids
            assert [it.span_id for it in await store.spans("mid")] == ["mid-2"]
            assert await store.spans_of_tree("nobody") == []
            assert await store.tree("nobody") == []

    asyncio.run(main())


def test_the_sweep_gets_each_run_under_way_in_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            for n in range(4):
                status = "waiting" if n == 2 else "running"
                await store.begin(facts(f"r{n}", status=status, ended_ns=0, started_ns=90 - n))
            await store.record(facts("over"), [])
            assert await store.active_count() == 4
            first = await store.unfinished(2, time.time_ns() + 1)
            assert [it.run for it in first] == ["r0", "r1"]
            looked_at = time.time_ns()
            for run in first:
                await store.record(run, [])
            rest = await store.unfinished(9, looked_at)
            assert [it.run for it in rest] == ["r2", "r3"]
            assert await store.last_seqs(["over", "r0", "nobody"]) == {"over": 9}

    asyncio.run(main())


def _with(span: Span, attributes: dict[str, Any]) -> Span:
    return msgspec.structs.replace(span, attributes=span.attributes | attributes)


def test_sums_by_agent_model_tool_and_day(tmp_path: Path) -> None:
    tries: dict[str, Any] = {semconv.RETRIES: 1, semconv.ATTEMPTS: 2, semconv.TAKEOVERS: 1}

    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            for n in range(1, 21):
                run = f"r{n:02}"
                at = DAY * (3 if n <= 15 else 4) + DAY // 2
                took = n * SECOND
                await store.record(
                    facts(
                        run, started_ns=at, ended_ns=at + took, turns=2, agent="late", takeovers=1
                    ),
                    [
                        _with(chat(run, 1, start_ns=at, end_ns=at + took, queued_ns=n), tries),
                        tool(run, 2, start_ns=at, end_ns=at + n),
                    ],
                )
            code = ErrorInfo(code="model_failed", message="no")
            bad = {"started_ns": 3 * DAY + DAY // 2, "first_agent": "b", "turns": 0}
            await store.record(facts("f1", status="failed", error=code, **bad), [])
            await store.record(facts("f2", status="failed", error=code, **bad), [])
            await store.record(facts("f3", status="cancelled", **bad), [])
            await store.record(facts("w", status="waiting", **bad | {"ended_ns": 0}), [])
            await store.record(
                facts("u", status="running", **bad | {"ended_ns": 0}),
                [
                    chat("u", 1, "m2", agent="b", error="429", start_ns=3 * DAY + DAY // 2),
                    tool("u", 2, "search", agent="b", error="boom", start_ns=3 * DAY + DAY // 2),
                ],
            )
            stats = await store.stats()
            assert stats.failures == {"model_failed": 2, "cancelled": 1}
            assert (stats.total.runs, stats.total.completed, stats.total.failed) == (25, 20, 3)
            assert (stats.total.waiting, stats.total.running) == (1, 1)
            assert (stats.total.input_tokens, stats.total.output_tokens) == (2100, 210)
            assistant, other = stats.agents
            assert assistant == RunStats(
                name="assistant",
                runs=20,
                completed=20,
                turns=40,
                takeovers=20,
                input_tokens=2000,
                output_tokens=200,
                latency=Latency(p50_ns=10 * SECOND, p95_ns=19 * SECOND, max_ns=20 * SECOND),
            )
            assert (other.name, other.runs, other.failed, other.input_tokens) == ("b", 5, 3, 100)
            gpt, failing = stats.models
            assert gpt == CallStats(
                name="gpt-5",
                calls=20,
                retries=20,
                attempts=40,
                takeovers=20,
                input_tokens=2000,
                output_tokens=200,
                latency=Latency(p50_ns=10 * SECOND, p95_ns=19 * SECOND, max_ns=20 * SECOND),
                queue=Latency(p50_ns=10, p95_ns=19, max_ns=20),
            )
            assert (failing.name, failing.calls, failing.errors) == ("m2", 1, 1)
            assert failing.latency == Latency(), (
                "a call that failed says nothing of how long it takes"
            )
            assert [(it.name, it.calls, it.errors, it.attempts) for it in stats.tools] == [
                *(("get_weather", 20, 0, 20), ("search", 1, 1, 1))
            ]
            assert [(it.runs, it.input_tokens) for it in stats.days] == [(20, 1600), (5, 500)]
            assert all(re.fullmatch(r"1970-01-0\d", it.name) for it in stats.days)

            of_b = await store.stats(agent="b")
            assert [it.name for it in of_b.agents] == ["b"]
            assert [it.name for it in of_b.models] == ["m2"]
            assert (of_b.total.runs, of_b.failures) == (5, stats.failures)
            late = await store.stats(4 * DAY)
            assert (late.total.runs, late.failures, len(late.models)) == (5, {}, 1)
            nothing = await store.stats(9 * DAY)
            assert nothing.total == RunStats(name="")
            assert not (nothing.agents or nothing.models or nothing.tools or nothing.days)

    asyncio.run(main())


class _Asking(StoreLink):
    """A link that also notes how SQLite would answer each question."""

    plans: list[str]

    async def fetch(self, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        plan = await super().fetch(f"EXPLAIN QUERY PLAN {sql}", parameters)
        self.plans += [row[3] for row in plan]
        return await super().fetch(sql, parameters)

    def stream(self, sql: str, parameters: Any) -> AsyncIterator[list[tuple[Any, ...]]]:
        async def rows() -> AsyncIterator[list[tuple[Any, ...]]]:
            yield await self.fetch(sql, parameters)

        return rows()


QUESTIONS: dict[str, Sequence[Any]] = {
    "run": ("r1",),
    "tree": ("r1",),
    "spans": ("r1",),
    "spans_of_tree": ("r1",),
    "spans_of_trace": ("t",),
    "unfinished": (9, 9),
    "active_count": (),
    "last_seqs": (["r1"],),
    "stats": (9,),
    "position": (),
}
LISTS: list[dict[str, Any]] = [
    {},
    {"before": (9, "r1")},
    {"since_ns": 9},
    {"status": "failed"},
    {"agent": "a"},
    {"which": "top_level"},
    {"which": "top_level", "before": (9, "r1")},
    {"status": "failed", "before": (9, "r1"), "which": "top_level"},
    {"agent": "a", "since_ns": 9},
    {"which": "trees"},
]


@pytest.mark.parametrize("question", [*QUESTIONS, *range(len(LISTS))], ids=lambda it: str(it))
def test_no_question_reads_a_whole_table(tmp_path: Path, question: str | int) -> None:
    """Nor sorts all that it finds, where only the newest are wanted."""
    path = tmp_path / "t.db"

    async def main() -> list[str]:
        async with opened(path) as store:
            await store.record(facts(), [span()])
        link = _Asking(path)
        link.plans = []
        assert await link.open_to_read()
        reader = TraceReader(link)
        try:
            if isinstance(question, int):
                await reader.runs(**LISTS[question])
            else:
                await getattr(reader, question)(*QUESTIONS[question])
        finally:
            await reader.close()
        return link.plans

    plans = asyncio.run(main())
    assert plans
    scanned = [it for it in plans if re.match(r"SCAN (runs|spans|outbox)\b(?!.* USING )", it)]
    assert scanned == []
    if isinstance(question, int) and LISTS[question].get("which") != "trees":
        assert not [it for it in plans if "TEMP B-TREE" in it]


def test_the_check_above_sees_a_scan(tmp_path: Path) -> None:
    plain = sqlite3.connect(tmp_path / "x.db")
    plain.execute("CREATE TABLE runs (run TEXT, workflow TEXT)")
    (row,) = plain.execute("EXPLAIN QUERY PLAN SELECT * FROM runs WHERE workflow = 'x'")
    plain.close()
    assert re.match(r"SCAN (runs|spans|outbox)\b(?!.* USING )", row[3])
