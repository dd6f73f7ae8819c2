"""The ``send`` and ``process`` spans of a run's messages (see hops.py)."""

from __future__ import annotations

from sandstream_bus.log import LogEvent
from sandstream_bus.messages import CallFinished, ModelAnswered

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.hops import (
    Hop,
    cause_of,
    hop_of,
    link_to,
    process_span_id,
    send_span_id,
)
from sandstream_actors.tracing.fold.span_list import SpanList
from sandstream_actors.tracing.span import Span


class HopSpans:
    """Follows the messages of one run. The harness works on one of them at a time; hosts of code
    and sandboxes on many.
    """

    def __init__(self, spans: SpanList) -> None:
        self._spans = spans
        self._hops: dict[int, Hop] = {}
        self._processes: dict[int, Span] = {}
        self._harness: Span | None = None
        self._harness_end = 0
        self._waiting: list[int] = []
        """Results that came and that no decision has taken into account."""
        self.working = ""
        """The span of the work that the current event came of."""

    def note(
        self, event: LogEvent, now: int, agent_span: str, duration_ns: int, deliveries: int
    ) -> None:
        """Take in the next event: what it came of, and whether it is a message itself."""
        cause = self._hops.get(cause_of(event))
        self.working = ""
        if cause is not None:
            self.working = self._work_on(
                cause, event, now, agent_span, duration_ns, deliveries
            ).span_id
        hop = hop_of(event, now)
        if hop is not None:
            self._send(hop, now, self.working or agent_span, agent_span)

    def process_of(self, sequence: int) -> str:
        """The span of what somebody does about a call; empty for what the harness does itself."""
        hop = self._hops.get(sequence)
        return "" if hop is None or hop.by_harness else process_span_id(self._spans.run, sequence)

    def queued_before(self, sequence: int) -> int:
        """How long the message had waited for the work that its process span shows."""
        process, hop = self._processes.get(sequence), self._hops.get(sequence)
        return process.start_ns - hop.time_ns if process is not None and hop is not None else 0

    def finish(self) -> None:
        """The run has ended or waits for people, and with it what the harness did last."""
        self._end_harness()

    def _send(self, hop: Hop, now: int, parent: str, agent_span: str) -> None:
        self._hops[hop.sequence] = hop
        span = self._spans.open(
            send_span_id(self._spans.run, hop.sequence),
            f"{semconv.SEND} {hop.template}",
            "send",
            kind="producer",
            parent=parent,
            start_ns=now,
            attributes=hop.attributes
            | {
                semconv.MESSAGING_OPERATION_NAME: semconv.SEND,
                semconv.MESSAGING_OPERATION_TYPE: semconv.SEND,
            },
        )
        self._spans.close(span, now)
        if hop.kind == "result":
            self._waiting.append(hop.sequence)
        elif not hop.by_harness:
            self._open_process(hop, now, agent_span)

    def _work_on(
        self,
        cause: Hop,
        event: LogEvent,
        now: int,
        agent_span: str,
        duration_ns: int,
        deliveries: int,
    ) -> Span:
        began = min(max(now - duration_ns, cause.time_ns), now)
        span = self._processes.get(cause.sequence)
        if cause.by_harness and (span is None or span is not self._harness):
            self._end_harness()
        if span is None:
            span = self._open_process(cause, began, agent_span)
            if cause.by_harness:
                self._harness = span
        elif not span.is_open:
            return span  # what has ended stays as it is, even if more comes of the message
        if deliveries > 1:
            span.attributes[semconv.DELIVERIES] = deliveries
            span.links[0].attributes[semconv.DELIVERIES] = deliveries
            span.links[0].attributes[semconv.LINK] = "redelivery"
        if cause.by_harness:
            span.start_ns = min(span.start_ns, began)
            self._harness_end = now
        elif isinstance(event.event, CallFinished | ModelAnswered):
            span.start_ns = began
            self._spans.close(span, now)
        span.queued_ns = span.start_ns - cause.time_ns
        return span

    def _open_process(self, hop: Hop, start_ns: int, parent: str) -> Span:
        trace_id, run = self._spans.trace_id, self._spans.run
        span = self._spans.open(
            process_span_id(run, hop.sequence),
            f"{semconv.PROCESS} {hop.template}",
            "process",
            kind="consumer",
            parent=parent,
            start_ns=start_ns,
            attributes=hop.attributes
            | {
                semconv.MESSAGING_OPERATION_NAME: semconv.PROCESS,
                semconv.MESSAGING_OPERATION_TYPE: semconv.PROCESS,
            },
        )
        if hop.group:
            span.attributes[semconv.CONSUMER_GROUP] = hop.group
        span.links.append(link_to(trace_id, run, hop.sequence, "message"))
        if hop.by_harness:
            others = (it for it in self._waiting if it != hop.sequence)
            span.links.extend(link_to(trace_id, run, it, "fan_in") for it in others)
            self._waiting.clear()
        self._processes[hop.sequence] = span
        return span

    def _end_harness(self) -> None:
        """What the harness did last is over as soon as it does something else."""
        if self._harness is not None and self._harness.is_open:
            self._spans.close(self._harness, self._harness_end)
        self._harness = None
