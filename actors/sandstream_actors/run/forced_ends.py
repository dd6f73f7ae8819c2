"""Ends runs outside of a harness step: a message of the run was parked, no process works on the run
any more, or the log is about to lose the run's beginning. The run may be unreadable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import MessageError
from sandstream_bus.logs.runs import Conflict, LogEvent
from sandstream_bus.nats.leader import Stored
from sandstream_bus.wire.attempts import caused_by
from sandstream_bus.wire.messages import ErrorInfo, RunDone, RunReopened, RunRestored, RunStarted
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.run.conversation import let_go
from sandstream_actors.run.ends import cancelled, memory_part
from sandstream_actors.run.headers import again, trace_header
from sandstream_actors.run.sandbox_calls import closing_calls
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import take_in
from sandstream_actors.run.tree_ends import TreeEnds


async def end_parked_run(bus: Bus, run: RunId, reason: str) -> None:
    """End a run because one of its messages was parked. No effect on a run that has ended or never
    started.
    """
    if await bus.log.has_begun(run) or await bus.open_runs.has(run):
        await force_end(bus, run, reason)


async def force_end(bus: Bus, run: RunId, reason: str) -> None:
    """End a run even if its log is empty or unreadable, because a caller waits for the end."""
    error = ErrorInfo(code="parked", message=f"a message of this run was parked: {reason}")
    while True:
        state = await read_for_end(bus, run)
        if state is None:
            return
        if state.done is None:
            crashpoint("parking.before_end")
            msg_id = f"{run}:parked{state.last_seq}"
            if not await write_end(bus, state, end_of(state, error), msg_id):
                continue
            crashpoint("parking.after_end")
        await follow_end(bus, state)
        return


async def read_for_end(bus: Bus, run: RunId) -> RunState | None:
    """The run's state as far as it can be read; None if it has ended and cannot be read.

    Unreadable events are skipped. The others tell which parties the end concerns: the parent, the
    children, the conversation, the sandboxes.
    """
    found = await bus.log.stored(run)
    events = await _readable(bus, found)
    if any(isinstance(it.event, RunStarted | RunRestored) for it in events):
        state = RunState(run)
        with contextlib.suppress(MessageError):  # of a saved state that cannot be read
            state.fold(events)
            state.last_seq = found[-1].sequence
            return state
    # unreadable, or its beginning is lost: the subjects on the server are enough to end it
    state = RunState(run)
    state.last_seq = await bus.log.last_sequence(run)
    try:
        ended = await bus.log.last(bus.subjects.done(run))
    except MessageError:
        ended = None  # ignore an unreadable end
    if ended is not None and not any(isinstance(it.event, RunReopened) for it in events):
        return None
    return state


async def _readable(bus: Bus, found: Sequence[Stored]) -> list[LogEvent]:
    events: list[LogEvent] = []
    for stored in found:
        with contextlib.suppress(MessageError):
            events.append(await bus.log.decoded(stored))
    return events


def end_of(state: RunState, error: ErrorInfo, agent: str = "") -> RunDone:
    """The end; ``agent``: its agent, if the run's events no longer tell."""
    return RunDone(
        status="failed",
        agent=state.agent_name or agent,
        turns=state.turn,
        usage=state.usage,
        error=error,
        memory=memory_part(state) if state.started is not None else None,
    )


async def write_end(bus: Bus, state: RunState, done: RunDone, msg_id: str) -> bool:
    """Write the end unless the run has new events; return whether it is written."""
    subject = bus.subjects.done(state.run)
    try:
        sequence = await bus.log.append(
            state.run, subject, done, after=state.last_seq, msg_id=msg_id
        )
    except (Conflict, MessageError):  # the run has new events, perhaps unreadable ones
        return False
    await take_in(bus, state, sequence, done, subject)
    return True


async def end_cancelled(bus: Bus, run: RunId) -> None:
    """Write the end of a cancelled run that no harness serves any more."""
    while True:
        state = RunState.of(run, await bus.log.read(run))
        if state.done is not None:
            return
        done, subject = cancelled(state).done, bus.subjects.done(run)
        try:
            sequence = await bus.log.append(
                run, subject, done, after=state.last_seq, msg_id=f"{run}:done{state.dones}"
            )
        except Conflict:
            continue
        await take_in(bus, state, sequence, done, subject)
        await follow_end(bus, state)
        return


async def follow_end(bus: Bus, state: RunState) -> None:
    """The consequences of an end that no harness has written. Safe to repeat."""
    assert state.done is not None
    await bus.open_runs.leave(state.run)
    await let_go(bus, state, state.done)
    await _close_sandboxes(bus, state)
    await TreeEnds(bus).close_tree(state)


async def _close_sandboxes(bus: Bus, state: RunState) -> None:
    if state.started is None:
        return
    opened = {name: it for name, _, it in state.to_close()}
    headers = caused_by(state.last_seq, trace_header(state))
    await asyncio.gather(
        *(
            bus.work_log.send(
                bus.subjects.run_sandbox(
                    state.run, opened[call.agent].provider, opened[call.agent].node
                ),
                call,
                msg_id=f"{state.run}:{call.call}{again(state)}",
                headers=headers,
            )
            for call in closing_calls(state)
        )
    )
