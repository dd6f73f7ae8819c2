"""Function tools: the user's Python functions, offered to a model.

Contains the declaration (``FunctionTool``, ``function_tool``) and a single invocation with its
timeout and failure rules (``invoke_function_tool``). It does not know its callers: the loop, the
bus, and the hooks and guardrails around a call are elsewhere.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import msgspec
from sandstream_bus.environment import shows_tool_data
from sandstream_bus.wire.error_text import error_text

from sandstream._surface.docstrings import DocstringStyle
from sandstream.custom_tool import CustomTool
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
    """A tool that is a Python function. Usually made by ``@function_tool``.

    Raises:
        UserError: The name, the function or the schema is not usable.

    Example:
        async def call(context: ToolContext[Any], arguments: str) -> str:
            return str(len(json.loads(arguments)["text"]))


        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        count = FunctionTool("count", "Counts characters.", schema, call, strict_json_schema=False)
    """

    name: str
    """The name of the tool for the model."""
    description: str
    """What the tool does, for the model."""
    params_json_schema: dict[str, Any]
    """The JSON schema of the arguments."""
    on_invoke_tool: Callable[[ToolContext[Any], str], Awaitable[Any]]
    """Called with the context of the call and the model's arguments as JSON text."""
    strict_json_schema: bool = True
    """Whether the model must follow the schema strictly."""
    is_enabled: IsEnabled = True
    """Whether the model sees the tool: a bool, or decided each turn by ``(context, agent)``."""

    timeout_seconds: float | None = field(default=None, kw_only=True)
    """The time limit of a call; ``None`` removes it."""
    timeout_behavior: TimeoutBehavior = field(default="error_as_result", kw_only=True)
    """Tell the model about a timeout, or end the run with an exception."""
    timeout_error_function: ToolErrorFunction | None = field(default=None, kw_only=True)
    """Makes the text for the model of a timeout."""
    custom_data_extractor: FunctionToolCustomDataExtractor | None = field(
        default=None, kw_only=True
    )
    """Extracts data for the application from a result; it is never sent to the model."""
    needs_approval: NeedsApproval = field(default=False, kw_only=True)
    """Whether a person must approve a call: a bool, or ``(context, arguments, call id)``."""
    tool_input_guardrails: list[Any] | None = field(default=None, kw_only=True)
    """Checks of the arguments before a call."""
    tool_output_guardrails: list[Any] | None = field(default=None, kw_only=True)
    """Checks of the result after a call."""
    tool_origin: ToolOrigin | None = field(default=None, kw_only=True, repr=False)
    """The origin of the tool, if it is not a plain function."""
    title: str | None = field(default=None, kw_only=True, repr=False)
    """A name to show to people instead of ``name``."""
    delivery: Delivery = field(default="at_least_once", kw_only=True)
    """What happens if the worker dies during a call. ``at_least_once``: the tool is called again
    with the same ``tool_call_id``. ``at_most_once``: it is not called again, and the model is told
    that the outcome is unknown."""

    _on_failure: ToolErrorFunction | None = field(default=None, kw_only=True, repr=False)
    """``None``: an exception ends the run."""
    _on_failure_is_default: bool = field(default=False, kw_only=True, repr=False)
    """The user chose no failure handler, so the run's formatter may format the error."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UserError(f"The name of a tool must be a non-empty string, not {self.name!r}.")
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
    """The context of the call."""
    tool: FunctionTool
    """The tool that was called."""
    output: Any
    """The value that the function returned."""
    raw_item: Mapping[str, Any]
    """The output item for the model."""


FunctionToolCustomDataExtractor: TypeAlias = Callable[
    [FunctionToolCustomDataContext],
    "Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None",
]


@dataclass
class FunctionToolResult:
    """The result of one function call, for a ``tool_use_behavior`` function."""

    tool: FunctionTool
    """The tool that was called."""
    output: Any
    """The value that the function returned."""
    run_item: Any | None
    """The item of the result, if there is one."""


@dataclass
class ToolsToFinalOutputResult:
    """The decision of a ``tool_use_behavior`` function on whether the run ends here.

    Example:
        def stop_when_found(context, results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
            found = [it.output for it in results if it.output]
            return ToolsToFinalOutputResult(bool(found), final_output=found[0] if found else None)


        agent = Agent(name="Searcher", tools=[search], tool_use_behavior=stop_when_found)
    """

    is_final_output: bool
    """Whether the run ends with ``final_output``."""
    final_output: Any | None = None
    """The final output of the run."""


def default_tool_error_function(ctx: RunContextWrapper[Any], error: Exception) -> str:
    """The default text for the model about a failed call.

    Args:
        ctx: The context of the call.
        error: The exception. The text omits it, because it may contain sensitive data.

    Returns:
        The text.
    """
    return "An error occurred while running the tool. Please try again."


class _Unset:
    """The type of "no failure handler chosen", as opposed to ``None``."""


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
    """Make a tool of a function. Use it as a decorator, with or without parentheses.

    The model sees the function's name, its parameters and its docstring. A first parameter of the
    type ``RunContextWrapper`` or ``ToolContext`` gets the context. A function that is not async
    runs in a worker thread.

    Args:
        func: The function.
        name_override: The name of the tool, instead of the function's.
        description_override: The description for the model, instead of the docstring's.
        docstring_style: The format of the docstring; ``None`` finds it out.
        use_docstring_info: Take descriptions of the tool and its parameters from the docstring.
        failure_error_function: Makes a text for the model of an exception; with ``None`` an
            exception ends the run.
        strict_mode: Let the model follow the schema of the parameters strictly.
        is_enabled: Whether the model sees the tool: a bool, or a function of the context and the
            agent that decides it in each turn.
        timeout: How long a call may take, in seconds. Only for async functions, as a thread cannot
            be stopped.
        timeout_behavior: Tell the model about a timeout, or end the run with an exception.
        timeout_error_function: Makes the text for the model of a timeout.
        custom_data_extractor: Makes data for your application of a result. The model never sees it.
        needs_approval: Whether a person must approve a call: a bool, or a function of the context,
            the arguments and the id of the call.
        tool_input_guardrails: Checks of the arguments before a call.
        tool_output_guardrails: Checks of the result after a call.
        delivery: What happens to a call whose worker dies. ``at_least_once`` calls the function
            again with the same ``tool_call_id``; ``at_most_once`` tells the model that the outcome
            is unknown.

    Returns:
        The tool; without ``func``, a decorator that makes it.

    Raises:
        UserError: The function cannot be described to a model.
        ValueError: ``timeout`` is given for a function that is not async.

    Example:
        @function_tool
        async def get_weather(city: str) -> str:
            '''Get the weather of a city.'''
            return f"It is sunny in {city}."
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
        """Call the function; the tool's failure handler, if any, turns an exception into text."""
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
    """The schema of a decorated function; None for a tool with other code."""
    invoke = tool.on_invoke_tool
    return invoke._schema if isinstance(invoke, _Invoker) else None


def _bad_arguments(what: str, error: Exception) -> ModelBehaviorError:
    return ModelBehaviorError(f"{what}: {error_text(error)}" if _shows_tool_data() else what)


def _in_thread(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        # A future cannot carry StopIteration: the caller would wait forever.
        raise RuntimeError("the tool raised StopIteration") from error


class _ToolCancelled(Exception):
    """A tool raised ``CancelledError`` although the call was not cancelled."""


async def invoke_function_tool(
    tool: FunctionTool,
    ctx: ToolContext[Any],
    arguments: str,
    *,
    error_formatter: ToolErrorFormatter | None = None,
) -> Any:
    """Call the tool once with its timeout and failure rules; return the model's value.

    Cancellation of the caller is passed through.

    Args:
        tool: The tool.
        ctx: The context of the call.
        arguments: The model's arguments as JSON text.
        error_formatter: The run's formatter. It is used only if the user chose no failure handler
            for the tool.

    Raises:
        ToolTimeoutError: if the tool's ``timeout_behavior`` is ``raise_exception``.
        AgentsException: raised by a tool without a failure handler; other exceptions are
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
    except Exception as error:  # noqa: BLE001 - any exception of user code is the result
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
        raise UserError(f"Error running tool {tool.name}: {error_text(error)}") from error
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
    return shows_tool_data()
