"""The tracing actor: a reader of the log that makes traces of runs, keeps and exports them.

It never holds up anybody: runs do not know of it. A run's start makes a row in the store; when the
run waits for people, and at its end, its whole log is read back and folded, and what has ended is
stored. A message is acknowledged after that, so whatever kills this process, the message comes
again, the fold gives the same spans, and the store knows which of them it has.
"""

from __future__ import annotations

import logging
from typing import Final

from sandstream_bus.bus import Bus
from sandstream_bus.consumer import Delivery
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import (
    InvalidSubject,
    MessageError,
    ObjectMissing,
    UndecodableMessage,
)
from sandstream_bus.headers import TRACEPARENT
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import RunReopened, RunWaiting
from sandstream_bus.runtime import Worker
from sandstream_bus.subjects import RunId, check_token
from sandstream_bus.topology import ConsumerSpec
from sandstream_bus.trace_context import TraceContext
from sandstream_bus.trace_messages import SpansReported

from sandstream_actors.tracing.export.loop import ExportLoop
from sandstream_actors.tracing.export.sampling import Sampler
from sandstream_actors.tracing.exported import exported_through, tell_exported
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.keeper import TraceKeeper
from sandstream_actors.tracing.metrics.instruments import Metrics
from sandstream_actors.tracing.redaction import Redactor
from sandstream_actors.tracing.reported import operation_span, reported_spans
from sandstream_actors.tracing.run_reading import delivered, folded, read_run
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_actors.tracing.sweep import Sweep

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 64
_FILTERS: Final = (
    "run.*.start.*",
    "run.*.waiting",
    "run.*.approval.decided",
    "run.*.done",
    "trace.*.spans",
    "sandbox.*.reply.*",
)


def consumer_name(group: str) -> str:
    """The durable consumer that the replicas of a group share."""
    return f"tracing-{check_token(group, 'the group')}"


class TracingActor:
    """One replica. Store, exporter and metrics belong to whoever made them.

    Replicas of a ``group`` share the work; another group makes all traces once more. ``only_new``
    lets a group that is new begin with what comes, not with all that the log holds.
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
        self._bus = bus
        self._group = group
        self._contents = contents
        self._keeper = TraceKeeper(
            store, export=export, metrics=metrics, sampler=sampler, redact=redact
        )
        prefix = bus.subjects.prefix
        spec = ConsumerSpec(
            name=consumer_name(group),
            filters=[f"{prefix}.{it}" for it in _FILTERS],
            only_new=only_new,
        )
        self._worker = Worker(bus, spec, self._on_delivery, max_in_flight=MAX_IN_FLIGHT)
        self._sweep = Sweep(
            bus, self._keeper, group, metrics=metrics, contents=contents, interval_s=sweep_s
        )
        self._sweep_s = sweep_s

    async def start(self) -> None:
        await self._worker.start()
        self._sweep.start()

    async def stop(self, grace_s: float = 5.0) -> None:
        """What is not finished comes again, here or at another replica."""
        await self._sweep.stop()
        await self._worker.stop(grace_s)

    async def _on_delivery(self, delivery: Delivery) -> None:
        crashpoint("tracing.received")
        rest = delivery.subject.removeprefix(self._bus.subjects.prefix + ".")
        family, _, rest = rest.partition(".")
        owner, _, kind = rest.partition(".")
        match family, kind.partition(".")[0]:
            case "run", "start":
                await self._on_start(RunId(owner), delivery)
            case "run", "approval" | "waiting":
                await self._look_at(RunId(owner))
            case "run", "done":
                await self._look_at(RunId(owner), is_end=True)
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
        except (MessageError, ObjectMissing):  # the harness's to park; later events may tell more
            await self._skip(run, 1)
            return
        facts = RunTrace.of(run, [delivered(delivery, event)]).facts()
        if facts.traced:
            await self._keeper.begin(facts)

    async def _look_at(self, run: RunId, *, is_end: bool = False) -> None:
        """Read a run's log, and keep what has ended of it."""
        events, skipped = await read_run(self._bus, run)
        trace = await folded(run, events, contents=self._contents)
        facts = trace.facts()
        if not trace.spans() or not facts.traced:
            return  # outsiders may have spoken to a run that there never was
        if facts.is_over and not is_end:
            return  # the end is a message of its own
        await self._skip(run, skipped)
        exports = self._keeper.exports
        through = 0
        if exports and self._may_be_exported(facts, events):
            through = await exported_through(self._bus, run, self._group)
        new = await self._keeper.keep(facts, trace.spans(), exported_through=through)
        if exports and new and not facts.is_over:
            await tell_exported(self._bus, run, self._group, facts.last_seq)

    def _may_be_exported(self, facts: RunFacts, events: list[LogEvent]) -> bool:
        """Only a run that has waited or lasted can have been exported in part before its end."""
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

    # --- what no run's log tells ---------------------------------------------------------------

    async def _on_reported(self, trace_id: str, delivery: Delivery) -> None:
        try:
            message = await self._bus.codec.trace_event(delivery.data)
        except ObjectMissing as error:
            raise UndecodableMessage(str(error)) from error
        if not isinstance(message, SpansReported):
            kind = message.__struct_config__.tag
            raise UndecodableMessage(f"{kind} is out of place on {delivery.subject}")
        spans = reported_spans(
            message, trace_id, sequence=delivery.sequence, contents=self._contents
        )
        await self._keeper.keep(None, spans)

    async def _on_reply(self, sandbox: str, delivery: Delivery) -> None:
        """The reply is for somebody else; if it cannot be read, that one will say so."""
        asked = TraceContext.parse(delivery.headers.get(TRACEPARENT))
        if asked is None:
            return
        try:
            reply = await self._bus.codec.sandbox_reply(delivery.data)
        except (MessageError, ObjectMissing) as error:
            logger.warning(
                "a reply cannot be read", extra={"subject": delivery.subject, "why": str(error)}
            )
            return
        await self._keeper.keep(None, [operation_span(sandbox, reply, asked, delivery)])
