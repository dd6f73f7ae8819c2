"""One run's events as spans: a pure fold. The same events give the same spans, ids included."""

from __future__ import annotations

from collections.abc import Iterable

from sandstream_bus.log import LogEvent

from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.span import Span


class RunTrace:
    """Everything that one run's log says about its trace.

    ``contents`` also collects what was said (``Span.contents``), unless the run forbids it.
    """

    def __init__(self, run: str, *, contents: bool = False) -> None:
        self.run = run
        self.contents = contents

    @classmethod
    def of(cls, run: str, events: Iterable[LogEvent], *, contents: bool = False) -> RunTrace:
        trace = cls(run, contents=contents)
        trace.fold(events)
        return trace

    def fold(self, events: Iterable[LogEvent]) -> None:
        for event in events:
            self.apply(event)

    def apply(self, event: LogEvent) -> None:
        raise NotImplementedError

    def spans(self) -> list[Span]:
        """All spans so far, parents before children; those that last have no end."""
        raise NotImplementedError

    def facts(self) -> RunFacts:
        raise NotImplementedError
