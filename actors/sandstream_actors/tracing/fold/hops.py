"""Messages between actors: who sent them, who processed them, and how long they waited.

An event that wakes an actor is a message: it gets a ``send`` span of zero length. The actor's work
on it is a ``process`` span that links back. Both are found by the header that names the cause of an
event.
"""

from __future__ import annotations

from typing import NamedTuple

from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.attempts import attempt_of
from sandstream_bus.wire.trace_context import span_id_of

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, SpanLink

_WAKING = frozenset({"start", "turn", "call", "sandbox", "result", "cancel", "input"})
_POOLS = {"start": "harness", "turn": "harness", "result": "harness", "call": "tools"}


class Hop(NamedTuple):
    """A message of a run: a stored event that wakes an actor."""

    sequence: int
    time_ns: int
    kind: str
    """The token of its subject that names its kind."""
    template: str
    group: str
    """The consumer that receives it."""
    attributes: Attributes

    @property
    def by_harness(self) -> bool:
        """Whether the harness processes it, rather than a tool host or sandbox actor."""
        return self.kind not in ("call", "sandbox")


def hop_of(event: LogEvent, time_ns: int) -> Hop | None:
    """The event as a message; ``None`` if it wakes no actor."""
    head, _, tail = event.subject.partition(".run.")
    _, _, rest = tail.partition(".")
    kind, _, detail = rest.partition(".")
    if kind not in _WAKING and rest != "approval.decided":
        return None
    place = ".{pool}" if kind in _POOLS else (".{provider}" if kind == "sandbox" else "")
    name = rest if kind == "approval" else kind
    template = f"{head}.run.{{run}}.{name}{place}"
    if kind == "sandbox":
        template += ".{node}" if "." in detail else ""
        group = f"sandbox-{detail.replace('.', '-')}"
    else:
        group = f"{_POOLS[kind]}-{detail}" if kind in _POOLS else ""
    attributes: Attributes = {
        semconv.MESSAGING_SYSTEM: semconv.NATS,
        semconv.DESTINATION_NAME: event.subject,
        semconv.DESTINATION_TEMPLATE: template,
        semconv.SEQUENCE: event.sequence,
        semconv.BODY_SIZE: len(event.stored.data),
    }
    if event.stored.msg_id:
        attributes[semconv.MESSAGE_ID] = event.stored.msg_id
    return Hop(event.sequence, time_ns, kind, template, group, attributes)


def cause_of(event: LogEvent) -> int:
    """The sequence of the event that caused this one; 0 if unknown."""
    return attempt_of(event.stored.headers).cause


def send_span_id(run: str, sequence: int) -> str:
    return span_id_of(run, f"send:{sequence}")


def process_span_id(run: str, sequence: int) -> str:
    return span_id_of(run, f"process:{sequence}")


def link_to(trace_id: str, run: str, sequence: int, why: str, deliveries: int = 1) -> SpanLink:
    attributes: Attributes = {semconv.LINK: why}
    if deliveries > 1:
        attributes[semconv.DELIVERIES] = deliveries
    return SpanLink(trace_id=trace_id, span_id=send_span_id(run, sequence), attributes=attributes)
