"""The end of a run one of whose messages nobody could handle. It may be that nobody can read it."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.log import Conflict
from sandstream_bus.messages import ErrorInfo, RunDone
from sandstream_bus.subjects import RunId

from sandstream_actors.harness.children import Children
from sandstream_actors.harness.conversation import let_go
from sandstream_actors.harness.ends import memory_part
from sandstream_actors.run_state import RunState


async def end_parked_run(bus: Bus, run: RunId, reason: str) -> None:
    """Write the end of a run one of whose messages was parked, unless it has ended."""
    error = ErrorInfo(code="parked", message=f"a message of this run was parked: {reason}")
    while True:
        try:
            state = RunState.of(run, await bus.log.read(run))
        except (MessageError, ObjectMissing):  # unreadable: end it from what the server knows
            state = RunState(run)
            state.last_seq = await bus.log.last_sequence(run)
            ended = await bus.log.last(bus.subjects.done(run))
            if ended is not None:
                return
        if state.done is not None:
            await let_go(bus, state, state.done)
            await Children(bus).close_tree(state)
            return
        done = RunDone(
            status="failed",
            agent=state.agent_name,
            turns=state.turn,
            usage=state.usage,
            error=error,
            memory=memory_part(state) if state.started is not None else None,
        )
        crashpoint("parking.before_end")
        try:
            sequence = await bus.log.append(
                run,
                bus.subjects.done(run),
                done,
                after=state.last_seq,
                msg_id=f"{run}:parked{state.last_seq}",
            )
        except Conflict:
            continue
        crashpoint("parking.after_end")
        state.apply(sequence, done)
        await let_go(bus, state, done)
        await Children(bus).close_tree(state)
        return
