"""Runs written by hand into a real log, tracing actors that read it, and a sink for spans."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from sandstream_actors.tracing.actor import TracingActor, consumer_name
from sandstream_actors.tracing.export.line import Pace
from sandstream_actors.tracing.export.loop import ExportLoop
from sandstream_actors.tracing.export.otel_failures import Failure
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.redaction import Redactor
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_bus.bus import Bus
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    RunDone,
    RunEvent,
    RunWaiting,
    TokenUsage,
)
from sandstream_bus.wire.subjects import RunId
from sandstream_bus.wire.trace_context import TraceContext, run_span_id, trace_id_of
from support.idle import is_idle
from support.scripted_log import answer, asks, begin, calls, raw, says
from support.waiting import eventually

PACE = Pace(first_s=0.05, longest_s=0.2, poll_s=0.1)


class Sink:
    """A target for exported spans."""

    def __init__(self) -> None:
        self.name = "sink"
        self.failure: Failure | None = None
        self.is_down = False
        self.spans: list[Span] = []

    async def export(self, spans: list[Span]) -> bool:
        self.failure = Failure(reason="down") if self.is_down else None
        if not self.is_down:
            self.spans.extend(spans)
        return not self.is_down

    @property
    def ids(self) -> list[str]:
        return [span.span_id for span in self.spans]


class LogWriter:
    """Writes the events of one run, as a harness would."""

    def __init__(self, bus: Bus, run: str) -> None:
        self.run = RunId(run)
        self._bus = bus
        self._numbers = itertools.count()
        self._trace: TraceContext | None = TraceContext(trace_id_of(run), run_span_id(run))
        """The trace context of all events except the first."""

    async def put(self, kind: str, event: RunEvent, *, caller: TraceContext | None = None) -> None:
        trace = caller or (None if kind.startswith("start") else self._trace)
        await self._bus.log.send(
            f"{self._bus.subjects.prefix}.run.{self.run}.{kind}",
            event,
            msg_id=f"{self.run}:{next(self._numbers)}",
            headers={} if trace is None else {TRACEPARENT: trace.header},
        )

    async def start(
        self, options: dict[str, Any] | None = None, *, caller: TraceContext | None = None
    ) -> None:
        await self.put("start.main", begin("f", options=options), caller=caller)
        if caller is not None and self._trace is not None:
            self._trace = self._trace._replace(trace_id=caller.trace_id, sampled=caller.sampled)
        if not (options or {}).get("traced", True):
            self._trace = None

    async def work(self, turn: int = 1) -> None:
        """A turn with one tool call."""
        call = CallRequested(
            call=f"t{turn}-0", kind="tool", turn=turn, agent="a", name="f", reply_pool="main"
        )
        await self.put("model", answer(turn, calls("f", f"c{turn}"), duration_ms=1))
        await self.put("call.h", call)
        await self.put("result.main", _result(call.call, turn))

    async def wait(self, turn: int = 1) -> None:
        """The run waits for an approval."""
        asked = ApprovalRequested(call=f"t{turn}-1", turn=turn, agent="a", name="f", call_id="c")
        await self.put("approval.requested", asked)
        await self.put("waiting", RunWaiting(turn=turn, approvals=[asked]))

    async def decide(self, turn: int = 1) -> None:
        await self.put("approval.decided", ApprovalDecided(call=f"t{turn}-1", approve=True))
        await self.put("call.h", asks(f"t{turn}-1", turn=turn))
        await self.put("result.main", _result(f"t{turn}-1", turn))

    async def end(self, turn: int = 2, **more: Any) -> None:
        await self.put("model", answer(turn, says("fine"), duration_ms=1))
        end = RunDone(status="completed", agent="a", turns=turn, usage=TokenUsage())
        await self.put("done", msgspec.structs.replace(end, **more))

    async def whole(self, *, caller: TraceContext | None = None) -> None:
        await self.start(caller=caller)
        await self.work()
        await self.end()

    async def folded(self) -> list[Span]:
        """The ended spans that its log gives, as a store may keep them."""
        trace = RunTrace.of(self.run, await self._bus.log.read(self.run), quotes=False)
        redactor = Redactor()
        return [redactor.redact_span(it) for it in trace.spans() if not it.is_open]


def _result(call: str, turn: int) -> CallFinished:
    return CallFinished(call=call, kind="tool", turn=turn, output=raw("ok"))


@contextlib.asynccontextmanager
async def tracing(
    bus: Bus, store: TraceStore, sink: Sink | None = None, **more: Any
) -> AsyncIterator[TracingActor]:
    """A running actor; the store's outbox is exported to the sink."""
    export: ExportLoop | None = None
    if sink is not None:
        lock = store.path.with_name("export-lock-" + store.path.name)
        export = ExportLoop(store, [sink], lock=lock, pace=PACE)
        export.start()
    actor = TracingActor(bus, store, export=export, **more)
    await actor.start()
    try:
        yield actor
    finally:
        await actor.stop(0.5)
        if export is not None:
            await export.stop()


@contextlib.asynccontextmanager
async def opened_store(path: Path, **more: Any) -> AsyncIterator[TraceStore]:
    store = await TraceStore.open(path, **more)
    try:
        yield store
    finally:
        await store.close()


async def caught_up(bus: Bus, group: str = "main", *, within_s: float = 20.0) -> None:
    """Wait until the group has nothing to do."""

    name = consumer_name(group)
    await eventually(lambda: is_idle(bus, name), within_s=within_s, what=f"{group} has caught up")


async def emptied(store: TraceStore, *, within_s: float = 20.0) -> None:
    """Wait until nothing is left to export."""

    async def is_empty() -> bool:
        return (await store.counters())["outbox"] == 0

    await eventually(is_empty, within_s=within_s, what="the outbox is empty")


def by_id(spans: list[Span]) -> dict[str, Span]:
    """The spans by id; each must occur only once."""
    found = {span.span_id: span for span in spans}
    assert len(found) == len(spans), "a span is there twice"
    return found
