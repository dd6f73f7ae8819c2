"""The ``send`` and ``process`` spans of a run's messages (see hops.py)."""

from __future__ import annotations

from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CallFinished, ModelAnswered

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.hops import (
    Hop,
    hop_of,
    link_to,
    process_span_id,
    send_span_id,
)
from sandstream_actors.tracing.fold.span_list import SpanList
from sandstream_actors.tracing.fold.tries import Lost, Tried, Tries
from sandstream_actors.tracing.span import Span


class HopSpans:
    """Follows the messages of one run. The harness processes one at a time; tool hosts and sandbox
    actors process many.
    """

    def __init__(self, spans: SpanList) -> None:
        self._spans = spans
        self._hops: dict[int, Hop] = {}
        self._tries: dict[int, Tries] = {}
        self._processes: dict[int, Span] = {}
        self._harness: Span | None = None
        self._harness_end = 0
        self._waiting: list[int] = []
        """Results that no decision has taken into account yet."""
        self.working = ""
        """The id of the span in which the current event was produced."""

    def note(
        self, event: LogEvent, now: int, agent_span: str, duration_ns: int, tried: Tried
    ) -> None:
        """Process the next event: attribute it to its cause; it may be a message itself."""
        cause = self._hops.get(tried.attempt.cause)
        self.working = ""
        if cause is not None:
            self.working = self._work_on(cause, event, now, agent_span, duration_ns, tried).span_id
        hop = hop_of(event, now)
        if hop is not None:
            self._send(hop, now, self.working or agent_span, agent_span)

    def mark(self, span: Span, sequence: int) -> None:
        """Record on a span which process did the work for the message, and in how many attempts."""
        tries = self._tries.get(sequence)
        if tries is not None:
            tries.mark(span, span.start_ns)

    def lose(self, sequence: int, until_ns: int, by: str) -> Lost | None:
        """Another process repeats the step: drop the open span, return the lost time."""
        tries = self._tries.get(sequence)
        span = self._processes.pop(sequence, None)
        if tries is None or span is None or not span.is_open:
            return None
        self._spans.drop(span)
        since_ns, worker = tries.sign
        return Lost(since_ns, max(since_ns, until_ns), 1, worker, by, is_told=True)

    def inherit(self, sequence: int, lost: Lost) -> None:
        """Attribute lost time to the message that repeats the step."""
        tries, span = self._tries.get(sequence), self._processes.get(sequence)
        if tries is not None:
            tries.lost.append(lost)
        if span is not None:
            span.events.append(lost.event)

    def process_of(self, sequence: int) -> str:
        """The id of the span that processes a call; empty if the harness does so itself."""
        hop = self._hops.get(sequence)
        return "" if hop is None or hop.by_harness else process_span_id(self._spans.run, sequence)

    def queued_before(self, sequence: int) -> int:
        """How long the message had waited before the start of its process span."""
        process, hop = self._processes.get(sequence), self._hops.get(sequence)
        return process.start_ns - hop.time_ns if process is not None and hop is not None else 0

    def finish(self) -> None:
        """End the last work of the harness: the run has ended or waits for an approval."""
        self._end_harness()

    def _send(self, hop: Hop, now: int, parent: str, agent_span: str) -> None:
        self._hops[hop.sequence] = hop
        self._tries[hop.sequence] = Tries(hop.time_ns)
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
        tried: Tried,
    ) -> Span:
        attempt = tried.attempt
        began = min(max(now - duration_ns, cause.time_ns), now)
        span = self._processes.get(cause.sequence)
        if cause.by_harness and (span is None or span is not self._harness):
            self._end_harness()
        if span is None:
            span = self._open_process(cause, began, agent_span)
            if cause.by_harness:
                self._harness = span
        elif not span.is_open:
            return span  # an ended span stays unchanged, even if the message causes more events
        tries = self._tries[cause.sequence]
        lost = tries.note(attempt, tried.takeovers, began, now)
        if lost is not None:
            span.events.append(lost.event)
            span.start_ns = min(span.start_ns, tries.first_ns)
        tries.mark(span, now)
        if attempt.number > 1:
            span.attributes[semconv.DELIVERIES] = attempt.number
            span.links[0].attributes[semconv.DELIVERIES] = attempt.number
            span.links[0].attributes[semconv.LINK] = "redelivery"
        if cause.by_harness:
            span.start_ns = min(span.start_ns, began)
            self._harness_end = now
        elif isinstance(event.event, CallFinished | ModelAnswered):
            span.start_ns = tries.first_ns if tries.lost else began
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
        """The previous work of the harness ends when the harness does something else."""
        if self._harness is not None and self._harness.is_open:
            self._spans.close(self._harness, self._harness_end)
        self._harness = None
