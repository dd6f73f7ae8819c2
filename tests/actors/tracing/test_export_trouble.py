"""Endpoints that are down, slow or refuse: nothing blocks, nothing is lost without being told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from actors.tracing.traces_by_hand import facts, opened
from sandstream_actors.tracing.export.exporter import Exporter, span_exporters
from sandstream_actors.tracing.export.line import DROPPED, TRIES, WAITING, Pace
from sandstream_actors.tracing.export.loop import BATCH_SPANS, ExportLoop
from sandstream_actors.tracing.export.otel_failures import Failure
from sandstream_actors.tracing.export.settings import ExportSettings
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.errors import StoreUnavailable
from sandstream_bus.wire.trace_context import span_id_of
from support.tracing.otlp_receiver import OtlpReceiver, Protocol, ReceivedSpan
from support.waiting import eventually, until

PROTOCOLS: tuple[Protocol, ...] = ("http/protobuf", "grpc")
FAST = Pace(first_s=0.01, longest_s=0.05, poll_s=0.01)
DOWN = "spans cannot be exported; they wait"
UP = "spans are exported again"
REFUSED = "dropped spans that the endpoint refuses"


def span(number: int, **more: object) -> Span:
    plain = Span(
        trace_id="1" * 32,
        span_id=span_id_of("r", str(number)),
        name=f"span {number}",
        operation="custom",
        run="r1",
        start_ns=number + 1,
        end_ns=number + 2,
    )
    return msgspec.structs.replace(plain, **more)


@pytest.fixture(params=PROTOCOLS)
def receiver(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OtlpReceiver]:
    yield from listening(request.param, monkeypatch)


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    yield from listening("http/protobuf", monkeypatch)


def listening(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    """A receiver that exporters find."""
    with OtlpReceiver(protocol) as receiver:
        for name, value in receiver.environment().items():
            monkeypatch.setenv(name, value)
        yield receiver


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters give up before they try again by themselves, which takes them seconds."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.7")


@asynccontextmanager
async def exporter() -> AsyncIterator[Exporter]:
    (found,) = span_exporters(ExportSettings.from_env())
    try:
        yield found
    finally:
        await found.close()


class ListOutbox:
    """An outbox that forgets nothing until it is told to."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.rows = dict(enumerate(spans))
        self.dropped = 0
        self.breaks = 0

    async def outbox(self, limit: int) -> list[tuple[int, Span]]:
        if self.breaks:
            self.breaks -= 1
            raise StoreUnavailable(Path("store.db"), "is locked", "try again")
        return list(self.rows.items())[:limit]

    async def outbox_done(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self.rows[number]

    async def counters(self) -> dict[str, int]:
        return {WAITING: len(self.rows), DROPPED: self.dropped}

    async def count(self, name: str, by: int = 1) -> None:
        assert name == DROPPED
        self.dropped += by

    async def emptied(self) -> None:
        async def is_empty() -> bool:
            return not self.rows

        await eventually(is_empty, what="the outbox is empty")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


# --- one export -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_an_endpoint_that_is_down_is_a_failure_with_a_reason_and_no_log(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.stop()

    async def export() -> Failure | None:
        async with exporter() as out:
            assert not await out.export([span(1)])
            return out.failure

    failure = asyncio.run(export())
    assert failure is not None and failure.reason and not failure.is_for_good
    assert told(caplog) == []


def test_a_slow_endpoint_never_holds_up_the_event_loop(receiver: OtlpReceiver) -> None:
    receiver.hold()

    async def export() -> None:
        async with exporter() as out:
            sending = asyncio.create_task(out.export([span(1)]))
            await receiver.requested(1)
            assert not sending.done()
            receiver.release()
            assert await sending

    asyncio.run(export())
    assert [each.name for each in receiver.spans] == ["span 1"]


@pytest.mark.usefixtures("impatient")
def test_an_endpoint_that_hangs_is_given_up(http: OtlpReceiver) -> None:
    http.hold()

    async def export() -> bool:
        async with exporter() as out:
            return await out.export([span(1)])

    assert not asyncio.run(export())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_for_the_moment_says_so(receiver: OtlpReceiver, status: int) -> None:
    receiver.refuse_with = status

    async def export() -> Failure | None:
        async with exporter() as out:
            assert not await out.export([span(1)])
            return out.failure

    failure = asyncio.run(export())
    assert failure is not None and not failure.is_for_good


@pytest.mark.parametrize(
    ("status", "for_good"), [(400, True), (401, False), (404, False), (413, True), (500, False)]
)
def test_a_refusal_says_whether_it_will_come_again(
    receiver: OtlpReceiver, status: int, for_good: bool
) -> None:
    receiver.refuse_with = status

    async def export() -> Failure | None:
        async with exporter() as out:
            assert not await out.export([span(1)])
            failure = out.failure
            receiver.refuse_with = None
            assert await out.export([span(2)])
            assert out.failure is None
            return failure

    failure = asyncio.run(export())
    assert failure is not None and failure.is_for_good is for_good


def test_nobody_else_s_logs_are_hidden(
    http: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    async def export() -> None:
        async with exporter() as out:
            assert await out.export([span(1)])

    asyncio.run(export())
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("theirs")
    assert told(caplog) == ["theirs"]


# --- the loop -------------------------------------------------------------------------------------


def run_loop(outbox: ListOutbox, work: Callable[[], Awaitable[None]]) -> None:
    """``work`` is done while the loop is running."""

    async def body() -> None:
        async with exporter() as out:
            loop = ExportLoop(outbox, [out], pace=FAST)
            loop.start()
            try:
                await work()
            finally:
                await loop.stop(grace_s=5)

    asyncio.run(body())


def test_the_outbox_is_emptied_in_order_and_in_batches(receiver: OtlpReceiver) -> None:
    count = 2 * BATCH_SPANS + 100
    outbox = ListOutbox(map(span, range(count)))
    run_loop(outbox, outbox.emptied)
    assert [each.name for each in receiver.spans] == [f"span {n}" for n in range(count)]
    assert receiver.requests == 3


def test_big_spans_go_in_small_batches(receiver: OtlpReceiver) -> None:
    half = 900 * 1024
    outbox = ListOutbox(span(n, attributes={"text": "x" * half}) for n in range(6))
    outbox.rows[6] = span(6, attributes={"text": "x" * half * 4})
    run_loop(outbox, outbox.emptied)
    assert receiver.requests == 4 and len(receiver.spans) == 7


@pytest.mark.usefixtures("impatient")
def test_an_endpoint_that_is_down_is_told_once_and_waited_for(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = ListOutbox(map(span, range(5)))
    receiver.stop()

    async def work() -> None:
        async def was_told() -> bool:
            return DOWN in told(caplog)

        await eventually(was_told)
        receiver.start()
        await outbox.emptied()

    run_loop(outbox, work)
    assert told(caplog) == [DOWN, UP]
    down = next(record for record in caplog.records if record.message == DOWN)
    assert (vars(down)["waiting"], vars(down)["dropped"]) == (5, 0)
    assert vars(down)["exporter"] == "otlp" and vars(down)["reason"]
    assert len(receiver.spans) == 5 and outbox.dropped == 0


def test_a_span_that_is_refused_does_not_hold_up_the_others(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = ListOutbox(map(span, range(700)))

    def poison(spans: list[ReceivedSpan]) -> int | None:
        return 400 if {"span 3", "span 99"} & {each.name for each in spans} else None

    receiver.refuse_if = poison
    run_loop(outbox, outbox.emptied)
    names = [each.name for each in receiver.spans]
    assert sorted(names) == sorted(f"span {n}" for n in range(700) if n not in (3, 99))
    assert outbox.dropped == 2
    dropped = [record for record in caplog.records if record.message == REFUSED]
    assert sum(vars(record)["spans"] for record in dropped) == 2
    assert vars(dropped[-1])["dropped"] == 2


def test_an_endpoint_that_refuses_everything_gets_a_batch_a_few_times(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.refuse_with = 400
    outbox = ListOutbox(map(span, range(16)))

    async def work() -> None:
        await outbox.emptied()
        receiver.refuse_with = None
        outbox.rows[100] = span(100)
        await outbox.emptied()

    run_loop(outbox, work)
    assert [each.name for each in receiver.spans] == ["span 100"]
    assert outbox.dropped == 16
    assert receiver.requests == TRIES + 8 + 1
    assert told(caplog) == [DOWN, REFUSED, UP]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_spans_wait_for_a_setting_that_is_wrong(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    receiver.refuse_with = status
    outbox = ListOutbox(map(span, range(3)))

    async def work() -> None:
        while receiver.requests <= TRIES:
            await asyncio.sleep(0.01)
        receiver.refuse_with = None
        await outbox.emptied()

    run_loop(outbox, work)
    assert (outbox.dropped, len(receiver.spans)) == (0, 3)
    assert told(caplog) == [DOWN, UP]


def test_stopping_sends_what_waits(http: OtlpReceiver) -> None:
    outbox = ListOutbox(map(span, range(BATCH_SPANS + 1)))

    async def nothing() -> None: ...

    run_loop(outbox, nothing)
    assert not outbox.rows and len(http.spans) == BATCH_SPANS + 1


@pytest.mark.usefixtures("impatient")
def test_stopping_does_not_wait_for_an_endpoint_that_is_down(http: OtlpReceiver) -> None:
    http.stop()
    outbox = ListOutbox(map(span, range(3)))

    async def body() -> None:
        async with exporter() as out:
            patient = ExportLoop(outbox, [out], pace=Pace(first_s=3600, longest_s=3600))
            patient.start()
            await patient.stop(grace_s=30)

    asyncio.run(body())
    assert len(outbox.rows) == 3 and outbox.dropped == 0


def test_stopping_does_not_wait_for_an_endpoint_that_hangs(
    http: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    http.hold()
    outbox = ListOutbox([span(1)])

    async def body() -> None:
        async with exporter() as out:
            loop = ExportLoop(outbox, [out], pace=FAST)
            loop.start()
            await http.requested(1)
            await loop.stop(grace_s=0.01)

    asyncio.run(body())
    assert list(outbox.rows.values()) == [span(1)]


def test_a_store_that_fails_for_a_while_is_told_once(
    http: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = ListOutbox([span(1)])
    outbox.breaks = 3
    run_loop(outbox, outbox.emptied)
    assert told(caplog) == ["the outbox cannot be read"]
    assert len(http.spans) == 1


class ListTarget:
    """A target in memory, which fails until it is told not to."""

    def __init__(self, name: str, *, is_up: bool = True) -> None:
        self.name = name
        self.failure: Failure | None = None
        self.is_up = is_up
        self.spans: list[Span] = []
        self.tried = asyncio.Event()

    async def export(self, spans: list[Span]) -> bool:
        self.tried.set()
        self.failure = None if self.is_up else Failure(reason="down")
        if self.is_up:
            self.spans += spans
        return self.is_up


def test_every_exporter_gets_every_span_once_though_another_one_is_down() -> None:
    outbox = ListOutbox([span(1), span(2)])

    async def body() -> None:
        up, down = ListTarget("up"), ListTarget("down", is_up=False)
        loop = ExportLoop(outbox, [up, down], pace=FAST)
        loop.start()
        await down.tried.wait()
        down.is_up = True
        await outbox.emptied()
        await loop.stop()
        assert up.spans == down.spans == [span(1), span(2)]

    asyncio.run(body())


def test_of_those_who_share_a_store_one_exports_until_it_ends(tmp_path: Path) -> None:
    async def body() -> None:
        outbox = ListOutbox()
        first, second = ListTarget("first"), ListTarget("second")
        loops = [
            ExportLoop(outbox, [target], lock=tmp_path / "export.lock", pace=FAST)
            for target in (first, second)
        ]
        loops[0].start()
        outbox.rows = {1: span(1)}
        await outbox.emptied()
        loops[1].start()
        outbox.rows = {number: span(number) for number in range(2, 2000)}
        await outbox.emptied()
        assert len(first.spans) == 1999 and second.spans == []
        await loops[0].stop()
        outbox.rows = {5000: span(5000)}
        await outbox.emptied()
        assert second.spans == [span(5000)]
        await loops[1].stop()

    asyncio.run(body())


def test_a_lock_that_is_taken_away_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With its folder, or alone: then another process would find no lock and export as well."""

    async def body() -> None:
        outbox, target = ListOutbox(), ListTarget("up")
        lock = tmp_path / "folder" / "export.lock"
        loop = ExportLoop(outbox, [target], lock=lock, pace=FAST)
        loop.start()
        await until(lambda: "cannot determine" in caplog.text, what="it is said")
        outbox.rows = {1: span(1)}
        lock.parent.mkdir()
        await outbox.emptied()
        lock.unlink()
        outbox.rows = {2: span(2)}
        await outbox.emptied()
        await loop.stop()
        assert lock.exists() and target.spans == [span(1), span(2)]

    asyncio.run(body())
    assert len(told(caplog)) == 1


def test_an_end_that_nobody_wanted_is_told_and_raised(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ListOutbox):
        async def outbox(self, limit: int) -> list[tuple[int, Span]]:
            raise RuntimeError("this should not happen")

    async def body() -> None:
        loop = ExportLoop(Broken(), [ListTarget("up")], pace=FAST)
        loop.start()
        with pytest.raises(RuntimeError):
            await loop.stop()

    asyncio.run(body())
    assert told(caplog) == ["nothing is exported any more"]


def test_the_real_store_is_emptied(receiver: OtlpReceiver, tmp_path: Path) -> None:
    async def body() -> None:
        path = tmp_path / "traces.db"
        async with opened(path, outbox_limit=40) as store, exporter() as out:
            await store.record(facts("r1"), list(map(span, range(60))), export=True)
            before = await store.counters()
            loop = ExportLoop(store, [out], lock=path.with_suffix(".lock"), pace=FAST)
            loop.start()
            loop.wake()
            await receiver.arrived(before[WAITING])
            await loop.stop()
            after = await store.counters()
            assert (before[WAITING], before[DROPPED], after[WAITING]) == (40, 20, 0)

    asyncio.run(body())
    assert [each.name for each in receiver.spans] == [f"span {n}" for n in range(20, 60)]
