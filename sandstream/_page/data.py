"""What the scripts of a page read: rows of the waterfall, events, the runs. Texts are fit to show.

Times are microseconds since the beginning of the timeline: exact numbers in every browser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import msgspec
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.environment_values import without_values
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.fold.times import nanoseconds
from sandstream_actors.tracing.redaction import scrub_value
from sandstream_actors.tracing.span import Attributes, Span
from sandstream_bus.counts import numbered
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    InputStaged,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    TurnRequested,
)

from sandstream._inspect.reader import RunReader
from sandstream._inspect.rows import EventRow, Item
from sandstream._inspect.texts import call_text, error_text, item_text, output_text, usage_text
from sandstream._inspect.timeline import Row, Timeline
from sandstream._page.text import Texts

_NAME_LENGTH = 300
_ABOUT_LENGTH = 300
_INPUT_LENGTH = 4_000
"""Each model call repeats the whole conversation; shown in full, it would fill the page."""


class Moment(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that happened at one time of a span."""

    name: str
    at: int
    attributes: dict[str, str] = {}


class Link(msgspec.Struct, kw_only=True, omit_defaults=True):
    span: str
    why: str = ""


class PageRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One row of the waterfall, with what its details show."""

    id: str
    depth: int = 0
    label: str
    name: str
    op: str
    agent: str = ""
    run: str = ""
    is_run: bool = False
    start: int
    work: int
    end: int
    parts: list[tuple[str, int, int]] = []
    is_open: bool = False
    status: str = "ok"
    error: str = ""
    message: str = ""
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    attempts: int = 1
    takeovers: int = 0
    retries: int = 0
    worker: str = ""
    lost: int = 0
    lost_worker: str = ""
    by: str = ""
    decision: str = ""
    detail: str = ""
    child: str = ""
    """The run that this call has started."""
    attributes: dict[str, str] = {}
    contents: dict[str, str] = {}
    moments: list[Moment] = []
    links: list[Link] = []
    seq: int = 0


class PageEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    run: str
    seq: int
    at: int
    kind: str
    about: str = ""
    subject: str = ""
    body: str
    """JSON, laid out."""


class RunName(msgspec.Struct, kw_only=True, omit_defaults=True):
    run: str
    agent: str
    status: str
    has_log: bool = False


class PageData(msgspec.Struct, kw_only=True):
    origin_ms: float
    """When the timeline begins, in milliseconds since 1970."""
    length: int
    run: str
    runs: list[RunName]
    rows: list[PageRow]
    events: list[PageEvent]


def page_rows(drawn: Timeline, spans: Iterable[Span], texts: Texts) -> list[PageRow]:
    by_id = {span.span_id: span for span in spans}
    return [_row(row, by_id[row.span_id], drawn.start_ns, texts) for row in drawn.rows]


def page_events(
    runs: Sequence[tuple[str, Sequence[LogEvent]]], start_ns: int, texts: Texts
) -> list[PageEvent]:
    """The events of all runs, in the order in which they happened."""
    events: list[PageEvent] = []
    for run, log in runs:
        for logged, row in zip(log, RunReader(run).read(log), strict=True):
            body = msgspec.json.decode(msgspec.json.encode(without_values(logged.event)))
            events.append(
                PageEvent(
                    run=texts.line(run),
                    seq=logged.sequence,
                    at=(nanoseconds(logged.stored.time) - start_ns) // 1000,
                    kind=str(logged.event.__struct_config__.tag),
                    about=texts.line(_about(row), _ABOUT_LENGTH),
                    subject=texts.line(logged.subject),
                    body=texts.value(body),
                )
            )
    return sorted(events, key=lambda it: (it.at, it.seq))


def run_name(facts: RunFacts, has_log: bool, texts: Texts) -> RunName:
    return RunName(
        run=texts.line(facts.run),
        agent=texts.line(facts.first_agent or facts.agent),
        status=facts.status,
        has_log=has_log,
    )


def _row(row: Row, span: Span, start_ns: int, texts: Texts) -> PageRow:
    def at(time_ns: int) -> int:
        return (time_ns - start_ns) // 1000

    return PageRow(
        id=row.span_id,
        depth=row.depth,
        label=texts.line(row.label, _NAME_LENGTH),
        name=texts.line(span.name, _NAME_LENGTH),
        op=row.operation,
        agent=texts.line(row.agent, _NAME_LENGTH),
        run=texts.line(row.run),
        is_run=row.is_run,
        start=at(row.start_ns),
        work=at(row.work_ns),
        end=at(row.end_ns),
        parts=[(part.kind, at(part.start_ns), at(part.end_ns)) for part in row.parts],
        is_open=row.is_open,
        status=row.status,
        error=texts.line(row.error, _NAME_LENGTH),
        message=texts.text(row.error_message),
        model=texts.line(row.model),
        tokens_in=row.input_tokens,
        tokens_out=row.output_tokens,
        attempts=row.attempts,
        takeovers=row.takeovers,
        retries=row.retries,
        worker=texts.line(row.worker),
        lost=row.lost_ns // 1000,
        lost_worker=texts.line(row.lost_worker),
        by=texts.line(row.by),
        decision=texts.line(row.decision),
        detail=texts.line(row.detail) if row.detail != "{}" else "",
        child=texts.line(_text(span.attributes.get(semconv.CHILD_RUN))),
        attributes=_attributes(span.attributes, texts),
        contents={texts.line(key): _content(key, it, texts) for key, it in span.contents.items()},
        moments=[
            Moment(
                name=texts.line(it.name),
                at=at(it.time_ns),
                attributes=_attributes(it.attributes, texts),
            )
            for it in span.events
        ],
        links=[
            Link(span=it.span_id, why=texts.line(_text(it.attributes.get(semconv.LINK))))
            for it in span.links
        ],
        seq=row.first_seq,
    )


def _attributes(attributes: Attributes, texts: Texts) -> dict[str, str]:
    """Some values are secrets by their names alone."""
    shown = {key: scrub_value(key, it) for key, it in attributes.items()}
    return {
        texts.line(key): texts.text(", ".join(it)) if isinstance(it, list) else texts.value(it)
        for key, it in shown.items()
    }


def _content(name: str, value: Any, texts: Texts) -> str:
    if not isinstance(value, str):
        return texts.value(value)
    if name == semconv.INPUT_MESSAGES and 0 < min(texts.most, _INPUT_LENGTH) < len(value):
        return f"({len(value):,} characters: the conversation up to here)"
    return texts.json_text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# --- events -------------------------------------------------------------------------------------


def _about(row: EventRow) -> str:
    """What an event is about."""
    event = row.event
    match event:
        case RunStarted():
            said = [item_text(it.value) for it in row.items[-1:]]
            return ": ".join([event.graph.start, *said])
        case RunRestored():
            return f"from a saved state, {numbered(len(event.events), 'event')}"
        case ConversationOpened():
            return f"{numbered(len(event.history), 'item')} of history"
        case InputStaged():
            return event.input if isinstance(event.input, str) else "more input"
        case ApprovalRequested():
            return call_text(event.name, event.arguments)
        case ApprovalDecided():
            decision = "approved" if event.approve else "rejected"
            return f"{row.name}: {decision}" + _by(event.by)
        case RunWaiting() | ChildWaiting():
            return "for " + ", ".join(it.name for it in event.approvals)
        case TurnRequested():
            return f"turn {event.turn}, {event.agent} ({event.reason})"
        case RunReopened():
            return event.reason
        case RunMoved():
            return f"to pool {event.pool}"
        case ModelAnswered():
            return _answer(event, row.items)
        case ModelDeferred():
            return f"retry {event.attempt} in {event.delay_s:g} s: {event.error.message}"
        case CallRequested():
            if event.traits.is_tool:
                return call_text(event.name, event.arguments)
            return f"{event.kind} {event.name}".strip()
        case CallStarted():
            return f"{row.name} on {event.host}"
        case CallFinished():
            if event.error is not None:
                return f"{row.name}: {event.error.message}"
            if event.traits.is_tool:
                return f"{row.name} → {output_text(event.output)}"
            return row.name
        case CancelRequested():
            return event.reason or event.mode
        case RunDone():
            why = error_text(event.error) if event.error else output_text(event.output)
            return f"{event.status}: {why}" if why else event.status
        case _:
            assert_never(event)


def _answer(event: ModelAnswered, items: list[Item]) -> str:
    parts: Counter[str] = Counter()
    for item in items:
        match item.kind:
            case "message":
                parts[item.text] += 1
            case "call" if item.is_custom:
                parts[f"{item.name}({item.arguments})"] += 1
            case "call":
                parts[call_text(item.name, item.arguments)] += 1
            case _:
                parts[item.type] += 1
    told = [part if count == 1 else f"{part} ×{count}" for part, count in parts.items()]
    return " · ".join([*told, usage_text(event.usage)])


def _by(who: str) -> str:
    return f" by {who}" if who else ""
