"""Carries out a handoff in the process that hosts the user's Python. No bus, no log."""

from __future__ import annotations

import inspect
from typing import Any

from sandstream.agent import Agent
from sandstream.exceptions import UserError
from sandstream.handoffs.handoff import (
    Handoff,
    HandoffHistoryMapper,
    HandoffInputData,
    HandoffInputFilter,
)
from sandstream.handoffs.history import nest_handoff_history
from sandstream.items import RunItem, TResponseInputItem
from sandstream.run_context import RunContextWrapper

__all__ = ["invoke", "rewritten"]


async def invoke(
    handoff: Handoff[Any, Any], context: RunContextWrapper[Any], arguments: str
) -> Agent[Any]:
    """Run the handoff's function; return the agent that continues the run.

    Raises:
        UserError: if the function does not return an agent.
        ModelBehaviorError: if the model's arguments do not fit the handoff.
    """
    result = handoff.on_invoke_handoff(context, arguments)
    agent = await result if inspect.isawaitable(result) else result
    if not isinstance(agent, Agent):
        raise UserError(
            f"on_invoke_handoff of handoff '{handoff.tool_name}' must return an Agent, not "
            f"{agent!r}."
        )
    return agent


async def rewritten(
    handoff: Handoff[Any, Any],
    config_filter: HandoffInputFilter | None,
    config_nest: bool,
    config_mapper: HandoffHistoryMapper | None,
    *,
    input_history: str | tuple[TResponseInputItem, ...],
    pre_items: tuple[RunItem, ...],
    new_items: tuple[RunItem, ...],
    context: RunContextWrapper[Any] | None,
) -> HandoffInputData | None:
    """The conversation for the next agent; None if it does not change.

    A filter takes precedence over nesting, the handoff's own settings over those of the run.

    Raises:
        UserError: if the filter is not callable or returns another type.
    """
    data = HandoffInputData(input_history, pre_items, new_items, run_context=context)
    own = handoff.input_filter is not None
    input_filter = handoff.input_filter if own else config_filter
    if input_filter is not None:
        where = f"input_filter of handoff '{handoff.tool_name}'" if own else "handoff_input_filter"
        return await _filtered(input_filter, data, where)
    nest = handoff.nest_handoff_history
    if config_nest if nest is None else nest:
        return nest_handoff_history(data, history_mapper=config_mapper)
    return None


async def _filtered(
    input_filter: HandoffInputFilter, data: HandoffInputData, where: str
) -> HandoffInputData:
    if not callable(input_filter):
        raise UserError(f"{where} must be a function of (HandoffInputData), not {input_filter!r}.")
    result = input_filter(data)
    filtered = await result if inspect.isawaitable(result) else result
    if not isinstance(filtered, HandoffInputData):
        raise UserError(
            f"{where} must return HandoffInputData (see HandoffInputData.clone), not {filtered!r}."
        )
    return filtered
