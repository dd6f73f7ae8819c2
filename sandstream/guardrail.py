"""Guardrails of agents: the user's checks of a run's input and output.

Contains the declarations and a single call of a check. Which checks run when, and what a tripwire
does to a run, is decided elsewhere.
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
    """The verdict of a check.

    Example:
        GuardrailFunctionOutput(output_info={"topic": "sports"}, tripwire_triggered=False)
    """

    output_info: Any
    """Any information for the application; the model never sees it."""

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
    """``True``: concurrently with the first turn; its tools may have run before a trip ends the
    run. ``False``: before the first model call, so that nothing has happened yet."""

    def get_name(self) -> str:
        """The guardrail's name, or that of its function."""
        return self.name or function_name(self.guardrail_function)

    async def run(
        self,
        agent: Agent[Any],
        input: str | list[TResponseInputItem],
        context: RunContextWrapper[TContext],
    ) -> InputGuardrailResult:
        """Call the check once.

        Args:
            agent: The agent that the run began with.
            input: The input of the run.
            context: The context of the run.

        Returns:
            The verdict, with this guardrail.

        Raises:
            UserError: ``guardrail_function`` is not callable.
        """
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
        """The guardrail's name, or that of its function."""
        return self.name or function_name(self.guardrail_function)

    async def run(
        self, context: RunContextWrapper[TContext], agent: Agent[Any], agent_output: Any
    ) -> OutputGuardrailResult:
        """Call the check once.

        Args:
            context: The context of the run.
            agent: The agent that produced the output.
            agent_output: The final output, as the agent's ``output_type``.

        Returns:
            The verdict, with this guardrail and the output that it checked.

        Raises:
            UserError: ``guardrail_function`` is not callable.
        """
        output = await called(self.guardrail_function, context, agent, agent_output)
        return OutputGuardrailResult(
            guardrail=self, agent_output=agent_output, agent=agent, output=output
        )


@dataclass
class InputGuardrailResult:
    """The result of one input guardrail."""

    guardrail: InputGuardrail[Any]
    """The guardrail that was called."""
    output: GuardrailFunctionOutput
    """Its verdict."""


@dataclass
class OutputGuardrailResult:
    """The result of one output guardrail, and the output that it checked."""

    guardrail: OutputGuardrail[Any]
    """The guardrail that was called."""
    agent_output: Any
    """The final output that it checked."""
    agent: Agent[Any]
    """The agent that produced the output."""
    output: GuardrailFunctionOutput
    """Its verdict."""


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
    """Turn a function into a check of the input of a run; a decorator, with or without parentheses.

    Args:
        func: The check, sync or async. It is called with the context, the agent and the input, and
            returns a :class:`GuardrailFunctionOutput`.
        name: The name of the guardrail in results and traces; ``None`` is the function's name.
        run_in_parallel: Check while the first turn runs. With ``False`` the first model call waits
            for the verdict.

    Returns:
        The guardrail; without ``func``, a decorator that makes it.

    Raises:
        UserError: The decorated object is not callable.

    Example:
        @input_guardrail
        async def no_homework(context, agent, input):
            asks = "homework" in str(input)
            return GuardrailFunctionOutput(output_info=None, tripwire_triggered=asks)


        tutor = Agent(name="Tutor", input_guardrails=[no_homework])
    """

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
    """Turn a function into a check of the final output; a decorator, with or without parentheses.

    Args:
        func: The check, sync or async. It is called with the context, the agent and the output, and
            returns a :class:`GuardrailFunctionOutput`.
        name: The name of the guardrail in results and traces; ``None`` is the function's name.

    Returns:
        The guardrail; without ``func``, a decorator that makes it.

    Raises:
        UserError: The decorated object is not callable.

    Example:
        @output_guardrail(name="no phone numbers")
        def no_phone_numbers(context, agent, output):
            found = "+41" in str(output)
            return GuardrailFunctionOutput(output_info=None, tripwire_triggered=found)
    """

    def decorate(function: _OutputFunction[TContext]) -> OutputGuardrail[TContext]:
        check_decorated(function, "output_guardrail")
        return OutputGuardrail(function, name or function_name(function))

    return decorate if func is None else decorate(func)


# --- shared by all kinds of guardrails ------------------------------------------------------------

AnyGuardrail = TypeVar("AnyGuardrail", bound=Any)


def function_name(function: Callable[..., Any]) -> str:
    """The function's name; for a callable object, the name of its class."""
    return str(getattr(function, "__name__", type(function).__name__))


def check_decorated(function: object, decorator: str) -> None:
    if not callable(function):
        raise UserError(
            f"@{decorator} must decorate a function, not {function!r}. "
            f"Give a name as @{decorator}(name=...)."
        )


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a check's function, sync or async."""
    if not callable(function):
        raise UserError(f"Guardrail function must be callable, got {function}")
    verdict = function(*arguments)
    return await verdict if inspect.isawaitable(verdict) else verdict


def function_elsewhere(*arguments: Any) -> NoReturn:
    """Stands in for a guardrail's function that is in another process."""
    raise UserError(
        "This guardrail only has a name here: its function is in the process that ran it."
    )


def without_function(guardrail: AnyGuardrail) -> AnyGuardrail:
    """A copy of a guardrail that can be pickled: its settings and name, without its function."""
    copied: AnyGuardrail = dataclasses.replace(
        guardrail, guardrail_function=function_elsewhere, name=guardrail.get_name()
    )
    return copied
