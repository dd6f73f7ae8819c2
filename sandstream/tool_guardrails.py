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
    message: str


class RaiseExceptionBehavior(TypedDict):
    """The run ends with a tripwire exception."""

    type: Literal["raise_exception"]


class AllowBehavior(TypedDict):
    """Nothing is changed."""

    type: Literal["allow"]


@dataclass
class ToolGuardrailFunctionOutput:
    """The verdict on a tool call."""

    output_info: Any
    """Any information for the application; the model never sees it."""

    behavior: RejectContentBehavior | RaiseExceptionBehavior | AllowBehavior = field(
        default_factory=lambda: AllowBehavior(type="allow")
    )

    @classmethod
    def allow(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """Allow the call."""
        return cls(output_info, AllowBehavior(type="allow"))

    @classmethod
    def reject_content(cls, message: str, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """Send ``message`` to the model in place of the tool's output."""
        return cls(output_info, RejectContentBehavior(type="reject_content", message=message))

    @classmethod
    def raise_exception(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """End the run."""
        return cls(output_info, RaiseExceptionBehavior(type="raise_exception"))


@dataclass
class ToolInputGuardrailData:
    """The argument of a check before a call."""

    context: ToolContext[Any]
    """The call's ``tool_name``, ``tool_arguments``, ``tool_call_id`` and the user's context."""
    agent: Agent[Any]


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
        """Call the check once."""
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
        """Call the check once."""
        verdict: ToolGuardrailFunctionOutput = await called(self.guardrail_function, data)
        return verdict


@dataclass
class ToolInputGuardrailResult:
    """The result of one check before a call."""

    guardrail: ToolInputGuardrail[Any]
    output: ToolGuardrailFunctionOutput


@dataclass
class ToolOutputGuardrailResult:
    """The result of one check after a call."""

    guardrail: ToolOutputGuardrail[Any]
    output: ToolGuardrailFunctionOutput


@overload
def tool_input_guardrail(func: _InputFunction) -> ToolInputGuardrail[Any]: ...


@overload
def tool_input_guardrail(
    *, name: str | None = None
) -> Callable[[_InputFunction], ToolInputGuardrail[Any]]: ...


def tool_input_guardrail(
    func: _InputFunction | None = None, *, name: str | None = None
) -> ToolInputGuardrail[Any] | Callable[[_InputFunction], ToolInputGuardrail[Any]]:
    """Turn a function, sync or async, into a check before calls; with or without parentheses."""

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
    """Turn a function, sync or async, into a check after calls; with or without parentheses."""

    def decorate(function: _OutputFunction) -> ToolOutputGuardrail[Any]:
        check_decorated(function, "tool_output_guardrail")
        return ToolOutputGuardrail(function, name or function_name(function))

    return decorate if func is None else decorate(func)
