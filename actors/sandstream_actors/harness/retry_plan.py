"""Which step a retry of a run repeats, or why the run cannot be retried. Pure, except for the clock
that a time budget needs.

A retry repeats the failed step and keeps all that succeeded. The run's state determines which step
failed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from sandstream_bus.errors import MessageError
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import DoneStatus, RetryRequested, RunDone, RunReopened
from sandstream_bus.wire.specs import Budget
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.harness.steps import decide, fatal_results
from sandstream_actors.run.ends import Finish
from sandstream_actors.run.state import RunState

RETRIED: tuple[DoneStatus, ...] = ("failed", "max_turns", "budget", "guardrail")
"""The end statuses of runs that can be retried."""
_ANSWERS = ("model_behavior", "model_refusal")
"""Error codes of the model's answer: the model is called again."""


class CannotRetry(MessageError):
    """The run cannot be retried, or not with these settings."""

    code = "cannot_retry"


def plan_retry(
    run: RunId, events: Sequence[LogEvent], wanted: RetryRequested, *, by: str = ""
) -> RunReopened:
    """The event that continues a run from the step that failed.

    Raises :class:`CannotRetry` with the reason if there is no such step, or if it could only fail
    again.
    """
    state = RunState.of(run, events)
    check_retried(state)
    _check_place(state)
    _check_children(state)
    reopened = RunReopened(
        reason=wanted.reason or "retried",
        retry=True,
        by=by,
        forgets=_forgets(state),
        drops_answer=_drops_answer(state),
        max_turns=_max_turns(state, wanted),
        budget=_budget(state, wanted.budget),
    )
    _check_helps(state, reopened)
    return reopened


def plan_child_retry(child: RunState, attempt: int, budget: Budget | None) -> RunReopened:
    """The same for a run whose parent is retried. The child may not have ended yet."""
    return RunReopened(
        reason="its parent run was retried",
        retry=True,
        forgets=_forgets(child),
        drops_answer=_drops_answer(child),
        budget=_with_used(child, budget),
        attempt=attempt,
    )


def check_retried(state: RunState) -> RunDone:
    """How the run ended, if it can be retried."""
    run, done = state.run, state.done
    if done is None:
        what = "waits for a person" if state.waiting is not None else "is running"
        raise CannotRetry(f"run {run} {what}: only a run that has failed can be retried")
    if done.status == "completed":
        raise CannotRetry(f"run {run} has completed: there is nothing to retry")
    if done.status == "cancelled":
        raise CannotRetry(
            f"run {run} was cancelled, and cannot be retried: start another one, or continue "
            "from a state that the program has saved (result.to_state())"
        )
    return done


def _check_place(state: RunState) -> None:
    started = state.started
    if started is None:
        return
    if started.parent is not None:
        root = started.parent.root
        raise CannotRetry(
            f"run {state.run} is part of run {root}, which has its result. Retry that run; it "
            f"repeats this one (sandstream retry {root})"
        )
    if started.options.memory is not None:
        raise CannotRetry(
            f"run {state.run} is a phase of the memory {started.options.memory.scope!r}, which "
            "the memory actor starts again by itself (`sandstream memory`)"
        )


def _check_children(state: RunState) -> None:
    for result in fatal_results(state):
        error = result.error if result.traits.is_child_run else None
        if error is not None and error.code == "max_turns":
            raise CannotRetry(
                f"run {state.run} failed because its child run {result.child} has used up the "
                "turns that its tool gives it, and would fail again at once: raise max_turns of "
                "as_tool, and start another run"
            )


def _forgets(state: RunState) -> list[str]:
    """The calls whose outcomes ended the run, and those that its end cancelled."""
    found: dict[str, None] = {}
    for result in fatal_results(state):
        call = result.call
        if result.traits.is_during_child:
            call = call.removesuffix("-watch")
            found |= {call: None, f"{call}-watch": None}
        elif result.traits.names_child:
            # the tool host had to decide about the failure of a child run
            child = state.results.get(call.removesuffix("-output"))
            if child is not None and child.error is not None:
                found |= {child.call: None, f"{child.call}-watch": None}
        found[call] = None
    for call in sorted(state.past.late):
        late = state.results.get(call)
        if late is not None and late.traits.is_child_run and late.error is not None:
            found |= {call: None, f"{call}-watch": None}
    if state.options.approval_expiry == "fail":
        found |= {call: None for call, decision in state.decided.items() if decision.expired}
    known = {*state.results, *state.decided}
    return [call for call in found if call in known]


def _drops_answer(state: RunState) -> bool:
    """Did the model's answer itself fail, rather than a consequence of it?"""
    done = state.done
    if state.answer is None or done is None or done.error is None or state.turn == 0:
        return False
    if any(it.traits.is_tool for it in state.results.values()):
        return False  # its calls were made, and must not be repeated
    fatal = next(fatal_results(state), None)
    if fatal is not None:
        return fatal.traits.checks_answer
    step = decide(state)
    error = step.done.error if isinstance(step, Finish) else None
    return error is not None and error.code in _ANSWERS


def _max_turns(state: RunState, wanted: RetryRequested) -> int | msgspec.UnsetType | None:
    limit = state.options.max_turns
    if wanted.max_turns is msgspec.UNSET or wanted.max_turns is None:
        return wanted.max_turns
    if limit is None or wanted.max_turns <= limit:
        has = "no limit" if limit is None else f"a limit of {limit}"
        raise CannotRetry(
            f"run {state.run} has {has} of turns, and {wanted.max_turns} is not more: a retry may "
            "only raise the limit"
        )
    return wanted.max_turns


def _budget(state: RunState, wanted: Budget | None) -> Budget | None:
    """The budget of the retry: with the given limits, and with its full time again."""
    before = state.options.budget
    if wanted is None:
        return before if before is None else _from_now(before)
    given = {
        name: getattr(wanted, name)
        for name in Budget.__struct_fields__
        if name != "deadline" and getattr(wanted, name) is not None
    }
    return _from_now(msgspec.structs.replace(before or Budget(), **given))


def _from_now(budget: Budget) -> Budget:
    if budget.seconds is None:
        return budget
    return msgspec.structs.replace(budget, deadline=time.time() + budget.seconds)


def _with_used(child: RunState, share: Budget | None) -> Budget | None:
    """A share of the remaining budget, for a run that has already used some of it."""
    if share is None:
        return None
    used = {
        "turns": child.tree_turns,
        "tokens": child.usage.total_tokens,
        "tool_calls": child.tool_calls_made,
    }
    limits = {name: getattr(share, name) for name in used}
    return msgspec.structs.replace(
        share, **{name: limit + used[name] for name, limit in limits.items() if limit is not None}
    )


def _check_helps(state: RunState, reopened: RunReopened) -> None:
    """Would the run, without doing anything, fail at once in the same way?"""
    done = state.done
    assert done is not None
    state.apply(state.last_seq + 1, reopened)
    step = decide(state)
    if not isinstance(step, Finish) or step.done.status == "completed":
        return
    error = step.done.error
    why = error.message if error is not None else step.done.status
    match step.done.status:
        case "max_turns":
            hint = "give a larger limit (sandstream retry --max-turns N, Client.retry(max_turns=N))"
        case "budget":
            hint = "give a larger budget (sandstream retry --max-tokens N, Client.retry(budget=…))"
        case _:
            hint = "start another run"
    raise CannotRetry(f"run {state.run} would fail again at once: {why}; {hint}")
