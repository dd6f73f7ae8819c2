"""The store keeps what it was told, once, never older facts over newer ones, and no contents."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import msgspec
from actors.tracing.traces_by_hand import DAY, SECOND, chat, facts, opened, span
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.limits import SpanLimits
from sandstream_actors.tracing.span import Span, SpanEvent, SpanLink
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_bus.wire.messages import ErrorInfo, TokenUsage

FULL = RunFacts(
    run="r1",
    trace_id="t" * 32,
    root="r0",
    parent="r0",
    workflow="weather",
    group_id="g",
    session="s",
    key="k",
    agent="b",
    first_agent="a",
    model="gpt-5",
    pool="main",
    status="failed",
    started_ns=1_700_000_000_123_456_789,
    ended_ns=1_700_000_001_123_456_789,
    turns=3,
    usage=TokenUsage(
        requests=3,
        input_tokens=1,
        output_tokens=2,
        total_tokens=3,
        cached_tokens=4,
        cache_write_tokens=5,
        reasoning_tokens=6,
    ),
    tool_calls=4,
    children=2,
    retries=1,
    takeovers=1,
    error=ErrorInfo(code="model_failed", message="No such luck."),
    last_seq=77,
    truncated=True,
)
RICH = Span(
    trace_id="t" * 32,
    span_id="s" * 16,
    parent_id="p" * 16,
    name="chat gpt-5",
    operation="chat",
    kind="client",
    run="r1",
    agent="a",
    start_ns=5,
    end_ns=9,
    queued_ns=2,
    error="429",
    error_message="slow down",
    attributes={"text": "ü", "yes": True, "n": -3, "part": 0.5, "names": ["a", "b"]},
    contents={"gen_ai.input.messages": "what only the outbox may hold"},
    events=[SpanEvent(name="retry", time_ns=7, attributes={"sandstream.retry.attempt": 1})],
    links=[SpanLink(trace_id="u" * 32, span_id="v" * 16, attributes={"sandstream.link": "fan_in"})],
    first_seq=3,
    last_seq=8,
)


def test_facts_and_spans_come_back_as_they_were(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            assert await store.record(FULL, [RICH], export=True) == [RICH]
        async with opened(tmp_path / "t.db") as store:
            assert await store.run("r1") == FULL
            assert await store.spans("r1") == [msgspec.structs.replace(RICH, contents={})]
            assert await store.outbox(10) == [(1, RICH)]
            assert await store.run("r2") is None
            assert await store.spans("r2") == []

    asyncio.run(main())


def test_every_field_of_facts_and_spans_is_in_the_test_above() -> None:
    """A field that is added without a place in the store would be lost without a word."""
    defaults = facts()
    same = {name for name in RunFacts.__struct_fields__ if getattr(FULL, name) == _default(name)}
    assert same == {"traced"}, "what is not traced is not stored"
    assert defaults.is_over
    plain = span()
    unset = {
        field.name
        for field in msgspec.structs.fields(Span)
        if field.default is not msgspec.NODEFAULT and getattr(RICH, field.name) == field.default
    }
    assert unset == {"sampled"}
    assert plain.sampled


def _default(name: str) -> object:
    (field,) = (it for it in msgspec.structs.fields(RunFacts) if it.name == name)
    return field.default


def test_older_facts_do_not_overwrite_newer_ones(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            await store.record(facts(last_seq=9, turns=3), [])
            await store.begin(facts(last_seq=1, status="running", ended_ns=0, turns=0))
            known = await store.run("r1")
            assert known is not None and known.turns == 3 and known.is_over
            await store.record(facts(last_seq=9, turns=4), [])
            await store.record(facts(last_seq=20, status="running", ended_ns=0), [])
            known = await store.run("r1")
            assert known is not None and known.last_seq == 20 and not known.is_over
            assert await store.active_count() == 1

    asyncio.run(main())


def test_spans_are_new_once_and_only_when_they_have_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            first, second, lasting = span(number=1), span(number=2), span(number=3, end_ns=0)
            running = facts(status="running", ended_ns=0, last_seq=4)
            assert await store.record(running, [first, lasting], export=True) == [first]
            assert await store.record(running, [first, lasting], export=True) == []
            ended = span(number=3)
            over = facts(last_seq=9)
            assert await store.record(over, [first, second, ended], export=True) == [second, ended]
            assert [it.span_id for _, it in await store.outbox(9)] == ["r1-1", "r1-2", "r1-3"]

    asyncio.run(main())


def test_what_was_filled_in_is_still_new_to_who_handles_it(tmp_path: Path) -> None:
    """A reader that fills the store before the actor comes must not keep spans from the export."""

    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            spans = [span(number=1), span(number=2)]
            assert await store.record(facts(), spans, is_backfill=True) == spans
            assert await store.record(facts(), spans, is_backfill=True) == []
            assert await store.outbox(9) == []
            assert await store.record(facts(), spans, export=True) == spans
            assert len(await store.outbox(9)) == 2
            assert await store.record(facts(), spans, is_backfill=True) == []
            assert await store.record(facts(), spans, export=True) == []
            assert len(await store.outbox(9)) == 2
            assert len(await store.spans("r1")) == 2

    asyncio.run(main())


def test_spans_that_were_exported_elsewhere_do_not_go_out_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            reported = span(number=3, last_seq=0)
            spans = [span(number=1, last_seq=5), span(number=2, last_seq=6), reported]
            unsampled = span(number=4, last_seq=7, sampled=False)
            new = await store.record(facts(), [*spans, unsampled], export=True, exported_through=5)
            assert len(new) == 4
            assert [it.span_id for _, it in await store.outbox(9)] == ["r1-2", "r1-3"]

    asyncio.run(main())


def test_nothing_is_kept_of_a_run_that_wants_no_trace(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            assert await store.record(facts(traced=False), [span()], export=True) == []
            await store.begin(facts("r2", traced=False))
            assert await store.runs() == []
            assert await store.outbox(9) == []
            assert await store.spans("r1") == []

    asyncio.run(main())


def test_many_callers_share_a_transaction_and_each_gets_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            both = span("shared", 1)
            results = await asyncio.gather(
                *(
                    store.record(facts(f"r{n}"), [span(f"r{n}", 1), both], export=True)
                    for n in range(600)
                )
            )
            assert [new[0].run for new in results] == [f"r{n}" for n in range(600)]
            assert sum(both in new for new in results) == 1
            assert len(await store.runs(limit=1000)) == 600
            assert (await store.counters())["outbox"] == 601

    asyncio.run(main())


def test_a_caller_that_gives_up_takes_nobody_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            leaving = asyncio.create_task(store.record(facts("r1"), [span("r1")]))
            staying = asyncio.create_task(store.record(facts("r2"), [span("r2")]))
            await asyncio.sleep(0)
            leaving.cancel()
            assert len(await staying) == 1
            await asyncio.wait([leaving])
            assert leaving.cancelled()
            assert await store.run("r2") is not None

    asyncio.run(main())


def test_closing_writes_what_was_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            tasks = [asyncio.create_task(store.record(facts(f"r{n}"), [])) for n in range(300)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        async with opened(tmp_path / "t.db") as store:
            assert len(await store.runs(limit=500)) == 300

    asyncio.run(main())


def test_the_outbox_gives_the_oldest_first_and_forgets_what_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db") as store:
            await store.record(facts(), [span(number=n) for n in range(5)], export=True)
            numbers = [n for n, _ in await store.outbox(3)]
            assert numbers == [1, 2, 3]
            await store.outbox_done([1, 3])
            assert [n for n, _ in await store.outbox(9)] == [2, 4, 5]
            await store.outbox_done([2, 4, 5])
            await store.record(facts("r2"), [span("r2")], export=True)
            assert [n for n, _ in await store.outbox(9)] == [6], "numbers are never used again"

    asyncio.run(main())


def test_a_full_outbox_drops_the_oldest_and_counts_them_for_good(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db", outbox_limit=10) as store:
            await store.record(facts(), [span(number=n) for n in range(10)], export=True)
            assert "spans_dropped" not in await store.counters()
            await store.record(facts("r2"), [span("r2", n) for n in range(4)], export=True)
            assert [n for n, _ in await store.outbox(99)] == list(range(5, 15))
            await store.outbox_done(range(6, 12))
            await store.record(facts("r3"), [span("r3", n) for n in range(6)], export=True)
            assert len(await store.outbox(99)) == 10, "what was taken out makes room"
        async with opened(tmp_path / "t.db") as store:
            assert await store.counters() == {"spans_dropped": 4, "outbox": 10}

    asyncio.run(main())


def test_contents_are_only_in_the_outbox(tmp_path: Path) -> None:
    async def main() -> None:
        said = "the secret of the house"
        spoken = chat("r1", 1, contents={"gen_ai.input.messages": said})
        failed = facts(error=ErrorInfo(code="guardrail", message="no", data={"output": said}))
        async with opened(tmp_path / "t.db") as store:
            await store.record(failed, [spoken], export=True)
            ((n, waiting),) = await store.outbox(1)
            assert waiting.contents == {"gen_ai.input.messages": said}
            await store.outbox_done([n])
        with sqlite3.connect(tmp_path / "t.db") as plain:
            rows = [
                row
                for table in ("runs", "spans", "outbox", "meta")
                for row in plain.execute(f"SELECT * FROM {table}")
            ]
        plain.close()
        assert len(rows) == 3
        assert said not in repr(rows)

    asyncio.run(main())


def test_hostile_values_are_kept_within_limits(tmp_path: Path) -> None:
    nasty = "\x00'; DROP TABLE runs; --\x1b[31m\ud800 ü"

    async def main() -> None:
        attributes = {
            "long": "x" * 1_000_000,
            "huge": 10**40,
            "odd": float("nan"),
            "gen_ai.usage.input_tokens": 2**70,
            nasty: nasty,
        }
        more = {f"a{n}": n for n in range(200)}
        bad = chat("r1", 1, agent=nasty, error=nasty, attributes=attributes | more, contents={})
        run = facts(agent=nasty, workflow=nasty, turns=2**70, error=None)
        async with opened(tmp_path / "t.db", limits=SpanLimits()) as store:
            await store.record(run, [bad], export=True)
            (kept,) = await store.spans("r1")
            assert len(kept.attributes) == 64
            long = kept.attributes["long"]
            assert isinstance(long, str) and len(long) == 16 * 1024
            assert long.endswith("… (shortened from 1000000 characters)")
            assert str(kept.attributes["odd"]) == "nan"
            safe = nasty.replace("\ud800", "?")
            assert kept.attributes[safe] == safe
            known = await store.run("r1")
            assert known is not None and known.workflow == safe
            assert [it.name for it in (await store.stats()).agents] == sorted([safe, "assistant"])

    asyncio.run(main())


def test_old_runs_are_forgotten_and_those_under_way_are_not(tmp_path: Path) -> None:
    now = 100 * DAY

    async def main() -> None:
        async with opened(tmp_path / "t.db", max_age_days=30) as store:
            for n in range(250):
                began = (60 + n % 5) * DAY
                await store.record(
                    facts(f"old{n}", started_ns=began, ended_ns=began + SECOND),
                    [span(f"old{n}", start_ns=began, end_ns=began + SECOND)],
                )
            long = facts("long", started_ns=50 * DAY, ended_ns=99 * DAY)
            young = facts("young", started_ns=80 * DAY, ended_ns=0, status="running")
            stuck = facts("stuck", started_ns=50 * DAY, ended_ns=0, status="waiting")
            for run in (long, young, stuck):
                at = run.started_ns
                await store.record(run, [span(run.run, start_ns=at, end_ns=at + 1)])
            loose = [span("", n, start_ns=n * DAY, end_ns=n * DAY + 1) for n in (60, 90)]
            await store.record(None, loose)
            done = await store.retain(now)
            assert (done.runs, done.spans) == (251, 1)
            assert {it.run for it in await store.runs(limit=500)} == {"long", "young"}
            assert await store.spans("old7") == [] == await store.spans("stuck")
            assert len(await store.spans("long")) == 1
            assert [it.start_ns for it in await store.spans("")] == [90 * DAY]

    asyncio.run(main())


def test_a_store_that_is_too_big_forgets_the_oldest_and_gets_smaller(tmp_path: Path) -> None:
    path = tmp_path / "t.db"

    async def main() -> None:
        async with opened(path, max_bytes=2_000_000) as store:
            await store.begin(facts("under way", started_ns=1, ended_ns=0, status="running"))
            text = "x" * 5000
            for n in range(600):
                await store.record(
                    facts(f"r{n:03}", started_ns=n + 2),
                    [span(f"r{n:03}", attributes={"text": text}, contents={"said": text})],
                    export=n % 10 == 0,
                )
            done = await store.retain(DAY)
            left = [it.run for it in await store.runs(limit=1000)]
            assert left[-1] == "under way"
            assert left[:-1] == [f"r{n:03}" for n in range(599, done.runs - 1, -1)], "the newest"
            assert 0 < done.runs < 600
            assert done.dropped == 0
        assert path.stat().st_size < 2_100_000
        async with opened(path, max_bytes=1) as store:
            done = await store.retain(DAY)
            assert [it.run for it in await store.runs()] == ["under way"]
            assert await store.counters() == {"spans_dropped": 60, "outbox": 0}
            assert done.dropped == 60

    asyncio.run(main())


def test_an_outbox_that_nobody_empties_does_not_cost_all_history(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "t.db", max_bytes=2_000_000) as store:
            spoken = [span("r1", n, contents={"said": "x" * 5000}) for n in range(2000)]
            await store.record(facts("r1"), spoken, export=True)
            done = await store.retain(DAY)
            assert done.runs == 0 and done.dropped == 2000 - len(await store.outbox(5000))
            assert len(await store.spans("r1")) == 2000
            assert (await store.counters())["spans_dropped"] == done.dropped > 0

    asyncio.run(main())


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    async def main() -> None:
        store = await TraceStore.open(tmp_path / "new" / "traces.db")
        await store.begin(facts("r"))
        for file in (tmp_path / "new").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        await store.close()

    asyncio.run(main())
