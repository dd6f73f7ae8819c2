"""Spans of a run's agents: the run's span is that of its first agent; later agents are below it."""

from __future__ import annotations

from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.specs import AgentSpec
from sandstream_bus.wire.trace_context import run_span_id, span_id_of

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.model_spans import model_of, provider_of, usage_attributes
from sandstream_actors.tracing.fold.span_list import SpanList
from sandstream_actors.tracing.span import Attributes, Span, SpanEvent, SpanLink


class AgentSpans:
    """Tracks the agents of a run and which one is active."""

    def __init__(self, spans: SpanList) -> None:
        self._spans = spans
        self._run: Span | None = None
        self._current: Span | None = None

    @property
    def begun(self) -> bool:
        return self._run is not None

    @property
    def current(self) -> str:
        """The id of the active agent's span."""
        return self._current.span_id if self._current is not None else ""

    def begin(
        self,
        agent: str,
        spec: AgentSpec | None,
        parent: str,
        now: int,
        attributes: Attributes,
        reopens: int = 0,
    ) -> None:
        span_id = run_span_id(self._spans.run, reopens)
        self._run = self._current = self._open(span_id, agent, spec, parent, now, attributes)

    def reopen(
        self, reopens: int, agent: str, spec: AgentSpec | None, now: int, attributes: Attributes
    ) -> None:
        """Continue a run that had ended: open a new span that links to the old one."""
        before = self._run
        assert before is not None
        self.begin(agent, spec, before.parent_id, now, attributes, reopens)
        assert self._run is not None
        self._run.links.append(
            SpanLink(
                trace_id=before.trace_id,
                span_id=before.span_id,
                attributes={semconv.LINK: "reopened"},
            )
        )

    def hand_over(self, agent: str, spec: AgentSpec | None, now: int) -> None:
        assert self._run is not None and self._current is not None
        if self._current is not self._run:
            self._spans.close(self._current, now)
        span_id = span_id_of(self._spans.run, f"agent:{self._spans.sequence}")
        self._current = self._open(span_id, agent, spec, self._run.span_id, now, {})

    def remark(self, event: SpanEvent) -> None:
        """Add an event to the run's span."""
        assert self._run is not None
        self._run.events.append(event)

    def end(self, done: RunDone, now: int, contents: Attributes) -> None:
        assert self._run is not None and self._current is not None
        if self._current is not self._run:
            self._spans.close(self._current, now)
        run = self._run
        run.attributes |= {semconv.RUN_STATUS: done.status, semconv.RUN_TURNS: done.turns}
        run.attributes |= usage_attributes(done.usage)
        run.contents = contents
        if done.status != "completed":
            run.error = done.error.code if done.error is not None else done.status
            run.error_message = done.error.message if done.error is not None else ""
        self._spans.close(run, now)

    def _open(
        self,
        span_id: str,
        agent: str,
        spec: AgentSpec | None,
        parent: str,
        now: int,
        attributes: Attributes,
    ) -> Span:
        own: Attributes = {
            semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
            semconv.PROVIDER_NAME: provider_of(spec),
        }
        if agent:
            own[semconv.AGENT_NAME] = spec.name if spec is not None else agent
        if model := model_of(spec):
            own[semconv.REQUEST_MODEL] = model
        return self._spans.open(
            span_id,
            f"{semconv.INVOKE_AGENT} {agent}".rstrip(),
            "agent",
            parent=parent,
            start_ns=now,
            agent=agent,
            attributes=own | attributes,
        )
