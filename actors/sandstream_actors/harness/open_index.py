"""Updates the index of open runs when a run waits for people."""

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
    """Enter the approvals for which a run is about to wait, with the times of their requests.

    This happens before the event ``run.waiting``, so that every reader of that event finds them in
    the index.
    """
    if state.started is None:
        return
    asked = await bus.log.read_subject(bus.subjects.approval_requested(state.run))
    times = {
        it.event.call: it.stored.time for it in asked if isinstance(it.event, ApprovalRequested)
    }
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    questions = [  # an approval of a child run is in the entry of that run, with its exact time
        Question(asked=it, since=now if it.run else times.get(it.call, now))
        for it in waiting.approvals
    ]
    await bus.open_runs.note_waiting(state.run, entry_of(state.started), state.last_seq, questions)
