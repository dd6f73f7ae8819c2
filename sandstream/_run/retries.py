"""Retries of failed runs: checked here before anything is written, then written directly or
requested from a harness.
"""

from __future__ import annotations

import uuid

from sandstream_actors.harness.retries import retry_run
from sandstream_actors.harness.retry_plan import RETRIED, CannotRetry, check_retried, plan_retry
from sandstream_actors.harness.tasks import TaskIntake
from sandstream_actors.run.state import RunState
from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import RetryRequested, RunDone
from sandstream_bus.wire.subjects import RunId, user_of

from sandstream._wire.asks import Asks
from sandstream._wire.ids import PRIVATE_POOL
from sandstream.exceptions import RetryRefused


async def retry(
    bus: Bus, run: RunId, events: list[LogEvent], wanted: RetryRequested, *, asks: Asks | None
) -> None:
    """Let a failed run continue from the step that failed.

    Raises :class:`RetryRefused` if it cannot, before any effect.
    """
    state = RunState.of(run, events)
    try:
        if state.started is None:
            check_retried(state)
            if asks is None:  # an outside user may not read tasks: there the harness checks
                await TaskIntake(bus).check(run, events)
        else:
            plan_retry(run, events, wanted)
            await _check_served(bus, state)
        if asks is None and state.started is not None:
            msg_id = f"{run}:retry:{uuid.uuid4().hex}"
            await retry_run(bus, run, wanted, msg_id=msg_id)
            return
    except CannotRetry as error:
        raise RetryRefused(str(error)) from None
    # a run that has not begun takes two events: a harness writes both, even if it crashes between
    asks = asks or Asks(bus, user_of(run))
    await asks.of_run(run, "retry", wanted)


async def _check_served(bus: Bus, state: RunState) -> None:
    """A run of ``Runner.run`` can continue only in a program that has its code."""
    assert state.started is not None
    if not state.host.startswith(PRIVATE_POOL):
        return
    if not await bus.presence.is_served(f"tools-{state.host}"):
        key = state.started.key
        how = (
            f"run that program again with RunConfig(run_key={key!r}, retry_failed=True), or "
            f"`sandstream run … --key {key} --retry`"
            if key
            else "it has no run_key, so no other program can continue it: start another run"
        )
        raise CannotRetry(
            f"the program that began run {state.run} has its agents and tools, and is not running: "
            f"{how}"
        )


def stored_note(run: str, done: RunDone, ended_at: str) -> str:
    """A note for a caller that gets the stored end of a run that had ended before the call."""
    when = ended_at[:19].replace("T", " ")
    text = f"This is the stored outcome of run {run}, which ended {when} UTC; nothing was done now."
    if done.status not in RETRIED:
        return f"{text} Use another key for another run."
    return (
        f"{text} To have its failed step tried again: RunConfig(retry_failed=True) beside the "
        f"run_key (`sandstream run`: --retry), or `sandstream retry {run}` if a worker serves it."
    )
