"""Rebuilds the index of open runs from the log: for installations that are older than the index,
and for a lost index. Safe while runs are active: it only adds entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.logs.codec import Codec
from sandstream_bus.logs.open_runs import OpenRuns, entry_of, waiting_entry
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last_each
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire.messages import (
    RunStarted,
    RunWaiting,
)
from sandstream_bus.wire.open_runs import OpenRun, Question
from sandstream_bus.wire.subjects import ANY

_AT_ONCE = 100
"""How many are read at once: starts contain whole agent graphs."""


async def rebuild(
    connection: Connection, topology: Topology, codec: Codec, open_runs: OpenRuns
) -> int:
    """Enter every open run of the log; return their number.

    Decided by subjects: a run is open if it has a start and no end, or if it was reopened after its
    end. Costs about two seconds per million events.
    """
    starts = await _subjects(connection, topology, "start.*")
    ends = await _subjects(connection, topology, "done")
    turns = await _subjects(connection, topology, "turn.*")
    waits = await _subjects(connection, topology, "waiting")
    reopened = await _reopened(connection, topology, turns.keys() & ends.keys())
    still_open = sorted((starts.keys() - ends.keys()) | (reopened & starts.keys()))
    for index in range(0, len(still_open), _AT_ONCE):
        some = still_open[index : index + _AT_ONCE]
        wanted = [starts[run] for run in some] + [waits[run] for run in some if run in waits]
        found = await fresh_last_each(connection, topology.log, wanted)
        entries: dict[str, OpenRun] = {}
        for stored in found:  # in stream order: a run's start comes first
            run = topology.subjects.parse_run(stored.subject).run
            entries[run] = await _entry(codec, entries.get(run), stored)
        await asyncio.gather(*(open_runs.enter(run, entry) for run, entry in entries.items()))
    return len(still_open)


async def _entry(codec: Codec, entry: OpenRun | None, stored: Stored) -> OpenRun:
    """A run's entry after its start event, and after the event with which it waits."""
    try:
        event = await codec.run_event(stored.data)
    except (MessageError, ObjectMissing):  # it is an open run anyway
        event = None
    if isinstance(event, RunWaiting):
        entry = entry or OpenRun(since=stored.time)
        questions = [Question(asked=it, since=stored.time) for it in event.approvals]
        return waiting_entry(entry, stored.sequence, questions)
    started = entry_of(event) if isinstance(event, RunStarted) else OpenRun()
    return msgspec.structs.replace(started, since=stored.time)


async def _reopened(connection: Connection, topology: Topology, runs: Iterable[str]) -> set[str]:
    """The ended runs that continued after their end."""
    subjects = topology.subjects
    wanted = [it for run in sorted(runs) for it in (subjects.turn(run, ANY), subjects.done(run))]
    last: dict[str, Stored] = {}
    for stored in await fresh_last_each(connection, topology.log, wanted):
        # in stream order: the newest one remains
        last[topology.subjects.parse_run(stored.subject).run] = stored
    return {run for run, stored in last.items() if not stored.subject.endswith(".done")}


async def _subjects(connection: Connection, topology: Topology, kind: str) -> dict[str, str]:
    """The runs that have an event of a kind, each with that event's subject."""
    [events] = topology.subjects.events(kind)
    found = await topology.subjects_of(connection, topology.log, events)
    return {topology.subjects.parse_run(subject).run: subject for subject in found}
