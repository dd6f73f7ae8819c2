"""The traces of a run and of the runs below it: what their timeline is made from."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.reported import reported_spans
from sandstream_actors.tracing.span import Span
from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.wire.messages import CallRequested
from sandstream_bus.wire.traces import SpansReported

from sandstream._inspect.timeline import Timeline, timeline

_reported = msgspec.json.Decoder(SpansReported).decode


class TracedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its facts, its spans and its log."""

    facts: RunFacts
    spans: list[Span]
    """With contents, if the reader asked for them."""
    events: list[LogEvent] = []
    """Empty if the log has lost the run."""


class TracedTree(msgspec.Struct, kw_only=True):
    """A tree of runs; the run that was asked for comes first."""

    runs: list[TracedRun]
    now_ns: int
    is_from_store: bool = False
    """The log has lost the runs: there are spans, but no events."""

    @property
    def facts(self) -> RunFacts:
        return self.runs[0].facts

    @property
    def spans(self) -> list[Span]:
        return [span for run in self.runs for span in run.spans]

    def timeline(self) -> Timeline:
        return timeline([(run.spans, run.facts) for run in self.runs], self.now_ns)


async def trace_tree(
    bus: Bus, logs: dict[str, list[LogEvent]], *, contents: bool = False
) -> TracedTree:
    """The traces of runs whose logs were read, with what programs reported inside of them.

    ``contents``: with all that was said; else only with the arguments of tools.
    """
    runs: list[TracedRun] = []
    for run, events in logs.items():
        if not events:
            continue
        trace = RunTrace.of(run, events, contents=contents)
        spans = trace.spans()
        if not contents:
            _add_arguments(spans, events)
        runs.append(TracedRun(facts=trace.facts(), spans=spans, events=events))
    reported = await _read_reported(bus, runs[0].facts.trace_id, contents=contents)
    runs[0].spans.extend(below(reported, (span.span_id for run in runs for span in run.spans)))
    return TracedTree(runs=runs, now_ns=time.time_ns())


def _add_arguments(spans: Iterable[Span], events: Iterable[LogEvent]) -> None:
    asked = {
        it.event.call: it.event.arguments
        for it in events
        if isinstance(it.event, CallRequested) and it.event.traits.is_tool
    }
    for span in spans:
        arguments = asked.get(str(span.attributes.get(semconv.CALL, "")))
        if arguments and span.operation == "tool":
            span.contents[semconv.TOOL_ARGUMENTS] = arguments


async def _read_reported(bus: Bus, trace_id: str, *, contents: bool) -> list[Span]:
    """What programs have reported about a trace; what cannot be read is left out."""
    subject = bus.subjects.trace_spans(trace_id)
    spans: list[Span] = []
    for stored in await stale_many(bus.connection, bus.topology.log, subject, after=0):
        try:
            message = _reported(stored.data)
            spans.extend(
                reported_spans(message, trace_id, sequence=stored.sequence, contents=contents)
            )
        except (*NOT_JSON, MessageError):
            continue
    return spans


def below(spans: Sequence[Span], known: Iterable[str]) -> list[Span]:
    """Those of the spans that are inside of known ones; a caller's trace may hold other runs."""
    todo = list(known)
    seen = set(todo)
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.span_id not in seen:
            children[span.parent_id].append(span)
    found: list[Span] = []
    while todo:
        for span in children.pop(todo.pop(), ()):
            if span.span_id not in seen:  # a program may report the same span twice
                seen.add(span.span_id)
                found.append(span)
                todo.append(span.span_id)
    return found
