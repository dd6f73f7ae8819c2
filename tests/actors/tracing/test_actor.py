"""The tracing actor on a real server: what it keeps and exports of each kind of message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.tracing.catch_up import catch_up
from sandstream_actors.tracing.export.sampling import Sampler
from sandstream_actors.tracing.export.settings import ExportSettings
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.metrics.instruments import Metrics
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_bus.bus import Bus
from sandstream_bus.wire.headers import ACTION, MSG_ID, TRACEPARENT
from sandstream_bus.wire.messages import ApprovalDecided, Claim, ErrorInfo
from sandstream_bus.wire.sandboxes import SandboxFailure, SandboxReply
from sandstream_bus.wire.trace_context import TraceContext, span_id_of
from sandstream_bus.wire.traces import ReportedSpan, SpansReported
from support.nats_server import NatsServer, open_bus
from support.tracing.traced_log import (
    LogWriter,
    Sink,
    by_id,
    caught_up,
    emptied,
    opened_store,
    tracing,
)
from support.waiting import eventually

CALLER = TraceContext("a" * 32, "b" * 16)
UNSAMPLED = TraceContext("a" * 32, "b" * 16, sampled=False)
Scene = Callable[[Bus, TraceStore, Sink], Awaitable[None]]


def play(nats_server: NatsServer, tmp_path: Path, scene: Scene) -> None:
    async def main() -> None:
        path = tmp_path / "traces.db"
        async with open_bus(nats_server) as bus, opened_store(path) as store:
            await scene(bus, store, Sink())

    asyncio.run(main())


def test_a_run_is_a_row_from_its_start_and_a_trace_at_its_end(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        run = LogWriter(bus, "r-1")
        async with tracing(bus, store, sink):
            await run.start()
            await caught_up(bus)
            begun = await store.run("r-1")
            assert begun is not None
            assert (begun.status, begun.first_agent, begun.pool) == ("running", "a", "main")
            assert await store.spans("r-1") == []
            await run.work()
            await run.end()
            await caught_up(bus)
            await emptied(store)
        kept = await store.run("r-1")
        assert kept == RunTrace.of("r-1", await bus.log.read(run.run)).facts()
        assert kept is not None and kept.status == "completed"
        assert by_id(await store.spans("r-1")) == by_id(await run.folded())
        assert by_id(sink.spans) == by_id(await run.folded())

    play(nats_server, tmp_path, scene)


def test_a_wildcard_as_the_id_of_a_run_stands_for_no_run(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """A server stores such a subject, and whoever reads it would read all runs."""

    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        run = LogWriter(bus, "r-1")
        await run.whole()
        (start, *_) = await bus.log.stored(run.run)
        for name in ("*", ">"):
            subject = f"{bus.subjects.prefix}.run.{name}.start.main"
            # a publish of ours would be refused
            await bus.connection.request(subject, start.data, headers={MSG_ID: f"odd {name}"})
        async with tracing(bus, store, sink):
            await caught_up(bus)
        await catch_up(bus, store)
        assert await store.run("r-1") is not None
        for name in ("*", ">"):
            assert await store.run(name) is None

    play(nats_server, tmp_path, scene)


def test_a_run_that_waits_for_people_shows_what_has_ended_and_goes_on(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        run = LogWriter(bus, "r-1")

        async def has_status(status: str) -> bool:
            found = await store.run("r-1")
            return found is not None and found.status == status

        async with tracing(bus, store, sink):
            await run.start()
            await run.work()
            await run.wait()
            await eventually(lambda: has_status("waiting"), what="it waits")
            assert "execute_tool f" in {span.name for span in await store.spans("r-1")}
            await run.decide()
            await eventually(lambda: has_status("running"), what="it goes on")
            await run.end()
            await caught_up(bus)
            await emptied(store)
        assert by_id(await store.spans("r-1")) == by_id(await run.folded())
        assert by_id(sink.spans) == by_id(await run.folded())

    play(nats_server, tmp_path, scene)


def test_nothing_is_kept_of_a_run_that_wants_no_trace(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        async with tracing(bus, store, sink, sweep_s=0.05):
            secret = LogWriter(bus, "secret")
            await secret.start({"traced": False})
            await secret.work()
            await secret.wait()
            await caught_up(bus)
            await secret.end()
            await LogWriter(bus, "open").whole()
            await caught_up(bus)
            await emptied(store)
        assert [it.run for it in await store.runs()] == ["open"]
        assert await store.spans("secret") == []
        assert {span.run for span in sink.spans} == {"open"}

    play(nats_server, tmp_path, scene)


@pytest.mark.parametrize(
    ("sampler", "exported"),
    [(None, ["sampled"]), (Sampler("always_on"), ["sampled", "unsampled"])],
    ids=["parent-based", "always"],
)
def test_a_caller_that_is_not_sampled_is_kept_and_not_exported(
    nats_server: NatsServer, tmp_path: Path, sampler: Sampler | None, exported: list[str]
) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        async with tracing(bus, store, sink, sampler=sampler):
            await LogWriter(bus, "unsampled").whole(caller=UNSAMPLED)
            await LogWriter(bus, "sampled").whole(caller=CALLER)
            await caught_up(bus)
            await emptied(store)
        assert len(await store.spans("unsampled")) == len(await store.spans("sampled")) > 3
        assert {span.trace_id for span in sink.spans} == {CALLER.trace_id}
        assert sorted({span.run for span in sink.spans}) == exported

    play(nats_server, tmp_path, scene)


def test_another_group_makes_all_traces_once_more_but_a_store_has_each_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        runs = [LogWriter(bus, f"r-{number}") for number in range(5)]
        async with tracing(bus, store, sink):
            for run in runs:
                await run.whole()
            await caught_up(bus)
        async with tracing(bus, store, sink, group="other"):
            await caught_up(bus, "other")
            await emptied(store)
        folded = [span for run in runs for span in await run.folded()]
        assert by_id(sink.spans) == by_id(folded)

    play(nats_server, tmp_path, scene)


def test_a_new_group_can_begin_with_what_comes(nats_server: NatsServer, tmp_path: Path) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        await LogWriter(bus, "old").whole()
        async with tracing(bus, store, sink, only_new=True):
            await LogWriter(bus, "new").whole()
            await eventually(lambda: store.spans("new"), what="the new run is there")
        assert [it.run for it in await store.runs()] == ["new"]

    play(nats_server, tmp_path, scene)


def test_events_that_cannot_be_read_leave_gaps_and_are_counted(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        prefix = bus.subjects.prefix
        gone = Claim(of="call.finished", digest="0" * 64, size_bytes=9)
        broken = (b"{", b'{"type":"moon.landed"}', msgspec.json.encode(gone))
        run = LogWriter(bus, "r-1")
        async with tracing(bus, store, sink):
            await bus.connection.publish(f"{prefix}.run.bad.start.main", b"{", msg_id="bad")
            await run.start()
            for number, data in enumerate(broken):
                subject = f"{prefix}.run.r-1.result.main"
                await bus.connection.publish(subject, data, msg_id=f"broken-{number}")
            await run.work()
            await run.end()
            await caught_up(bus)
        assert [it.run for it in await store.runs()] == ["r-1"]
        assert "execute_tool f" in {span.name for span in await store.spans("r-1")}
        assert (await store.counters())["events_skipped"] == 1 + len(broken)
        assert await bus.parking.list() == []

    play(nats_server, tmp_path, scene)


def test_a_decision_about_no_run_makes_no_run(nats_server: NatsServer, tmp_path: Path) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        async with tracing(bus, store, sink):
            ghost = LogWriter(bus, "ghost")
            await ghost.put("approval.decided", ApprovalDecided(call="t1-0", approve=True))
            subject = bus.subjects.approval_decided("other-ghost")
            await bus.connection.publish(subject, b"\xff", msg_id="x")
            await caught_up(bus)
        assert await store.runs() == []
        assert await bus.parking.list() == []

    play(nats_server, tmp_path, scene)


def test_secrets_are_neither_kept_nor_exported(nats_server: NatsServer, tmp_path: Path) -> None:
    key = "sk-proj-" + "a1B2" * 12

    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        run = LogWriter(bus, "r-1")
        async with tracing(bus, store, sink, contents=True):
            await run.start()
            failure = ErrorInfo(code="model_http", message=f"Incorrect API key provided: {key}")
            await run.end(status="failed", error=failure)
            await caught_up(bus)
            await emptied(store)
        kept = await store.run("r-1")
        assert kept is not None and kept.error is not None
        assert kept.error.code == "model_http"
        assert key not in repr([kept, await store.spans("r-1"), sink.spans])

    play(nats_server, tmp_path, scene)


def test_spans_of_programs_are_kept_under_their_trace_and_bad_ones_are_parked(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    trace_id = CALLER.trace_id
    now = time.time_ns()  # what is too old is not kept
    good = SpansReported(
        trace_id=trace_id,
        workflow_name="Report",
        group_id="march",
        spans=[
            ReportedSpan(
                span_id="1" * 16, name="Report", operation="workflow", start_ns=now, end_ns=now + 90
            ),
            ReportedSpan(
                span_id="2" * 16,
                parent_id="1" * 16,
                name="fetch",
                operation="process",
                start_ns=now + 50,
                end_ns=now + 20,
                error="TimeoutError",
                attributes={"rows": 3, "who": ["a"], "nested": {"x": [1]}, "none": None},
                contents={"query": "select 1"},
            ),
        ],
    )
    good_body = msgspec.json.encode(good)
    bad = {
        f"trace.{'c' * 32}.spans": good_body,
        f"trace.{trace_id}.spans": b'{"type":"spans.exported","through":3}',
        "trace.x.spans": b"\xff",
        "trace.y.spans": good_body.replace(b'"1111', b'"<tag'),
        "trace.z.spans": msgspec.json.encode(Claim(of="x", digest="0" * 64, size_bytes=1)),
    }

    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        async with tracing(bus, store, sink):
            for number, (subject, data) in enumerate(bad.items()):
                where = f"{bus.subjects.prefix}.{subject}"
                await bus.connection.publish(where, data, msg_id=f"bad-{number}")
            for number in range(2):
                where = bus.subjects.trace_spans(trace_id)
                await bus.connection.publish(where, good_body, msg_id=f"good-{number}")
            await caught_up(bus)
            await emptied(store)
        assert len(await bus.parking.list()) == len(bad)
        kept = by_id(await store.spans_of_trace(trace_id))
        assert set(kept) == {"1" * 16, "2" * 16}
        workflow, fetch = kept["1" * 16], kept["2" * 16]
        assert (workflow.operation, workflow.run) == ("workflow", "")
        assert workflow.attributes["gen_ai.workflow.name"] == "Report"
        assert (fetch.operation, fetch.parent_id, fetch.error) == (
            "custom",
            "1" * 16,
            "TimeoutError",
        )
        assert (fetch.start_ns, fetch.end_ns) == (now + 50, now + 50)
        assert fetch.attributes["nested"] == '{"x":[1]}'
        assert "query" not in repr(sink.spans)
        assert sorted(sink.ids) == ["1" * 16, "2" * 16]

    play(nats_server, tmp_path, scene)


def test_huge_and_hostile_spans_of_programs_are_cut(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    hostile = "</script>\x00\x1b[31m\u2028" + "x" * 1_000_000
    many: dict[str, object] = {f"name-{number}": number for number in range(500)}
    span = ReportedSpan(
        span_id="1" * 16,
        name=hostile,
        operation=hostile,
        start_ns=time.time_ns(),
        end_ns=0,
        error=hostile,
        attributes={"big": hostile, "int": 2**200, "list": ["y" * 99_999] * 9} | many,
    )
    message = SpansReported(trace_id=CALLER.trace_id, spans=[span], workflow_name=hostile)

    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        async with tracing(bus, store, sink):
            where = bus.subjects.trace_spans(CALLER.trace_id)
            await bus.connection.publish(where, await bus.codec.encode(message), msg_id="huge")
            await caught_up(bus)
            await emptied(store)
        assert await bus.parking.list() == []
        (kept,) = await store.spans_of_trace(CALLER.trace_id)
        assert len(kept.name) <= 256 and kept.operation == "custom"
        assert len(kept.attributes) <= 64
        assert len(msgspec.json.encode(kept)) < 250_000
        assert sink.spans == [kept]

    play(nats_server, tmp_path, scene)


def test_an_operation_on_a_sandbox_is_a_span_of_whoever_asked_within_one(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        failed = SandboxFailure(code="timeout", message="took too long")
        headers = {TRACEPARENT: CALLER.header, ACTION: "exec"}
        async with tracing(bus, store, sink):
            await bus.sandboxes.reply("box", SandboxReply(op="o1", result=Raw(b"{}")))
            reply = SandboxReply(op="o2", result=Raw(b"{}"), duration_ms=120)
            await bus.sandboxes.reply("box", reply, headers=headers)
            await bus.sandboxes.reply(
                "box", SandboxReply(op="o3", error=failed), headers={TRACEPARENT: CALLER.header}
            )
            await caught_up(bus)
            await emptied(store)
        kept = by_id(await store.spans_of_trace(CALLER.trace_id))
        assert set(kept) == {span_id_of("box", "op:o2"), span_id_of("box", "op:o3")}
        done, broken = kept[span_id_of("box", "op:o2")], kept[span_id_of("box", "op:o3")]
        assert (done.name, done.parent_id, done.error) == ("sandbox.exec", CALLER.span_id, "")
        assert done.end_ns - done.start_ns == 120_000_000
        assert (broken.name, broken.error) == ("sandbox.operation", "timeout")
        assert sorted(sink.ids) == sorted(kept)

    play(nats_server, tmp_path, scene)


def test_metrics_count_each_run_once_and_show_how_things_stand(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    settings = ExportSettings(metrics=["prometheus"], prometheus_port=0)

    async def scene(bus: Bus, store: TraceStore, sink: Sink) -> None:
        metrics = Metrics(settings)

        def scraped() -> str:
            with urlopen(f"http://127.0.0.1:{metrics.prometheus_port}/metrics") as answer:
                text: str = answer.read().decode()
            return text

        async def shows_gauges() -> bool:
            return "sandstream_runs_active" in await asyncio.to_thread(scraped)

        try:
            async with tracing(bus, store, metrics=metrics, sweep_s=0.1):
                await LogWriter(bus, "r-1").whole()
                await LogWriter(bus, "r-2").start()
                await caught_up(bus)
            async with tracing(bus, store, metrics=metrics, group="again", sweep_s=0.1):
                await caught_up(bus, "again")
                await eventually(shows_gauges, what="gauges are shown")
                found = await asyncio.to_thread(scraped)
        finally:
            await metrics.close()
        ended = [it for it in found.splitlines() if it.startswith("sandstream_runs_ended")]
        assert len(ended) == 1 and ended[0].endswith(" 1.0"), ended
        active = [it for it in found.splitlines() if it.startswith("sandstream_runs_active")]
        assert len(active) == 1 and active[0].endswith(" 1.0"), active
        assert 'sandstream_consumer="tracing-main"' in found

    play(nats_server, tmp_path, scene)
