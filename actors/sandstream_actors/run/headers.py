"""Headers of a run's messages: their cause, and the span that they belong to."""

from __future__ import annotations

from sandstream_bus.logs.chain import before_header
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire.attempts import caused_by
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.trace_context import TraceContext, call_span_id, run_span_id, trace_id_of

from sandstream_actors.run.state import RunState


def trace_of(state: RunState) -> TraceContext:
    """The run's own span. Its trace is the caller's, or is derived from the run's id."""
    given = TraceContext.parse(state.traceparent)
    span_id = run_span_id(state.run, state.reopens)
    if given is not None:
        return TraceContext(given.trace_id, span_id, given.sampled)
    parent = state.started.parent if state.started is not None else None
    return TraceContext(trace_id_of(parent.root if parent is not None else state.run), span_id)


def trace_header(state: RunState) -> str | None:
    """The ``traceparent`` of a run's own messages; None for a run without tracing, so that readers
    know even after its start event was purged.
    """
    return trace_of(state).header if state.options.traced else None


def following(state: RunState, delivery: Delivery) -> dict[str, str]:
    """Headers of a message of the run that follows from a delivery."""
    return _following(delivery, trace_header(state))


def deciding(state: RunState, delivery: Delivery) -> dict[str, str]:
    """The same for a decision, which also names the run's previous events."""
    return following(state, delivery) | before_header(state.recent)


def asking(state: RunState, delivery: Delivery, call: str) -> dict[str, str]:
    """The same for a call: its work is below the call's span."""
    traceparent = call_parent(state, call) if state.options.traced else None
    return _following(delivery, traceparent)


def call_parent(state: RunState, call: str) -> str:
    """The ``traceparent`` of all messages of a call."""
    trace = trace_of(state)
    return trace._replace(span_id=call_span_id(state.run, call, again(state))).header


def again(state: RunState) -> str:
    """A request repeated after a move or a reopening is another message with another span."""
    return f":m{state.moves}r{state.reopens}" if state.moves or state.reopens else ""


def answering(delivery: Delivery) -> dict[str, str]:
    """Headers of the outcome of a delivered call: it belongs to the call's span."""
    return _following(delivery, delivery.headers.get(TRACEPARENT))


def _following(delivery: Delivery, traceparent: str | None) -> dict[str, str]:
    return caused_by(delivery.sequence, traceparent, delivery.attempt, delivery.given_back)
