"""Filling a store from the log: everything that is there, once, wherever it was interrupted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from actors.tracing.traces_by_hand import opened
from sandstream_actors.tracing import catch_up as catching_up
from sandstream_actors.tracing.catch_up import EVENTS_SKIPPED, catch_up
from sandstream_actors.tracing.store.errors import StoreUnavailable
from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import ErrorInfo, RunDone, TokenUsage
from sandstream_bus.wire.traces import ReportedSpan, SpansReported
from support.nats_server import NatsServer, open_bus
from support.tracing.traced_log import LogWriter, by_id

TRACE = "0af7651916cd43dd8448eb211c80319c"


async def _matches(store: TraceStore, writers: list[LogWriter]) -> None:
    for writer in writers:
        assert by_id(await store.spans(writer.run)) == by_id(await writer.folded())


def test_a_new_store_gets_all_runs_and_a_second_time_nothing(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "WINDOW", 4)  # so that there are several

    async def main() -> None:
        async with open_bus(nats_server) as bus, opened(tmp_path / "t.db") as store:
            writers = [LogWriter(bus, f"r{n}") for n in range(15)]
            for writer in writers:
                await writer.whole()
            steps: list[tuple[int, int]] = []
            done = await catch_up(bus, store, progress=lambda *step: steps.append(step))
            assert (done.recorded, done.skipped) == (15, 0)
            assert len(steps) > 3
            assert steps == sorted(set(steps))
            assert steps[-1] == (done.position, done.position) == (await store.position(),) * 2
            assert {it.run for it in await store.runs()} == {it.run for it in writers}
            assert all(it.status == "completed" for it in await store.runs())
            await _matches(store, writers)
            assert await store.outbox(9) == [], "nothing of it is exported"

            again = await catch_up(bus, store, progress=lambda *step: steps.append(step))
            assert (again.recorded, again.begun, again.position) == (0, 0, done.position)
            late = LogWriter(bus, "late")
            await late.whole()
            assert (await catch_up(bus, store)).recorded == 1

    asyncio.run(main())


def test_runs_that_the_store_has_are_not_read_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened(tmp_path / "t.db") as store:
            writers = [LogWriter(bus, f"r{n}") for n in range(3)]
            for writer in writers:
                await writer.whole()
            await catch_up(bus, store)
            await store.advance(0)
            assert (await catch_up(bus, store)).recorded == 0

    asyncio.run(main())


def test_a_store_of_another_log_begins_again(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened(tmp_path / "t.db") as store:
            await LogWriter(bus, "r1").whole()
            await store.advance(1_000_000)
            assert (await catch_up(bus, store)).recorded == 1

    asyncio.run(main())


def test_runs_under_way_are_noted_and_followed(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened(tmp_path / "t.db") as store:
            running, waiting = LogWriter(bus, "running"), LogWriter(bus, "waiting")
            await running.start()
            await waiting.start()
            await waiting.work()
            await waiting.wait()
            done = await catch_up(bus, store)
            assert done.begun == 2
            states = {it.run: it.status for it in await store.runs()}
            assert states == {"running": "running", "waiting": "waiting"}
            await _matches(store, [running, waiting])
            assert await store.active_count() == 2

            await running.work()
            await catch_up(bus, store)
            await _matches(store, [running])
            await running.end()
            assert (await catch_up(bus, store)).recorded == 1
            await _matches(store, [running])
            assert await store.active_count() == 1

    asyncio.run(main())


def test_a_run_whose_start_was_purged_and_one_that_never_had_one(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened(tmp_path / "t.db") as store:
            cut, refused = LogWriter(bus, "cut"), LogWriter(bus, "refused")
            await cut.whole()
            await _purge(bus, bus.subjects.start(cut.run, "main"))
            await _put_refusal(refused)
            done = await catch_up(bus, store)
            assert (done.recorded, done.skipped) == (2, 0)
            lost = await store.run("cut")
            assert lost is not None and lost.truncated and lost.status == "completed"
            none = await store.run("refused")
            assert none is not None and none.status == "failed" and none.error is not None
            assert none.error.code == "agent_unknown"
            await _matches(store, [cut, refused])

    asyncio.run(main())


async def _purge(bus: Bus, subject: str) -> None:
    await bus.connection.request(
        f"$JS.API.STREAM.PURGE.{bus.topology.log}", b'{"filter":"%s"}' % subject.encode()
    )


async def _put_refusal(writer: LogWriter) -> None:
    error = ErrorInfo(code="agent_unknown", message="no such agent, token sk-" + "a1B2" * 10)
    await writer.put(
        "done", RunDone(status="failed", agent="x", turns=0, usage=TokenUsage(), error=error)
    )


def test_secrets_do_not_get_into_the_store(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened(tmp_path / "t.db") as store:
            await _put_refusal(LogWriter(bus, "r1"))
            await catch_up(bus, store)
            known = await store.run("r1")
            assert known is not None and known.error is not None
            assert known.error.code and not known.error.message
            kept = repr([known, *await store.spans("r1")])
            assert "a1B2a1B2" not in kept and "no such agent" not in kept

    asyncio.run(main())


def test_events_that_cannot_be_read_are_skipped_and_counted(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened(tmp_path / "t.db") as store:
            whole, bad = LogWriter(bus, "whole"), LogWriter(bus, "bad")
            s = bus.subjects
            await bad.start()
            await bus.connection.publish(s.model(bad.run), b"\xff not JSON", msg_id="x1")
            await bad.end()
            await bus.connection.publish(
                s.start(LogWriter(bus, "newer").run, "main"),
                b'{"type":"run.from_2090"}',
                msg_id="x2",
            )
            await bus.connection.publish(s.done("nothing"), b"{}", msg_id="x3")
            await bus.connection.publish(s.trace_spans(TRACE), b"[]", msg_id="x4")
            await whole.whole()
            done = await catch_up(bus, store)
            assert done.skipped == 4
            assert (await store.counters())[EVENTS_SKIPPED] == 4
            assert {it.run for it in await store.runs()} == {"whole", "bad"}
            await _matches(store, [whole])
            assert (await catch_up(bus, store)).skipped == 0, "each is counted once"

    asyncio.run(main())


def test_what_programs_have_reported_comes_along(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened(tmp_path / "t.db") as store:
            mine = ReportedSpan(
                span_id="00f067aa0ba902b7", name="mine", operation="custom", start_ns=1, end_ns=2
            )
            data = await bus.codec.encode(SpansReported(trace_id=TRACE, spans=[mine]))
            await bus.connection.publish(bus.subjects.trace_spans(TRACE), data, msg_id="m1")
            await catch_up(bus, store)
            (kept,) = await store.spans_of_trace(TRACE)
            assert (kept.name, kept.run) == ("mine", "")

    asyncio.run(main())


def test_an_interruption_loses_nothing(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between two windows, or within one."""
    monkeypatch.setattr(catching_up, "WINDOW", 3)

    class Died(Exception):
        pass

    def die(position: int, last: int) -> None:
        raise Died

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            writers = [LogWriter(bus, f"r{n}") for n in range(9)]
            for writer in writers:
                await writer.whole()
            async with opened(tmp_path / "t.db") as store:
                with pytest.raises(Died):
                    await catch_up(bus, store, progress=die)
            async with opened(tmp_path / "t.db") as store:
                before = await store.position()
                assert (
                    0
                    < before
                    < (await bus.topology.stream_state(bus.connection, bus.topology.log))[
                        "last_seq"
                    ]
                )
                working = asyncio.create_task(catch_up(bus, store))
                while await store.position() == before:
                    await asyncio.sleep(0)
                working.cancel()
                await asyncio.wait([working])
            async with opened(tmp_path / "t.db") as store:
                await catch_up(bus, store)
                assert len(await store.runs()) == 9
                await _matches(store, writers)

    asyncio.run(main())


def test_trouble_with_the_store_is_told_as_such(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            await LogWriter(bus, "r1").whole()
            async with opened(tmp_path / "t.db") as store:
                pass
            with pytest.raises(StoreUnavailable, match="is closed"):
                await catch_up(bus, store)

    asyncio.run(main())


def test_each_installation_has_its_own_file(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_bus(nats_server, prefix="other") as other:
            name = await installation_of(bus)
            assert name == await installation_of(bus)
            assert len(name) == 12 and int(name, 16) >= 0
            assert name != await installation_of(other)
            path = store_path(tmp_path, name)
            assert path == tmp_path / "traces" / f"{name}.db"

    asyncio.run(main())
