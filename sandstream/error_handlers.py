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
    new_items: list[Any]
    history: list[Any]
    output: list[Any]
    raw_responses: list[Any]
    last_agent: Any


@dataclass
class RunErrorHandlerInput:
    """The argument of an error handler."""

    error: Exception
    context: RunContextWrapper[Any]
    run_data: RunErrorData


@dataclass
class RunErrorHandlerResult:
    """A final output that replaces the failure."""

    final_output: Any
    include_in_history: bool = True


RunErrorHandler = Callable[[RunErrorHandlerInput], Any]
"""Returns a :class:`RunErrorHandlerResult`, an equal dict, a bare value, or None; sync or async."""


class RunErrorHandlers(TypedDict, total=False):
    """One handler per kind of failure."""

    max_turns: RunErrorHandler
    model_refusal: RunErrorHandler
    invalid_final_output: RunErrorHandler


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
