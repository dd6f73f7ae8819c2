"""The places of a run: the harness pool that takes its turns, the process that hosts its callables,
and the places from which it has moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from sandstream_bus.logs.codec import decode
from sandstream_bus.wire.messages import (
    CallRequested,
    RunEvent,
    RunMoved,
    RunRestored,
    RunStarted,
    TurnRequested,
)

_event = msgspec.json.Decoder[RunEvent](RunEvent)


@dataclass
class Places:
    """The pools of one run. Agents that other workers offer keep their own."""

    pool: str = ""
    parent_pool: str = ""
    _first_host: str = ""
    _host: str = ""
    _gone: set[str] = field(default_factory=set)

    def begin(self, started: RunStarted) -> None:
        self.pool = started.pool
        self.parent_pool = started.parent.pool if started.parent else ""
        first = started.graph.agents.get(started.graph.start)
        self._first_host = self._host = first.host if first else ""

    def move(self, moved: RunMoved) -> None:
        self._gone |= {self.pool, self._host}
        self.pool, self._host = moved.pool, moved.host
        self._gone -= {self.pool, self._host}
        self.parent_pool = moved.parent_pool or self.parent_pool

    def host_of(self, host: str) -> str:
        """Where callables are that were at ``host`` when the run started."""
        return self._host if host == self._first_host else host

    def is_elsewhere(self, subject: str, event: RunEvent) -> bool:
        """Does it address a process from which the run has moved? It will not be handled there."""
        if not self._gone or not subject:
            return False
        last = subject.rpartition(".")[2]
        if ".result." in subject:
            return last in self._gone
        if isinstance(event, CallRequested):  # decided before the move, sent after it
            if event.sandbox or event.traits.is_child_run:
                # its receiver serves all pools; only the answer would go to the old pool
                return event.reply_pool in self._gone
            return last in self._gone
        if isinstance(event, TurnRequested):  # a timer that was armed before the move
            return last in self._gone
        return False


def past_events(restored: RunRestored) -> Iterator[tuple[str, RunEvent]]:
    """The events of a saved state, with their subjects."""
    for past in restored.events:
        yield past.subject, decode(_event, past.body)
