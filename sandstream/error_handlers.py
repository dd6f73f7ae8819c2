"""Handlers that turn a failure of a run into a final output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from sandstream.exceptions import UserError
from sandstream.run_context import RunContextWrapper

HANDLED_ERRORS = ("max_turns", "model_refusal", "invalid_final_output")


@dataclass
class RunErrorData:
    """The run up to its failure."""

    input: Any
    """The input of the run, as the caller gave it."""
    new_items: list[Any]
    """The items that the run has produced."""
    history: list[Any]
    """The input and the produced items together, as input items."""
    output: list[Any]
    """The produced items as input items."""
    raw_responses: list[Any]
    """The answers of the model, one for each call."""
    last_agent: Any
    """The agent that was running."""


@dataclass
class RunErrorHandlerInput:
    """The argument of an error handler."""

    error: Exception
    """The failure that the run would end with."""
    context: RunContextWrapper[Any]
    """The context of the run."""
    run_data: RunErrorData
    """What the run has done so far."""


@dataclass
class RunErrorHandlerResult:
    """A final output that replaces the failure."""

    final_output: Any
    """The output with which the run ends, of the agent's ``output_type``."""
    include_in_history: bool = True
    """Whether the output is also added to the items, so that a session remembers it."""


RunErrorHandler = Callable[[RunErrorHandlerInput], Any]
"""Returns a :class:`RunErrorHandlerResult`, an equal dict, a bare value, or None; sync or async."""


class RunErrorHandlers(TypedDict, total=False):
    """One handler per kind of failure.

    Example:
        def give_up(failure: RunErrorHandlerInput) -> RunErrorHandlerResult:
            return RunErrorHandlerResult(final_output="I could not finish this.")


        handlers: RunErrorHandlers = {"max_turns": give_up}
        result = await Runner.run(agent, "Count to a million.", error_handlers=handlers)
    """

    max_turns: RunErrorHandler
    """For a run that has used all of its turns."""
    model_refusal: RunErrorHandler
    """For a final answer that is a refusal."""
    invalid_final_output: RunErrorHandler
    """For a final answer that does not fit the agent's ``output_type``."""


def check_error_handlers(handlers: RunErrorHandlers | None) -> RunErrorHandlers:
    for name, handler in (handlers or {}).items():
        if name not in HANDLED_ERRORS:
            raise UserError(
                f"error_handlers has no kind {name!r}; it knows {', '.join(HANDLED_ERRORS)}"
            )
        if handler is not None and not callable(handler):
            raise UserError(f"the error handler for {name} must be callable")
    return handlers or {}


def as_result(value: Any) -> RunErrorHandlerResult | None:
    """A handler's return value as a :class:`RunErrorHandlerResult`, or None."""
    if value is None or isinstance(value, RunErrorHandlerResult):
        return value
    if isinstance(value, dict) and "final_output" in value:
        unknown = set(value) - {"final_output", "include_in_history"}
        if unknown:
            raise UserError(f"an error handler's result has unknown keys: {sorted(unknown)}")
        return RunErrorHandlerResult(**value)
    return RunErrorHandlerResult(final_output=value)
