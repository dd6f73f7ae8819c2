"""Function tools: the user's Python, offered to a model.

Owns the declaration (``FunctionTool``, ``function_tool``) and one invocation with its timeout and
failure rules (``invoke_function_tool``). It does not know who calls: not the loop, not the bus, not
the order of hooks and guardrails around a call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import msgspec

from sandstream.custom_tool import CustomTool
from sandstream.docstrings import DocstringStyle
from sandstream.exceptions import AgentsException, ModelBehaviorError, ToolTimeoutError, UserError
from sandstream.function_schema import FuncSchema, function_schema
from sandstream.items import ToolOrigin
from sandstream.run_context import RunContextWrapper
from sandstream.strict_schema import ensure_strict_json_schema
from sandstream.tool_context import ToolContext
from sandstream.tool_output import (
    ToolOutputFileContent,
    ToolOutputFileContentDict,
    ToolOutputImage,
    ToolOutputImageDict,
    ToolOutputText,
    ToolOutputTextDict,
    tool_output_to_wire,
)
from sandstream.tracing.failures import show_failure

__all__ = [
    "FunctionTool",
    "FunctionToolCustomDataContext",
    "FunctionToolCustomDataExtractor",
    "FunctionToolResult",
    "Tool",
    "ToolErrorFunction",
    "ToolOutputFileContent",
    "ToolOutputFileContentDict",
    "ToolOutputImage",
    "ToolOutputImageDict",
    "ToolOutputText",
    "ToolOutputTextDict",
    "ToolsToFinalOutputResult",
    "default_tool_error_function",
    "function_tool",
    "invoke_function_tool",
    "tool",
    "tool_output_to_wire",
]

logger = logging.getLogger(__name__)

Delivery: TypeAlias = Literal["at_least_once", "at_most_once"]
IsEnabled: TypeAlias = bool | Callable[[RunContextWrapper[Any], Any], bool | Awaitable[bool]]
NeedsApproval: TypeAlias = (
    bool | Callable[[RunContextWrapper[Any], dict[str, Any], str], bool | Awaitable[bool]]
)
TimeoutBehavior: TypeAlias = Literal["error_as_result", "raise_exception"]
ToolErrorFunction: TypeAlias = Callable[[RunContextWrapper[Any], Exception], "str | Awaitable[str]"]
ToolErrorFormatter: TypeAlias = Callable[
    [RunContextWrapper[Any], Exception, str], "str | Awaitable[str | None] | None"
]
"""``(context, error, default_message)`` -> the text for the model, or ``None`` for the default."""


# Declaration


@dataclass
class FunctionTool:
    """A tool that is a Python function. Usually made by ``@function_tool``."""

    name: str
    description: str
    params_json_schema: dict[str, Any]
    on_invoke_tool: Callable[[ToolContext[Any], str], Awaitable[Any]]
    """Called with the context of the call and the model's arguments as JSON text."""
    strict_json_schema: bool = True
    is_enabled: IsEnabled = True
    """Whether the model sees the tool: a bool, or decided each turn by ``(context, agent)``."""

    timeout_seconds: float | None = field(default=None, kw_only=True)
    timeout_behavior: TimeoutBehavior = field(default="error_as_result", kw_only=True)
    timeout_error_function: ToolErrorFunction | None = field(default=None, kw_only=True)
    custom_data_extractor: FunctionToolCustomDataExtractor | None = field(
        default=None, kw_only=True
    )
    """Makes data for the application out of a result; it is never sent to the model."""
    needs_approval: NeedsApproval = field(default=False, kw_only=True)
    """Whether a person must agree to a call: a bool, or ``(context, arguments, call id)``."""
    tool_input_guardrails: list[Any] | None = field(default=None, kw_only=True)
    tool_output_guardrails: list[Any] | None = field(default=None, kw_only=True)
    tool_origin: ToolOrigin | None = field(default=None, kw_only=True, repr=False)
    """Where the tool comes from, if it is not a plain function."""
    title: str | None = field(default=None, kw_only=True, repr=False)
    """What people may be shown in place of the name."""
    delivery: Delivery = field(default="at_least_once", kw_only=True)
    """What happens when the worker dies during a call. ``at_least_once``: it is called again with
    the same ``tool_call_id``. ``at_most_once``: it is not, and the model is told that the outcome
    is unknown."""

    _on_failure: ToolErrorFunction | None = field(default=None, kw_only=True, repr=False)
    """``None``: an exception ends the run."""
    _on_failure_is_default: bool = field(default=False, kw_only=True, repr=False)
    """The user chose no failure handler, so a run may format the error in its own way."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UserError(f"The name of a tool must be a text of its own, not {self.name!r}.")
        if not callable(self.on_invoke_tool):
            raise UserError(
                f"on_invoke_tool of tool '{self.name}' must be an async function of "
                f"(ToolContext, str), not {self.on_invoke_tool!r}."
            )
        _check_timeout(self)
        if self.delivery not in ("at_least_once", "at_most_once"):
            raise ValueError(
                f"delivery of tool '{self.name}' must be 'at_least_once' or 'at_most_once', "
                f"not {self.delivery!r}."
            )
        if self.strict_json_schema:
            self.params_json_schema = ensure_strict_json_schema(self.params_json_schema)


Tool: TypeAlias = FunctionTool | CustomTool


def _check_timeout(tool: FunctionTool) -> None:
    seconds = tool.timeout_seconds
    where = f"timeout of tool '{tool.name}'"
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(f"The {where} must be a number of seconds or None, not {seconds!r}.")
        if not (math.isfinite(seconds) and seconds > 0):
            raise ValueError(f"The {where} must be finite and greater than 0, not {seconds!r}.")
    if tool.timeout_behavior not in ("error_as_result", "raise_exception"):
        raise ValueError(
            f"timeout_behavior of tool '{tool.name}' must be 'error_as_result' or "
            f"'raise_exception', not {tool.timeout_behavior!r}."
        )
    if tool.timeout_error_function is not None and not callable(tool.timeout_error_function):
        raise TypeError(f"timeout_error_function of tool '{tool.name}' must be callable or None.")


@dataclass
class FunctionToolCustomDataContext:
    """The argument of a ``custom_data_extractor``."""

    tool_context: ToolContext[Any]
    tool: FunctionTool
    output: Any
    raw_item: Mapping[str, Any]


FunctionToolCustomDataExtractor: TypeAlias = Callable[
    [FunctionToolCustomDataContext],
    "Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None",
]


@dataclass
class FunctionToolResult:
    """What one function call gave; passed to a ``tool_use_behavior`` function."""

    tool: FunctionTool
    output: Any
    run_item: Any | None


@dataclass
class ToolsToFinalOutputResult:
    """A ``tool_use_behavior`` function's verdict on whether the run ends here."""

    is_final_output: bool
    final_output: Any | None = None


def default_tool_error_function(ctx: RunContextWrapper[Any], error: Exception) -> str:
    """The text for a failed call. It leaves out the error, which may hold anything."""
    return "An error occurred while running the tool. Please try again."


class _Unset:
    """The type of "no failure handler chosen", which differs from choosing ``None``."""


_UNSET = _Unset()


class FunctionToolOptions(TypedDict, total=False):
    """The keyword arguments of ``function_tool``, for type checkers."""

    name_override: str | None
    description_override: str | None
    docstring_style: DocstringStyle | None
    use_docstring_info: bool
    failure_error_function: ToolErrorFunction | None
    strict_mode: bool
    is_enabled: IsEnabled
    timeout: float | None
    timeout_behavior: TimeoutBehavior
    timeout_error_function: ToolErrorFunction | None
    custom_data_extractor: FunctionToolCustomDataExtractor | None
    needs_approval: NeedsApproval
    tool_input_guardrails: list[Any] | None
    tool_output_guardrails: list[Any] | None
    delivery: Delivery


@overload
def function_tool(
    func: Callable[..., Any], **options: Unpack[FunctionToolOptions]
) -> FunctionTool: ...


@overload
def function_tool(
    func: None = None, **options: Unpack[FunctionToolOptions]
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def function_tool(
    func: Callable[..., Any] | None = None,
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    docstring_style: DocstringStyle | None = None,
    use_docstring_info: bool = True,
    failure_error_function: ToolErrorFunction | _Unset | None = _UNSET,
    strict_mode: bool = True,
    is_enabled: IsEnabled = True,
    timeout: float | None = None,
    timeout_behavior: TimeoutBehavior = "error_as_result",
    timeout_error_function: ToolErrorFunction | None = None,
    custom_data_extractor: FunctionToolCustomDataExtractor | None = None,
    needs_approval: NeedsApproval = False,
    tool_input_guardrails: list[Any] | None = None,
    tool_output_guardrails: list[Any] | None = None,
    delivery: Delivery = "at_least_once",
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function; with or without parentheses.

    A sync function runs in a worker thread. An exception becomes a text for the model by
    ``failure_error_function``; with ``None`` it ends the run. ``timeout`` needs an async
    function, because a thread cannot be stopped.
    """
    handler: ToolErrorFunction | None = default_tool_error_function
    if not isinstance(failure_error_function, _Unset):
        handler = failure_error_function

    def decorate(function: Callable[..., Any]) -> FunctionTool:
        schema = function_schema(
            function,
            docstring_style=docstring_style,
            name_override=name_override,
            description_override=description_override,
            use_docstring_info=use_docstring_info,
            strict_json_schema=strict_mode,
        )
        if timeout is not None and not inspect.iscoroutinefunction(function):
            raise ValueError(
                f"Tool '{schema.name}' has a timeout but is not async: a running thread cannot be "
                "stopped. Make it `async def`, or remove the timeout."
            )
        return FunctionTool(
            name=schema.name,
            description=schema.description or "",
            params_json_schema=schema.params_json_schema,
            on_invoke_tool=_Invoker(function, schema, handler),
            strict_json_schema=strict_mode,
            is_enabled=is_enabled,
            timeout_seconds=timeout,
            timeout_behavior=timeout_behavior,
            timeout_error_function=timeout_error_function,
            custom_data_extractor=custom_data_extractor,
            needs_approval=needs_approval,
            tool_input_guardrails=tool_input_guardrails,
            tool_output_guardrails=tool_output_guardrails,
            delivery=delivery,
            _on_failure=handler,
            _on_failure_is_default=failure_error_function is _UNSET,
        )

    return decorate if func is None else decorate(func)


tool = function_tool


# Invocation


class _Invoker:
    """``on_invoke_tool`` of a decorated function."""

    def __init__(
        self, function: Callable[..., Any], schema: FuncSchema, handler: ToolErrorFunction | None
    ) -> None:
        self._function = function
        self._schema = schema
        self._handler = handler

    async def __call__(self, ctx: ToolContext[Any], arguments: str) -> Any:
        """Call the function; a failure is turned into text by the tool's handler, if it has one."""
        try:
            return await self.call(ctx, arguments)
        except Exception as error:
            if self._handler is None:
                raise
            return await _resolved(self._handler(ctx, error))

    async def call(self, ctx: ToolContext[Any], arguments: str) -> Any:
        """Call the function; failures are raised."""
        data = self._parse(arguments)
        args, kwargs = self._schema.to_call_args(data)
        if self._schema.takes_context:
            args.insert(0, ctx)
        if inspect.iscoroutinefunction(self._function):
            return await self._function(*args, **kwargs)
        return await asyncio.to_thread(_in_thread, self._function, args, kwargs)

    def _parse(self, arguments: str) -> Any:
        what = f"Invalid JSON input for tool {self._schema.name}"
        try:
            decoded = msgspec.json.decode(arguments) if arguments else {}
        except (msgspec.DecodeError, RecursionError) as error:
            raise _bad_arguments(what, error) from None
        if not isinstance(decoded, dict):
            raise ModelBehaviorError(f"{what}: expected a JSON object")
        try:
            return self._schema.params_pydantic_model.model_validate_json(arguments or "{}")
        except ValueError as error:
            raise _bad_arguments(what, error) from None


def schema_of(tool: FunctionTool) -> FuncSchema | None:
    """What a decorated function takes; None for a tool with code of another kind."""
    invoke = tool.on_invoke_tool
    return invoke._schema if isinstance(invoke, _Invoker) else None


def _bad_arguments(what: str, error: Exception) -> ModelBehaviorError:
    return ModelBehaviorError(f"{what}: {error}" if _shows_tool_data() else what)


def _in_thread(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        # A future cannot carry StopIteration: the caller would wait for ever.
        raise RuntimeError("the tool raised StopIteration") from error


class _ToolCancelled(Exception):
    """A tool raised ``CancelledError`` although nobody cancelled the call."""


async def invoke_function_tool(
    tool: FunctionTool,
    ctx: ToolContext[Any],
    arguments: str,
    *,
    error_formatter: ToolErrorFormatter | None = None,
) -> Any:
    """Make one call with the tool's timeout and failure rules; return what the model gets.

    ``error_formatter`` is the run's, and is asked only where the tool has no handler of its own
    choice. Cancellation of the caller goes through.

    Raises:
        ToolTimeoutError: if the tool wants its timeout raised.
        AgentsException: what the tool raised, if it has no failure handler; other exceptions are
            wrapped in ``UserError``.
    """
    invoke = tool.on_invoke_tool
    call = invoke.call if isinstance(invoke, _Invoker) else invoke
    limit = asyncio.timeout(tool.timeout_seconds)
    failure: Exception
    try:
        async with limit:
            return await call(ctx, arguments)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        failure = _ToolCancelled(str(error) or "the tool cancelled itself")
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is the result
        if limit.expired():
            return await _timed_out(tool, ctx, error)
        failure = error
    return await _failed(tool, ctx, failure, error_formatter)


async def _timed_out(tool: FunctionTool, ctx: ToolContext[Any], cause: Exception) -> Any:
    error = ToolTimeoutError(tool.name, tool.timeout_seconds or 0)
    if tool.timeout_behavior == "raise_exception":
        raise error from cause
    ctx._failure = error
    if tool.timeout_error_function is None:
        return str(error)
    return await _resolved(tool.timeout_error_function(ctx, error))


async def _failed(
    tool: FunctionTool,
    ctx: ToolContext[Any],
    error: Exception,
    error_formatter: ToolErrorFormatter | None,
) -> Any:
    handler = tool._on_failure
    if handler is None:
        if isinstance(error, AgentsException):
            raise error
        raise UserError(f"Error running tool {tool.name}: {error}") from error
    logger.warning(
        "A tool failed; the model is told so",
        extra={"tool": tool.name, "call_id": ctx.tool_call_id, "error": type(error).__name__},
        exc_info=error if _shows_tool_data() else None,
    )
    show_failure(tool.name, error)
    ctx._failure = error
    message = await _resolved(handler(ctx, error))
    may_format = tool._on_failure_is_default and not isinstance(error, _ToolCancelled)
    if error_formatter is None or not may_format:
        return message
    try:
        formatted = await _resolved(error_formatter(ctx, error, message))
    except Exception:
        logger.exception("tool_error_formatter failed; the default text is used")
        return message
    return formatted if isinstance(formatted, str) else message


async def _resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _shows_tool_data() -> bool:
    return os.environ.get("OPENAI_AGENTS_DONT_LOG_TOOL_DATA", "1").lower() in ("0", "false")
