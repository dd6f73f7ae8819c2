"""The log of a run and of its open child runs, as a saved state stores it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
from sandstream_actors.run.places import past_events
from sandstream_actors.run.state import RunState as LogState
from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ModelAnswered,
    PastEvent,
    RunEvent,
    RunRestored,
    RunStarted,
    TurnRequested,
)
from sandstream_bus.wire.subjects import RunId, run_in

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder[RunEvent](RunEvent).decode


class Past(NamedTuple):
    """An event of a log that may be on another server."""

    sequence: int
    subject: str
    event: RunEvent

    @property
    def run(self) -> RunId:
        return run_in(self.subject)


class RunRecord:
    """A run up to some event, and the child runs that it waits for."""

    def __init__(self, run_id: RunId, events: Sequence[Past]) -> None:
        self.run_id = run_id
        self.events = events

    @classmethod
    async def read(cls, bus: Bus, state: LogState, events: Sequence[LogEvent]) -> RunRecord:
        """A record of ``events``, with the logs of open child runs."""
        found: list[Past] = []
        todo = [(state, events)]
        while todo:
            current, logged = todo.pop(0)
            found += [Past(it.sequence, it.subject, it.event) for it in logged]
            if current.done is not None:
                continue
            for call in current.open_children():
                child = RunId(call.child)
                below = await bus.log.read(child)
                todo.append((LogState.of(child, below), below))
        return cls(state.run, found)

    @classmethod
    def of_past(cls, run: RunId, events: Sequence[PastEvent]) -> RunRecord:
        return cls(run, [Past(it.sequence, it.subject, _decode(it.body)) for it in events])

    def past(self, run: RunId | None = None) -> list[PastEvent]:
        """The events as data: all of them, or those of one run."""
        return [
            PastEvent(sequence=it.sequence, subject=it.subject, body=msgspec.Raw(_encode(it.event)))
            for it in (self.events if run is None else self.log_of(run))
        ]

    @property
    def runs(self) -> list[RunId]:
        """The run and its open child runs."""
        return list(dict.fromkeys(it.run for it in self.events))

    def log_of(self, run: RunId) -> list[Past]:
        return [it for it in self.events if it.run == run]

    @cached_property
    def last_sequence(self) -> int:
        return self.log_of(self.run_id)[-1].sequence

    @cached_property
    def state(self) -> LogState:
        """The run's state at the end of the record."""
        state = LogState(self.run_id)
        for it in self.log_of(self.run_id):
            state.apply(it.sequence, it.event, it.subject)
        return state

    def agents(self) -> set[str]:
        """The keys of agents that the run has used, without agents of other workers."""
        found = {key for it in self.log_of(self.run_id) for key in _agents_in(it.event)}
        known = self.state.agents
        return {key for key in found if key in known and not known[key].remote}


def _agents_in(event: RunEvent) -> list[str]:
    if isinstance(event, RunStarted):
        return [event.graph.start]
    if isinstance(event, ModelAnswered | TurnRequested):
        return [event.agent]
    if isinstance(event, RunRestored):
        return [key for _, past in past_events(event) for key in _agents_in(past)]
    return []
