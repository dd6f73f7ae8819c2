"""Retries of runs: decided on the run's newest state, written with compare-and-set. Of two
concurrent retries one succeeds, and a repeated request does not retry twice.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.runs import Conflict
from sandstream_bus.wire.messages import RetryRequested, RunReopened
from sandstream_bus.wire.subjects import RunId, session_of_run

from sandstream_actors.harness.retry_plan import CannotRetry, plan_retry
from sandstream_actors.harness.tasks import TaskIntake
from sandstream_actors.run.state import RunState


async def retry_run(
    bus: Bus, run: RunId, wanted: RetryRequested, *, msg_id: str, by: str = ""
) -> None:
    """Continue a failed run. Once per ``msg_id``.

    Raises :class:`CannotRetry` before anything is written.
    """
    if turn := session_of_run(run):  # its session goes on without it
        raise CannotRetry(
            f"run {run} is turn {turn[1]} of the session {turn[0]}: send the message again"
        )
    while True:
        events = await bus.log.read(run)
        if not events:
            raise CannotRetry(f"there is no run {run}")
        state = RunState.of(run, events)
        if state.started is None:
            await _begin_after_all(bus, run, wanted, msg_id=msg_id, by=by)
            return
        if any(it.stored.msg_id == msg_id for it in events):
            return  # the same request again
        reopened = plan_retry(run, events, wanted, by=by)
        crashpoint("retry.before_reopen")
        try:
            await bus.log.append(
                run,
                bus.subjects.turn(run, state.pool),
                reopened,
                after=state.last_seq,
                msg_id=msg_id,
            )
        except Conflict:
            continue
        crashpoint("retry.after_reopen")
        return


async def _begin_after_all(
    bus: Bus, run: RunId, wanted: RetryRequested, *, msg_id: str, by: str
) -> None:
    if wanted.budget is not None or wanted.max_turns is not msgspec.UNSET:
        raise CannotRetry(
            f"run {run} has not begun, and has the limits that its task gives it: retry it without "
            "others, or submit the task again"
        )
    reason = wanted.reason or "its task was taken again"
    reopened = RunReopened(reason=reason, retry=True, by=by)
    await TaskIntake(bus).retry(run, reopened, msg_id)
