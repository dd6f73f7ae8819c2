"""The spans of a whole run tree as the rows of a timeline.

Messages in transit have no rows: the time that a message lay in a queue, or that a lost process
had it, is a part of the bar of the work that it led to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.span import Operation, Span, SpanEvent, SpanLink

from sandstream._inspect.parts import Interval, Part, PartKind, layered, overlaid, union

Trace = tuple[Sequence[Span], RunFacts]
"""One run: its spans, and what is known about it."""

_PREFIXES = (f"{semconv.INVOKE_AGENT} ", f"{semconv.EXECUTE_TOOL} ")
_WAITS: dict[Operation, PartKind] = {"approval": "person", "wait": "rate_limit"}


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One bar, with what stands beside it. Names and texts are foreign: clean or escape them."""

    span_id: str
    parent_id: str = ""
    """The parent row; empty for the top row."""
    depth: int = 0
    label: str
    operation: Operation
    detail: str = ""
    """More about it: a tool's arguments as JSON, if these may be shown."""
    agent: str = ""
    run: str = ""
    is_run: bool = False
    """The row represents a whole run."""
    start_ns: int
    """When the work was requested. Includes the time in the queue."""
    work_ns: int
    """When a process began to work on it."""
    end_ns: int
    """Where the bar ends: now, if it is still open."""
    parts: list[Part] = []
    """The bar, from ``start_ns`` to ``end_ns``, in order and without gaps."""
    is_open: bool = False
    status: str = "ok"
    """``ok``, ``error`` or ``open``; for a run its status."""
    error: str = ""
    error_message: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    attempts: int = 1
    """How many tries by processes the step took (see sandstream_bus/wire/attempts.py)."""
    takeovers: int = 0
    """How many attempts followed a lost process; for a run, the total of its takeovers."""
    retries: int = 0
    """How many requests the model client repeated; for a run, the total of its retries."""
    worker: str = ""
    """The process that did it, ``host:pid:instance``; empty where the log does not name it."""
    lost_ns: int = 0
    """How long lost processes held it."""
    lost_worker: str = ""
    """The last lost process, if the log names it."""
    turn: int = 0
    turns: int = 0
    """For a run: the number of its turns."""
    by: str = ""
    """Of an approval: who decided."""
    decision: str = ""
    truncated: bool = False
    """Of a run: the log has lost its beginning."""
    child_count: int = 0
    """How many rows are directly below it."""
    first_seq: int = 0

    @property
    def is_failed(self) -> bool:
        return bool(self.error)

    @property
    def queued_ns(self) -> int:
        """The time in queues before the work began."""
        return sum(
            part.length_ns for part in self.parts if part.kind == "queued" and self._is_before(part)
        )

    def _is_before(self, part: Part) -> bool:
        return part.end_ns <= self.work_ns

    @property
    def took_ns(self) -> int:
        """The work, without the queue."""
        return self.end_ns - self.work_ns


class TakenOver(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A moment at which another process took over."""

    at_ns: int
    lost_ns: int = 0
    """How long the process before had the step, as far as the log tells."""
    count: int = 1
    """More than one: others had it in between, and left no sign."""
    worker: str = ""
    """The process that took over."""
    lost_worker: str = ""
    """The process that was lost; empty: the log does not name it."""


class Timeline(msgspec.Struct, kw_only=True):
    """Rows in the order in which they are drawn: each below its parent, siblings by time."""

    trace_id: str = ""
    rows: list[Row] = []
    start_ns: int = 0
    end_ns: int = 0
    """The whole axis; never before ``start_ns``."""
    runs: int = 0
    is_open: bool = False
    truncated: bool = False
    takeovers: list[TakenOver] = []
    """Of all runs, in order; each once, whichever rows it concerns."""


def timeline(traces: Sequence[Trace], now_ns: int) -> Timeline:
    """The timeline of a tree of runs, whose first is the one that is looked at."""
    facts = {known.run: known for _, known in traces}
    spans = {span.span_id: span for one, _ in traces for span in one}
    latest = max([now_ns, *(max(it.start_ns, it.end_ns) for it in spans.values())])
    tree = _Tree(spans)
    earlier = {link.span_id for it in spans.values() for link in it.links if _is_reopening(link)}
    rows: list[Row] = []
    lost: dict[str, list[Interval]] = {}
    """What was lost, by the row that it is drawn in."""
    for span, depth in tree.in_order():
        known = facts.get(span.run)
        row = _row(span, known, latest)
        row.depth = depth
        row.parent_id = tree.parents[span.span_id]
        above = spans.get(row.parent_id)
        if (
            known is not None
            and span.operation == "agent"
            and (above is None or above.run != span.run)
        ):
            if span.span_id in earlier:
                _add_earlier(row, span)
            else:
                _add_facts(row, known)
        row.child_count = len(tree.below.get(span.span_id, ()))
        carriers = tree.carriers.get(span.span_id, ())
        before = _lost_in([span, *carriers], row, lost)
        _carry(row, carriers, before)
        rows.append(row)
    _fill_parts(rows, lost)
    return Timeline(
        trace_id=traces[0][1].trace_id if traces else "",
        rows=rows,
        start_ns=min((row.start_ns for row in rows), default=0),
        end_ns=max((row.end_ns for row in rows), default=0),
        runs=len(facts),
        is_open=any(not known.is_over for known in facts.values()),
        truncated=any(known.truncated for known in facts.values()),
        takeovers=_takeovers(spans.values()),
    )


class _Tree:
    """Which span is drawn below which, once the messages are folded away."""

    def __init__(self, spans: dict[str, Span]) -> None:
        self._spans = spans
        self.parents: dict[str, str] = {}
        self.below: dict[str, list[Span]] = {}
        self.carriers: dict[str, list[Span]] = {}
        """The ``process`` spans that led to a span, as the first of what they led to."""
        led_to = self._first_of_each()
        for span in spans.values():
            if not self._is_drawn(span, led_to):
                continue
            parent = self._place(span, led_to)
            self.parents[span.span_id] = parent
            self.below.setdefault(parent, []).append(span)
        for siblings in self.below.values():
            siblings.sort(key=lambda it: (it.start_ns - max(0, it.queued_ns), it.first_seq))

    def in_order(self) -> list[tuple[Span, int]]:
        """Parents before their children, with how deep they are."""
        found: list[tuple[Span, int]] = []
        waiting = [(span, 0) for span in reversed(self.below.get("", []))]
        while waiting:
            span, depth = waiting.pop()
            found.append((span, depth))
            waiting.extend((it, depth + 1) for it in reversed(self.below.get(span.span_id, ())))
        return found

    def _first_of_each(self) -> dict[str, Span]:
        """What each ``process`` span led to first."""
        first: dict[str, Span] = {}
        for span in self._spans.values():
            parent = self._spans.get(span.parent_id)
            if span.is_message or parent is None or parent.operation != "process":
                continue
            known = first.get(parent.span_id)
            if known is None or (span.start_ns, span.first_seq) < (known.start_ns, known.first_seq):
                first[parent.span_id] = span
        for process_id, span in first.items():
            self.carriers.setdefault(span.span_id, []).append(self._spans[process_id])
        return first

    def _is_drawn(self, span: Span, led_to: dict[str, Span]) -> bool:
        if not span.is_message:
            return True
        led_nowhere = span.operation == "process" and span.span_id not in led_to
        return led_nowhere and (span.is_open or bool(span.error))

    def _place(self, span: Span, led_to: dict[str, Span]) -> str:
        """The nearest drawn span above; none if the way up is lost or goes in circles."""
        seen = {span.span_id}
        above = self._spans.get(span.parent_id)
        found = ""
        while above is not None and above.span_id not in seen:
            seen.add(above.span_id)
            if not found and self._is_drawn(above, led_to):
                found = above.span_id
            above = self._spans.get(above.parent_id)
        return found if above is None else ""


def _row(span: Span, facts: RunFacts | None, latest: int) -> Row:
    about = span.attributes
    end = span.end_ns
    if span.is_open:
        end = facts.ended_ns if facts is not None and facts.ended_ns else latest
    row = Row(
        span_id=span.span_id,
        label=_label(span),
        operation=span.operation,
        detail=_text(span.contents.get(semconv.TOOL_ARGUMENTS)),
        agent=span.agent,
        run=span.run,
        start_ns=span.start_ns - max(0, span.queued_ns),
        work_ns=span.start_ns,
        end_ns=max(span.start_ns, end),
        is_open=span.is_open and not (facts is not None and facts.is_over),
        error=span.error,
        error_message=span.error_message,
        model=_text(about.get(semconv.RESPONSE_MODEL) or about.get(semconv.REQUEST_MODEL)),
        input_tokens=_number(about.get(semconv.INPUT_TOKENS)),
        output_tokens=_number(about.get(semconv.OUTPUT_TOKENS)),
        cached_tokens=_number(about.get(semconv.CACHE_READ_TOKENS)),
        attempts=max(1, _number(about.get(semconv.ATTEMPTS))),
        takeovers=max(0, _number(about.get(semconv.TAKEOVERS))),
        retries=max(0, _number(about.get(semconv.RETRIES))),
        worker=_text(about.get(semconv.WORKER)),
        turn=_number(about.get(semconv.TURN)),
        by=_text(about.get(semconv.APPROVAL_BY)),
        decision=_text(about.get(semconv.APPROVAL_DECISION)),
        first_seq=span.first_seq,
    )
    row.status = "error" if span.error else "open" if row.is_open else "ok"
    return row


def _add_facts(row: Row, facts: RunFacts) -> None:
    row.is_run = True
    row.status = facts.status
    row.input_tokens = facts.usage.input_tokens
    row.output_tokens = facts.usage.output_tokens
    row.cached_tokens = facts.usage.cached_tokens
    row.takeovers = facts.takeovers
    row.retries = facts.retries
    row.turns = facts.turns
    row.truncated = facts.truncated


def _is_reopening(link: SpanLink) -> bool:
    return link.attributes.get(semconv.LINK) == "reopened"


def _add_earlier(row: Row, span: Span) -> None:
    """The run up to an end that was not its last: what was known of it then."""
    row.is_run = True
    row.status = _text(span.attributes.get(semconv.RUN_STATUS)) or row.status
    row.turns = _number(span.attributes.get(semconv.RUN_TURNS))


def _label(span: Span) -> str:
    for prefix in _PREFIXES:
        if span.name.startswith(prefix):
            return span.name.removeprefix(prefix)
    return span.name


def _takeovers(spans: Iterable[Span]) -> list[TakenOver]:
    found = [
        TakenOver(
            at_ns=event.time_ns,
            lost_ns=_lost_ns(event),
            count=count,
            worker=_text(event.attributes.get(semconv.WORKER)),
            lost_worker=_text(event.attributes.get(semconv.TAKEN_FROM)),
        )
        for span in spans
        for event in span.events
        if span.run  # spans that programs report are not takeovers
        and event.name == semconv.TAKEOVER
        and (count := _number(event.attributes.get(semconv.TAKEOVERS))) > 0
    ]
    return sorted(found, key=lambda it: it.at_ns)


def _lost_ns(event: SpanEvent) -> int:
    seconds = event.attributes.get(semconv.LOST)
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        return 0
    return round(seconds * 1e9)


def _lost_in(spans: Sequence[Span], row: Row, lost: dict[str, list[Interval]]) -> list[Interval]:
    """Give what the spans behind a row have lost to the row that it is drawn in: what came after
    the row's end is of the row above it. What was lost before its work began is returned.
    """
    before: list[Interval] = []
    events = (it for span in spans if span.run for it in span.events)
    for event in (it for it in events if it.name == semconv.TAKEOVER):
        length = _lost_ns(event)
        interval = (event.time_ns - length, event.time_ns)
        is_later = interval[0] >= row.end_ns > row.work_ns
        lost.setdefault(row.parent_id if is_later else row.span_id, []).append(interval)
        if is_later:
            continue
        row.lost_ns += length
        row.lost_worker = _text(event.attributes.get(semconv.TAKEN_FROM)) or row.lost_worker
        if interval[1] <= row.work_ns:
            before.append(interval)
    return before


def _carry(row: Row, carriers: Sequence[Span], lost: Sequence[Interval]) -> None:
    """How long the messages behind a row lay in queues or with lost processes."""
    queued_ns = row.work_ns - row.start_ns
    for process in carriers:
        if not queued_ns and not lost and process.queued_ns > 0:
            row.start_ns = min(row.start_ns, process.start_ns - process.queued_ns)
    if lost:
        row.start_ns = min(start for start, _ in lost) - queued_ns


def _fill_parts(rows: Sequence[Row], lost: dict[str, list[Interval]]) -> None:
    """The bars. A bar with others below it shows their work."""
    below: dict[str, dict[PartKind, list[Interval]]] = {}
    for row in reversed(rows):
        own = lost.get(row.span_id, [])
        inside = below.pop(row.span_id, {})
        if inside:
            inside.setdefault("lost", []).extend(own)
            row.parts = layered(row.work_ns, row.end_ns, inside)
        else:
            kind: PartKind = _WAITS.get(row.operation, "work")
            row.parts = overlaid(Part(kind, row.work_ns, row.end_ns), own)
        if row.start_ns < row.work_ns:
            row.parts = overlaid(Part("queued", row.start_ns, row.work_ns), own) + row.parts
        for part in row.parts if not inside else row.parts[: _own_waits(row)]:
            inside.setdefault(part.kind, []).append((part.start_ns, part.end_ns))
        above = below.setdefault(row.parent_id, {})
        for one, intervals in inside.items():
            above.setdefault(one, []).extend(union(intervals))


def _own_waits(row: Row) -> int:
    """How many parts of the bar come before its work."""
    return sum(part.end_ns <= row.work_ns and part.start_ns < row.work_ns for part in row.parts)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0
