"""Guardrails of agents: the user's checks of what goes into a run and of what comes out of it.

Owns the declarations and one call of one check. Who runs which check when, and what a trip does to
a run, is not known here.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, overload

from typing_extensions import TypeVar

from sandstream.exceptions import UserError
from sandstream.run_context import RunContextWrapper, TContext

if TYPE_CHECKING:
    from sandstream.agent import Agent
    from sandstream.items import TResponseInputItem

__all__ = [
    "GuardrailFunctionOutput",
    "InputGuardrail",
    "InputGuardrailResult",
    "OutputGuardrail",
    "OutputGuardrailResult",
    "input_guardrail",
    "output_guardrail",
]


@dataclass
class GuardrailFunctionOutput:
    """The verdict of a check."""

    output_info: Any
    """Whatever the check wants to tell the application; the model never sees it."""

    tripwire_triggered: bool
    """Whether the run must end now."""


_InputFunction: TypeAlias = Callable[
    [RunContextWrapper[TContext], "Agent[Any]", "str | list[TResponseInputItem]"],
    "GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]",
]
_OutputFunction: TypeAlias = Callable[
    [RunContextWrapper[TContext], "Agent[Any]", Any],
    "GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]",
]


@dataclass
class InputGuardrail(Generic[TContext]):
    """A check of the input of a run; usually made by ``@input_guardrail``."""

    guardrail_function: _InputFunction[TContext]
    """Called with ``(context, agent, input)``; may be async."""

    name: str | None = None
    """``None``: the function's own name."""

    run_in_parallel: bool = True
    """``True``: together with the first turn, whose tools may then have run before a trip ends the
    run. ``False``: before the first model call, so that nothing has happened yet."""

    def get_name(self) -> str:
        return self.name or function_name(self.guardrail_function)

    async def run(
        self,
        agent: Agent[Any],
        input: str | list[TResponseInputItem],
        context: RunContextWrapper[TContext],
    ) -> InputGuardrailResult:
        """Ask the check once."""
        output = await called(self.guardrail_function, context, agent, input)
        return InputGuardrailResult(guardrail=self, output=output)


@dataclass
class OutputGuardrail(Generic[TContext]):
    """A check of the final output of a run; usually made by ``@output_guardrail``."""

    guardrail_function: _OutputFunction[TContext]
    """Called with ``(context, agent, output)``; may be async."""

    name: str | None = None
    """``None``: the function's own name."""

    def get_name(self) -> str:
        return self.name or function_name(self.guardrail_function)

    async def run(
        self, context: RunContextWrapper[TContext], agent: Agent[Any], agent_output: Any
    ) -> OutputGuardrailResult:
        """Ask the check once."""
        output = await called(self.guardrail_function, context, agent, agent_output)
        return OutputGuardrailResult(
            guardrail=self, agent_output=agent_output, agent=agent, output=output
        )


@dataclass
class InputGuardrailResult:
    """What one input guardrail said."""

    guardrail: InputGuardrail[Any]
    output: GuardrailFunctionOutput


@dataclass
class OutputGuardrailResult:
    """What one output guardrail said, and about what."""

    guardrail: OutputGuardrail[Any]
    agent_output: Any
    agent: Agent[Any]
    output: GuardrailFunctionOutput


@overload
def input_guardrail(func: _InputFunction[TContext]) -> InputGuardrail[TContext]: ...


@overload
def input_guardrail(
    *, name: str | None = None, run_in_parallel: bool = True
) -> Callable[[_InputFunction[TContext]], InputGuardrail[TContext]]: ...


def input_guardrail(
    func: _InputFunction[TContext] | None = None,
    *,
    name: str | None = None,
    run_in_parallel: bool = True,
) -> InputGuardrail[TContext] | Callable[[_InputFunction[TContext]], InputGuardrail[TContext]]:
    """Make an input guardrail of a function, sync or async; with or without parentheses."""

    def decorate(function: _InputFunction[TContext]) -> InputGuardrail[TContext]:
        check_decorated(function, "input_guardrail")
        return InputGuardrail(function, name or function_name(function), run_in_parallel)

    return decorate if func is None else decorate(func)


@overload
def output_guardrail(func: _OutputFunction[TContext]) -> OutputGuardrail[TContext]: ...


@overload
def output_guardrail(
    *, name: str | None = None
) -> Callable[[_OutputFunction[TContext]], OutputGuardrail[TContext]]: ...


def output_guardrail(
    func: _OutputFunction[TContext] | None = None, *, name: str | None = None
) -> OutputGuardrail[TContext] | Callable[[_OutputFunction[TContext]], OutputGuardrail[TContext]]:
    """Make an output guardrail of a function, sync or async; with or without parentheses."""

    def decorate(function: _OutputFunction[TContext]) -> OutputGuardrail[TContext]:
        check_decorated(function, "output_guardrail")
        return OutputGuardrail(function, name or function_name(function))

    return decorate if func is None else decorate(func)


# --- shared by all kinds of guardrails ------------------------------------------------------------

AnyGuardrail = TypeVar("AnyGuardrail", bound=Any)


def function_name(function: Callable[..., Any]) -> str:
    """A callable object has no name of its own; that of its class says most."""
    return str(getattr(function, "__name__", type(function).__name__))


def check_decorated(function: object, decorator: str) -> None:
    if not callable(function):
        raise UserError(
            f"@{decorator} must decorate a function, not {function!r}. "
            f"Give a name as @{decorator}(name=...)."
        )


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a check's function says, be it sync or async."""
    if not callable(function):
        raise UserError(f"Guardrail function must be callable, got {function}")
    verdict = function(*arguments)
    return await verdict if inspect.isawaitable(verdict) else verdict


def function_elsewhere(*arguments: Any) -> NoReturn:
    """The function of a guardrail whose own is in another process."""
    raise UserError(
        "This guardrail only has a name here: its function is in the process that ran it."
    )


def without_function(guardrail: AnyGuardrail) -> AnyGuardrail:
    """A copy of any kind of guardrail that can leave the process: its settings and its name."""
    copied: AnyGuardrail = dataclasses.replace(
        guardrail, guardrail_function=function_elsewhere, name=guardrail.get_name()
    )
    return copied
