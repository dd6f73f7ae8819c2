"""What a run tree may still use. Checked before each effect; a child run gets a share. Pure."""

from __future__ import annotations

import msgspec
from sandstream_bus.messages import ErrorInfo
from sandstream_bus.specs import Budget

from sandstream_actors.run_state import RunState


def exceeded_by_turn(state: RunState) -> ErrorInfo | None:
    """May the model be asked once more?"""
    budget = state.options.budget
    if budget is None:
        return None
    if budget.turns is not None and state.tree_turns >= budget.turns:
        return _over("turns", f"{budget.turns} model turns")
    if budget.tokens is not None and state.usage.total_tokens >= budget.tokens:
        used = state.usage.total_tokens
        return _over("tokens", f"{budget.tokens} tokens ({used} are used)")
    return None


def exceeded_by_calls(state: RunState, new: int) -> ErrorInfo | None:
    """May so many more tools be called?"""
    budget = state.options.budget
    if budget is None or budget.tool_calls is None or new == 0:
        return None
    running = sum(it.kind in ("tool", "child") for it in state.asked.values())
    finished = sum(it.kind in ("tool", "child") for it in state.results.values())
    if state.tool_calls_made + running - finished + new > budget.tool_calls:
        return _over("tool_calls", f"{budget.tool_calls} tool calls")
    return None


def share_of(state: RunState, children: int) -> Budget | None:
    """What each of so many children that start now may use: an equal part of what is left."""
    budget = state.options.budget
    if budget is None:
        return None
    waiting = max(1, children)
    return msgspec.structs.replace(
        budget,
        turns=_part(budget.turns, state.tree_turns, waiting),
        tokens=_part(budget.tokens, state.usage.total_tokens, waiting),
        tool_calls=_part(budget.tool_calls, state.tool_calls_made, waiting),
    )


def _part(limit: int | None, used: int, children: int) -> int | None:
    return None if limit is None else max(0, limit - used) // children


def _over(name: str, limit: str) -> ErrorInfo:
    return ErrorInfo(
        code="budget",
        message=f"the budget of this run and its child runs is used up: {limit}",
        data={"budget": name},
    )
