"""The tracing actor: reads the log, makes traces of runs, stores and exports them.

It never delays a run: runs do not know about it. A run's start creates a row in the store. When the
run waits for an approval, and at its end, its whole log is read and folded, and the ended spans are
stored. Only then is the message acknowledged. If this process is killed, the message is
redelivered, the fold gives the same spans, and the store knows which of them it already has.
"""

from __future__ import annotations

import logging
from typing import Final

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import (
    Drop,
    InvalidSubject,
    MessageError,
    UndecodableMessage,
)
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.wire.headers import EXPECTED_SEQUENCE, TRACEPARENT
from sandstream_bus.wire.messages import RunReopened, RunWaiting
from sandstream_bus.wire.subjects import RunId, check_token
from sandstream_bus.wire.trace_context import TraceContext
from sandstream_bus.wire.traces import SpansReported

from sandstream_actors.base import Actor
from sandstream_actors.run.observed_log import read_run
from sandstream_actors.tracing.export.loop import ExportLoop
from sandstream_actors.tracing.export.sampling import Sampler
from sandstream_actors.tracing.exported import exported_through, tell_exported
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.keeper import TraceKeeper
from sandstream_actors.tracing.metrics.instruments import Metrics
from sandstream_actors.tracing.redaction import Redactor
from sandstream_actors.tracing.reported import operation_span, reported_spans
from sandstream_actors.tracing.run_reader import delivered, folded
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_actors.tracing.sweep import Sweep

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 64


def consumer_name(group: str) -> str:
    """The durable consumer that the replicas of a group share."""
    return f"tracing-{check_token(group, 'the group')}"


class TracingActor(Actor):
    """One replica. The creator of store, exporter and metrics closes them.

    Replicas of a ``group`` share the work; another group makes all traces again. With ``only_new``,
    a new group starts with new messages instead of the whole log.
    """

    def __init__(
        self,
        bus: Bus,
        store: TraceStore,
        *,
        group: str = "main",
        export: ExportLoop | None = None,
        metrics: Metrics | None = None,
        sampler: Sampler | None = None,
        contents: bool = False,
        redact: Redactor | None = None,
        only_new: bool = False,
        sweep_s: float = 30.0,
    ) -> None:
        super().__init__("tracing", bus=bus, max_in_flight=MAX_IN_FLIGHT)
        self._group = group
        self._contents = contents
        self._keeper = TraceKeeper(
            store, export=export, metrics=metrics, sampler=sampler, redact=redact
        )
        filters = bus.subjects.traced()
        self.reads(ConsumerSpec(name=consumer_name(group), filters=filters, only_new=only_new))
        self._sweep = Sweep(
            bus, self._keeper, group, metrics=metrics, contents=contents, interval_s=sweep_s
        )
        self.works_on(self._sweep.run)
        self._sweep_s = sweep_s

    async def handle(self, delivery: Delivery) -> None:
        crashpoint("tracing.received")
        family, owner, kind = self._bus.subjects.split(delivery.subject)
        if family == "run":  # "*" as an id would mean all runs
            check_token(owner, "the run id")
        match family, kind.partition(".")[0]:
            case "run", "start":
                await self._on_start(RunId(owner), delivery)
            case "run", ("approval" | "waiting" | "done") as what:
                await self._check_begun(RunId(owner), delivery)
                await self._look_at(RunId(owner), is_end=what == "done")
            case "trace", _:
                await self._on_reported(owner, delivery)
            case "sandbox", _:
                await self._on_reply(owner, delivery)
            case _:
                raise InvalidSubject(f"{delivery.subject!r} is nothing to trace")

    # --- runs ----------------------------------------------------------------------------------

    async def _on_start(self, run: RunId, delivery: Delivery) -> None:
        try:
            event = await self._bus.codec.run_event(delivery.data)
        except MessageError:  # the harness parks it; later events may say more
            await self._skip(run, 1)
            return
        facts = RunTrace.of(run, [delivered(delivery, event)], quotes=False).facts()
        if facts.traced:
            await self._keeper.begin(facts)

    async def _check_begun(self, run: RunId, delivery: Delivery) -> None:
        """Check this before reading the run: outside users can send messages to a run that never
        existed. A refused task has only an end, whose header says that nothing precedes it.
        """
        is_first = delivery.headers.get(EXPECTED_SEQUENCE) == "0"
        if not is_first and not await self._bus.log.has_begun(run, delivery.headers):
            raise Drop(f"the run {run} has not begun")

    async def _look_at(self, run: RunId, *, is_end: bool = False) -> None:
        """Read a run's log and store the spans that have ended."""
        events, skipped = await read_run(self._bus, run)
        trace = await folded(run, events, contents=self._contents)
        facts = trace.facts()
        if not trace.spans() or not facts.traced:
            return  # an outside user may have sent a message to a run that never existed
        if facts.is_over and not is_end:
            return  # the end has its own message
        await self._skip(run, skipped)
        exports = self._keeper.exports
        through = 0
        if exports and self._may_be_exported(facts, events):
            through = await exported_through(self._bus, run, self._group)
        new = await self._keeper.keep(facts, trace.spans(), exported_through=through)
        if exports and new and not facts.is_over:
            await tell_exported(self._bus, run, self._group, facts.last_seq)

    def _may_be_exported(self, facts: RunFacts, events: list[LogEvent]) -> bool:
        """Only a run that waited or took long can have been partly exported before its end."""
        if not facts.is_over or facts.ended_ns - facts.started_ns >= self._sweep_s * 1e9:
            return True
        return any(isinstance(it.event, RunWaiting | RunReopened) for it in events)

    async def _skip(self, run: RunId, events: int) -> None:
        if events:
            await self._keeper.count_skipped(events)
            logger.warning(
                "events of a run cannot be read: its trace has gaps",
                extra={"run_id": run, "events": events},
            )

    # --- spans from outside a run's log --------------------------------------------------------

    async def _on_reported(self, trace_id: str, delivery: Delivery) -> None:
        message = await self._bus.codec.trace_event(delivery.data)
        if not isinstance(message, SpansReported):
            kind = message.__struct_config__.tag
            raise UndecodableMessage(f"{kind} is out of place on {delivery.subject}")
        spans = reported_spans(
            message, trace_id, sequence=delivery.sequence, contents=self._contents
        )
        await self._keeper.keep(None, spans)

    async def _on_reply(self, sandbox: str, delivery: Delivery) -> None:
        """Trace a sandbox operation. An unreadable reply is logged; its addressee handles it."""
        asked = TraceContext.parse(delivery.headers.get(TRACEPARENT))
        if asked is None:
            return
        try:
            reply = await self._bus.codec.sandbox_reply(delivery.data)
        except MessageError as error:
            logger.warning(
                "a reply cannot be read", extra={"subject": delivery.subject, "why": str(error)}
            )
            return
        span = operation_span(sandbox, reply, asked, delivery, contents=self._contents)
        await self._keeper.keep(None, [span])
