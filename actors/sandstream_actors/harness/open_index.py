"""What the harness tells the index of open runs about a run that waits for people."""

from __future__ import annotations

from datetime import UTC, datetime

from sandstream_bus.bus import Bus
from sandstream_bus.logs.open_runs import entry_of
from sandstream_bus.wire.messages import (
    ApprovalRequested,
    RunWaiting,
)
from sandstream_bus.wire.open_runs import Question

from sandstream_actors.run.state import RunState


async def note_waiting(bus: Bus, state: RunState, waiting: RunWaiting) -> None:
    """Enter the questions that a run is about to wait for, with the times when they were asked.

    Before the event that says so: whoever sees that event finds the questions in the list.
    """
    if state.started is None:
        return
    asked = await bus.log.read_subject(bus.subjects.approval_requested(state.run))
    times = {
        it.event.call: it.stored.time for it in asked if isinstance(it.event, ApprovalRequested)
    }
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    questions = [  # a question of a run below is in the entry of that run with its exact time
        Question(asked=it, since=now if it.run else times.get(it.call, now))
        for it in waiting.approvals
    ]
    await bus.open_runs.note_waiting(state.run, entry_of(state.started), state.last_seq, questions)
