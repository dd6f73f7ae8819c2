"""Guardrails of function tools: the user's checks before and after single calls.

Unlike an agent's guardrail, a tool's guardrail need not end the run: it can also answer the model
in place of the tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, overload

from typing_extensions import TypeVar

from sandstream.guardrail import called, check_decorated, function_name
from sandstream.tool_context import ToolContext

if TYPE_CHECKING:
    from sandstream.agent import Agent

__all__ = [
    "AllowBehavior",
    "RaiseExceptionBehavior",
    "RejectContentBehavior",
    "ToolGuardrailFunctionOutput",
    "ToolInputGuardrail",
    "ToolInputGuardrailData",
    "ToolInputGuardrailResult",
    "ToolOutputGuardrail",
    "ToolOutputGuardrailData",
    "ToolOutputGuardrailResult",
    "tool_input_guardrail",
    "tool_output_guardrail",
]


class RejectContentBehavior(TypedDict):
    """The model gets ``message`` instead of the tool's output; the run continues."""

    type: Literal["reject_content"]
    """Always ``"reject_content"``."""
    message: str
    """The text for the model."""


class RaiseExceptionBehavior(TypedDict):
    """The run ends with a tripwire exception."""

    type: Literal["raise_exception"]
    """Always ``"raise_exception"``."""


class AllowBehavior(TypedDict):
    """Nothing is changed."""

    type: Literal["allow"]
    """Always ``"allow"``."""


@dataclass
class ToolGuardrailFunctionOutput:
    """The verdict on a tool call."""

    output_info: Any
    """Any information for the application; the model never sees it."""

    behavior: RejectContentBehavior | RaiseExceptionBehavior | AllowBehavior = field(
        default_factory=lambda: AllowBehavior(type="allow")
    )
    """What happens to the call. Use :meth:`allow`, :meth:`reject_content` or
    :meth:`raise_exception` to make it."""

    @classmethod
    def allow(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """Allow the call, or its output.

        Args:
            output_info: Any information for the application.

        Returns:
            The verdict.
        """
        return cls(output_info, AllowBehavior(type="allow"))

    @classmethod
    def reject_content(cls, message: str, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """Send a text to the model in place of the tool's output; the run continues.

        Args:
            message: The text for the model.
            output_info: Any information for the application.

        Returns:
            The verdict.
        """
        return cls(output_info, RejectContentBehavior(type="reject_content", message=message))

    @classmethod
    def raise_exception(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """End the run with a tripwire exception.

        Args:
            output_info: Any information for the application.

        Returns:
            The verdict.
        """
        return cls(output_info, RaiseExceptionBehavior(type="raise_exception"))


@dataclass
class ToolInputGuardrailData:
    """The argument of a check before a call."""

    context: ToolContext[Any]
    """The call's ``tool_name``, ``tool_arguments``, ``tool_call_id`` and the user's context."""
    agent: Agent[Any]
    """The agent that calls the tool."""


@dataclass
class ToolOutputGuardrailData(ToolInputGuardrailData):
    """The argument of a check after a call."""

    output: Any
    """The tool's return value."""


_Verdict: TypeAlias = ToolGuardrailFunctionOutput | Awaitable[ToolGuardrailFunctionOutput]
_InputFunction: TypeAlias = Callable[[ToolInputGuardrailData], _Verdict]
_OutputFunction: TypeAlias = Callable[[ToolOutputGuardrailData], _Verdict]
TContext_co = TypeVar("TContext_co", bound=Any, covariant=True)


@dataclass
class ToolInputGuardrail(Generic[TContext_co]):
    """A check before a function tool is called; usually made by ``@tool_input_guardrail``."""

    guardrail_function: _InputFunction
    """May be async."""

    name: str | None = None
    """``None``: the function's own name."""

    def get_name(self) -> str:
        """The guardrail's name, or that of its function."""
        return self.name or function_name(self.guardrail_function)

    async def run(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Call the check once.

        Args:
            data: The call to check.

        Returns:
            The verdict.
        """
        verdict: ToolGuardrailFunctionOutput = await called(self.guardrail_function, data)
        return verdict


@dataclass
class ToolOutputGuardrail(Generic[TContext_co]):
    """A check after a function tool was called; usually made by ``@tool_output_guardrail``."""

    guardrail_function: _OutputFunction
    """May be async."""

    name: str | None = None
    """``None``: the function's own name."""

    def get_name(self) -> str:
        """The guardrail's name, or that of its function."""
        return self.name or function_name(self.guardrail_function)

    async def run(self, data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Call the check once.

        Args:
            data: The call to check.

        Returns:
            The verdict.
        """
        verdict: ToolGuardrailFunctionOutput = await called(self.guardrail_function, data)
        return verdict


@dataclass
class ToolInputGuardrailResult:
    """The result of one check before a call."""

    guardrail: ToolInputGuardrail[Any]
    """The guardrail that was called."""
    output: ToolGuardrailFunctionOutput
    """Its verdict."""


@dataclass
class ToolOutputGuardrailResult:
    """The result of one check after a call."""

    guardrail: ToolOutputGuardrail[Any]
    """The guardrail that was called."""
    output: ToolGuardrailFunctionOutput
    """Its verdict."""


@overload
def tool_input_guardrail(func: _InputFunction) -> ToolInputGuardrail[Any]: ...


@overload
def tool_input_guardrail(
    *, name: str | None = None
) -> Callable[[_InputFunction], ToolInputGuardrail[Any]]: ...


def tool_input_guardrail(
    func: _InputFunction | None = None, *, name: str | None = None
) -> ToolInputGuardrail[Any] | Callable[[_InputFunction], ToolInputGuardrail[Any]]:
    """Turn a function into a check before tool calls; a decorator, with or without parentheses.

    Args:
        func: The check, sync or async. It is called with :class:`ToolInputGuardrailData` and
            returns a :class:`ToolGuardrailFunctionOutput`.
        name: The name of the guardrail in results; ``None`` is the function's name.

    Returns:
        The guardrail; without ``func``, a decorator that makes it.

    Raises:
        UserError: The decorated object is not callable.

    Example:
        @tool_input_guardrail
        def no_secrets(data):
            if "sk-" in data.context.tool_arguments:
                return ToolGuardrailFunctionOutput.reject_content("Do not pass keys to tools.")
            return ToolGuardrailFunctionOutput.allow()


        @function_tool(tool_input_guardrails=[no_secrets])
        def search(query: str) -> str: ...
    """

    def decorate(function: _InputFunction) -> ToolInputGuardrail[Any]:
        check_decorated(function, "tool_input_guardrail")
        return ToolInputGuardrail(function, name or function_name(function))

    return decorate if func is None else decorate(func)


@overload
def tool_output_guardrail(func: _OutputFunction) -> ToolOutputGuardrail[Any]: ...


@overload
def tool_output_guardrail(
    *, name: str | None = None
) -> Callable[[_OutputFunction], ToolOutputGuardrail[Any]]: ...


def tool_output_guardrail(
    func: _OutputFunction | None = None, *, name: str | None = None
) -> ToolOutputGuardrail[Any] | Callable[[_OutputFunction], ToolOutputGuardrail[Any]]:
    """Turn a function into a check after tool calls; a decorator, with or without parentheses.

    Args:
        func: The check, sync or async. It is called with :class:`ToolOutputGuardrailData` and
            returns a :class:`ToolGuardrailFunctionOutput`.
        name: The name of the guardrail in results; ``None`` is the function's name.

    Returns:
        The guardrail; without ``func``, a decorator that makes it.

    Raises:
        UserError: The decorated object is not callable.

    Example:
        @tool_output_guardrail
        def no_salaries(data):
            if "salary" in str(data.output):
                return ToolGuardrailFunctionOutput.raise_exception()
            return ToolGuardrailFunctionOutput.allow()
    """

    def decorate(function: _OutputFunction) -> ToolOutputGuardrail[Any]:
        check_decorated(function, "tool_output_guardrail")
        return ToolOutputGuardrail(function, name or function_name(function))

    return decorate if func is None else decorate(func)
