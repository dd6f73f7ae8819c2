"""The remaining budget of a run tree. Checked before each effect; children get shares. Pure."""

from __future__ import annotations

import msgspec
from sandstream_bus.counts import numbered
from sandstream_bus.wire.messages import ErrorInfo
from sandstream_bus.wire.specs import Budget

from sandstream_actors.run.state import RunState


def exceeded_by_turn(state: RunState) -> ErrorInfo | None:
    """May the model be called once more?"""
    budget = state.options.budget
    if budget is None:
        return None
    if budget.turns is not None and state.tree_turns >= budget.turns:
        return _over("turns", numbered(budget.turns, "model turn"))
    if budget.tokens is not None and state.usage.total_tokens >= budget.tokens:
        used = state.usage.total_tokens
        return _over("tokens", f"{numbered(budget.tokens, 'token')} ({used} used)")
    return None


def exceeded_by_calls(state: RunState, new: int) -> ErrorInfo | None:
    """May this many more tools be called?"""
    budget = state.options.budget
    if budget is None or budget.tool_calls is None or new == 0:
        return None
    running = sum(it.traits.is_tool for it in state.asked.values())
    finished = sum(it.traits.is_tool for it in state.results.values())
    if state.tool_calls_made + running - finished + new > budget.tool_calls:
        return _over("tool_calls", numbered(budget.tool_calls, "tool call"))
    return None


def share_of(state: RunState) -> Budget | None:
    """The budget of a child that starts now: an equal part of the rest, for it and for all other
    children of this answer that have not ended.

    No child gets more than that, so later ones get at least as much, and all together stay within
    the budget. All share the same deadline, which the run's own alarm enforces.
    """
    budget = state.options.budget
    if budget is None:
        return None
    open_calls = state.open_tool_calls()
    tools = [state.tool(call.name) for call in open_calls]
    children = sum(tool is not None and tool.child is not None for tool in tools)
    return msgspec.structs.replace(
        budget,
        turns=_part(budget.turns, state.tree_turns, children),
        tokens=_part(budget.tokens, state.usage.total_tokens, children),
        tool_calls=_part(budget.tool_calls, state.tool_calls_made + len(open_calls), children),
        seconds=None,
    )


def _part(limit: int | None, used: int, children: int) -> int | None:
    return None if limit is None else max(0, limit - used) // max(1, children)


def _over(name: str, limit: str) -> ErrorInfo:
    return ErrorInfo(
        code="budget",
        message=f"the budget of this run and its child runs is used up: {limit}",
        data={"budget": name},
    )
