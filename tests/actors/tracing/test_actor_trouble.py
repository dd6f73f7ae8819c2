"""The tracing actor when something around it fails, lasts, or is shared with others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiosqlite
import pytest
from sandstream_actors.tracing import keeper
from sandstream_actors.tracing.actor import consumer_name
from sandstream_actors.tracing.exported import exported_through
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_actors.tracing.sweep import LOST
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

QUICK_S = 0.1
RUNS = 30


class Tap:
    """Sets and lifts a limit on how big the store may grow."""

    def __init__(self) -> None:
        self._connections: list[aiosqlite.Connection] = []

    async def prepare(self, connection: aiosqlite.Connection) -> None:
        self._connections.append(connection)

    async def limit(self, pages: int) -> None:
        for connection in self._connections:
            await connection.execute_fetchall(f"PRAGMA max_page_count = {pages}")


def test_a_full_store_holds_messages_until_there_is_room(
    nats_server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(keeper, "RETRY_S", 0.05)
    monkeypatch.setattr(keeper, "CALM_S", 0.5)

    async def main() -> None:
        tap = Tap()
        async with (
            open_bus(nats_server) as bus,
            opened_store(tmp_path / "t.db", prepare=tap.prepare) as store,
        ):
            sink = Sink()
            runs = [LogWriter(bus, f"r-{number}") for number in range(RUNS)]
            await tap.limit(1)  # as big as it is
            async with tracing(bus, store, sink):
                for run in runs:
                    await run.whole()
                await eventually(lambda: _said(caplog, "traces wait"), what="it is told")
                for _ in range(3):  # through several tries
                    await asyncio.sleep(2 * keeper.RETRY_S)
                info = await bus.topology.consumer_info(bus.connection, consumer_name("main"))
                assert info is not None and info["num_ack_pending"] > 0
                await tap.limit(1_000_000)
                await caught_up(bus)
                info = await bus.topology.consumer_info(bus.connection, consumer_name("main"))
                assert info is not None and info["delivered"]["consumer_seq"] == 2 * RUNS

                async def is_told() -> bool:
                    runs.append(LogWriter(bus, f"r-{len(runs)}"))
                    await runs[-1].whole()
                    return await _said(caplog, "can be used again")

                await eventually(is_told, what="it is told that this is over")
                await caught_up(bus)
                await emptied(store)
            folded = [span for run in runs for span in await run.folded()]
            assert by_id(sink.spans) == by_id(folded)
            assert await bus.parking.list() == []
        assert len([it for it in caplog.messages if it.startswith("traces wait")]) == 1

    asyncio.run(main())


async def _said(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in it for it in caplog.messages)


def test_a_store_that_was_damaged_is_built_again_from_the_log(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    path = tmp_path / "t.db"

    async def main() -> None:
        async with open_bus(nats_server) as bus:
            runs = [LogWriter(bus, f"r-{number}") for number in range(3)]
            async with opened_store(path) as store, tracing(bus, store):
                for run in runs:
                    await run.whole()
                await caught_up(bus)
            path.write_bytes(b"this was a store once " * 500)
            sink = Sink()
            async with opened_store(path) as store, tracing(bus, store, sink):
                assert store.replaced is not None
                for run in runs:
                    await eventually(partial(store.spans, run.run), what="it is there")
                    assert by_id(await store.spans(run.run)) == by_id(await run.folded())
            assert sink.spans == [], "what was exported before is not exported again"

    asyncio.run(main())


@contextlib.asynccontextmanager
async def two_places(
    tmp_path: Path, *, shared: bool = False
) -> AsyncIterator[tuple[TraceStore, TraceStore]]:
    """Two machines, each with a store of its own; or one, where two processes share one."""
    paths = tmp_path / "1.db", tmp_path / ("1.db" if shared else "2.db")
    async with opened_store(paths[0]) as one, opened_store(paths[1]) as two:
        yield one, two


def test_a_run_that_lasts_is_exported_before_its_end_and_only_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """The sweep of one machine finds it, another machine gets its end."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, two_places(tmp_path) as (here, there):
            run, sink = LogWriter(bus, "long"), Sink()
            async with tracing(bus, here, sink, sweep_s=QUICK_S):
                await run.start()
                await caught_up(bus)
                await run.work()
                await eventually(lambda: here.spans("long"), what="a sweep has stored them")
                await eventually(lambda: exported_through(bus, "long", "main"), what="it is told")
                early = await here.spans("long")
                await emptied(here)
            assert by_id(sink.spans) == by_id(early)
            assert {span.name for span in early} >= {"chat m", "execute_tool f"}
            async with tracing(bus, there, sink, sweep_s=QUICK_S):
                await run.end()
                await caught_up(bus)
                await emptied(there)
            assert by_id(sink.spans) == by_id(await run.folded())
            assert by_id(await there.spans("long")) == by_id(await run.folded())

    asyncio.run(main())


def test_a_run_that_ended_elsewhere_is_noticed_and_not_exported_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, two_places(tmp_path) as (here, there):
            run, first, second = LogWriter(bus, "r-1"), Sink(), Sink()
            async with tracing(bus, here, first):
                await run.start()
                await caught_up(bus)
            async with tracing(bus, there, second):
                await run.work()
                await run.end()
                await caught_up(bus)
                await emptied(there)
            async with tracing(bus, here, first, sweep_s=QUICK_S):
                await eventually(lambda: here.spans("r-1"), what="a sweep has noticed")
            kept = await here.run("r-1")
            assert kept is not None and kept.status == "completed"
            assert by_id(await here.spans("r-1")) == by_id(await run.folded())
            assert by_id(second.spans) == by_id(await run.folded())
            assert first.spans == []

    asyncio.run(main())


def test_a_sweep_that_comes_before_the_end_is_handled_takes_nothing_from_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """With one store: what the sweep fills in is still exported when the message comes."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, opened_store(tmp_path / "t.db") as store:
            run, sink = LogWriter(bus, "r-1"), Sink()
            async with tracing(bus, store, sink):
                await run.start()
                await caught_up(bus)
            await run.work()
            await run.end()
            async with tracing(bus, store, group="other", only_new=True, sweep_s=QUICK_S):
                await eventually(lambda: store.spans("r-1"), what="the other's sweep filled it in")
            async with tracing(bus, store, sink):
                await caught_up(bus)
                await emptied(store)
            assert by_id(sink.spans) == by_id(await run.folded())

    asyncio.run(main())


def test_a_run_that_the_log_has_lost_is_over(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened_store(tmp_path / "t.db") as store:
            lost, quiet = LogWriter(bus, "lost"), LogWriter(bus, "quiet")
            async with tracing(bus, store, sweep_s=QUICK_S):
                await lost.start()
                await quiet.start()
                await caught_up(bus)
                stream = f"$JS.API.STREAM.PURGE.{bus.topology.log}"
                body = b'{"filter":"%s"}' % bus.subjects.run_all("lost").encode()
                await bus.connection.request(stream, body)

                async def is_over() -> bool:
                    found = await store.run("lost")
                    return found is not None and found.status == LOST

                await eventually(is_over, what="it is over")
            found = await store.run("quiet")
            assert found is not None and found.status == "running"

    asyncio.run(main())


@pytest.mark.parametrize("shared", [True, False], ids=["one store", "two stores"])
def test_replicas_share_the_work_and_export_every_run_once(
    nats_server: NatsServer, tmp_path: Path, shared: bool
) -> None:
    async def main() -> None:
        async with (
            open_bus(nats_server) as bus,
            two_places(tmp_path, shared=shared) as (one, two),
        ):
            first, second = Sink(), Sink()
            runs = [LogWriter(bus, f"r-{number}") for number in range(RUNS)]
            async with tracing(bus, one, first), tracing(bus, two, second):
                await asyncio.gather(*(run.whole() for run in runs))
                await caught_up(bus)
                await emptied(one)
                await emptied(two)
            folded = [span for run in runs for span in await run.folded()]
            assert by_id(_all(first, second)) == by_id(folded)
            places = [one] if shared else [one, two]
            kept = [span for run in runs for place in places for span in await place.spans(run.run)]
            assert by_id(kept) == by_id(folded)

    asyncio.run(main())


def _all(*sinks: Sink) -> list[Span]:
    return [span for sink in sinks for span in sink.spans]


def test_a_server_that_is_restarted_and_an_endpoint_that_was_down(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened_store(tmp_path / "t.db") as store:
            sink = Sink()
            sink.is_down = True
            runs = [LogWriter(bus, f"r-{number}") for number in range(RUNS)]
            async with tracing(bus, store, sink):
                for number, run in enumerate(runs):
                    await run.whole()
                    if number == RUNS // 2:
                        await asyncio.to_thread(nats_server.restart)
                await caught_up(bus)
                assert sink.spans == []
                sink.is_down = False
                await emptied(store)
            folded = [span for run in runs for span in await run.folded()]
            assert by_id(sink.spans) == by_id(folded)

    asyncio.run(main())


def test_after_a_pause_everything_that_ended_meanwhile_is_caught_up(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, opened_store(tmp_path / "t.db") as store:
            sink = Sink()
            async with tracing(bus, store, sink):
                await LogWriter(bus, "before").whole()
                await caught_up(bus)
            runs = [LogWriter(bus, f"r-{number}") for number in range(500)]
            for index in range(0, len(runs), 50):
                await asyncio.gather(*(run.whole() for run in runs[index : index + 50]))
            async with tracing(bus, store, sink):
                await caught_up(bus, within_s=40)
                await emptied(store)
            assert await store.active_count() == 0
            folded = [span for run in runs for span in await run.folded()]
            assert by_id(sink.spans).items() >= by_id(folded).items()

    asyncio.run(main())
