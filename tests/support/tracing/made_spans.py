"""Spans made by hand, for tests of displays; times in milliseconds."""

from __future__ import annotations

from typing import Any

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.span import Operation, Span
from sandstream_bus.wire.messages import TokenUsage

from sandstream._inspect.timeline import Timeline, Trace, timeline

START = 1_700_000_000_000_000_000
MS = 1_000_000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_NAMES = {"agent": "invoke_agent ", "chat": "chat ", "tool": "execute_tool "}


def at(ms: float) -> int:
    return START + int(ms * MS)


class MadeRun:
    """A run whose spans are added one after the other."""

    def __init__(
        self, run: str, agent: str, start: float, end: float = 0, *, parent: str = "", **facts: Any
    ) -> None:
        self.run = run
        self.agent = agent
        self.spans: list[Span] = []
        usage = TokenUsage(input_tokens=facts.pop("tokens", 0), output_tokens=1)
        self.facts = RunFacts(
            run=run,
            trace_id=TRACE,
            root=run,
            agent=agent,
            status=facts.pop("status", "completed" if end else "running"),
            started_ns=at(start),
            ended_ns=at(end) if end else 0,
            usage=usage,
            **facts,
        )
        self.top = self.add("agent", agent, start, end, parent=parent)

    def add(
        self,
        operation: Operation,
        name: str,
        start: float,
        end: float = 0,
        *,
        parent: str | None = None,
        queued: float = 0,
        tokens: tuple[int, int] = (0, 0),
        attributes: dict[str, Any] | None = None,
        **more: Any,
    ) -> str:
        """Add a span and return its id."""
        number = len(self.spans)
        about: dict[str, Any] = dict(attributes or {})
        if any(tokens):
            about |= {semconv.INPUT_TOKENS: tokens[0], semconv.OUTPUT_TOKENS: tokens[1]}
        span = Span(
            trace_id=TRACE,
            span_id=f"{self.run}/{number}",
            parent_id=self.top if parent is None else parent,
            name=_NAMES.get(operation, "") + name,
            operation=operation,
            run=self.run,
            agent=self.agent,
            start_ns=at(start),
            end_ns=at(end) if end else 0,
            queued_ns=int(queued * MS),
            attributes=about,
            first_seq=number + 1,
            **more,
        )
        self.spans.append(span)
        return span.span_id

    @property
    def trace(self) -> Trace:
        return self.spans, self.facts


def timeline_of(*runs: MadeRun, now: float = 0) -> Timeline:
    return timeline([run.trace for run in runs], at(now))
