"""Runs the user's guardrails.

Pure functions: the caller decides which guardrails to ask, and what happens to the run if one
trips. If a guardrail cannot reach a verdict, the function raises: unchecked content does not pass.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from sandstream_bus.wire.error_text import error_text

from sandstream._surface.task_ends import not_cancelled_by_itself, stop
from sandstream.agent import Agent
from sandstream.exceptions import (
    AgentsException,
    GuardrailTimeout,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    UserError,
)
from sandstream.guardrail import (
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    OutputGuardrailResult,
)
from sandstream.items import TResponseInputItem
from sandstream.run_context import RunContextWrapper
from sandstream.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolInputGuardrailResult,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
    ToolOutputGuardrailResult,
)
from sandstream.tracing._runs.part_of_run import part_of_run
from sandstream.tracing.span_data import GuardrailSpanData

T = TypeVar("T")
AnyGuardrail = TypeVar(
    "AnyGuardrail",
    InputGuardrail[Any],
    OutputGuardrail[Any],
    ToolInputGuardrail[Any],
    ToolOutputGuardrail[Any],
)


class GuardedTool(Protocol):
    """The attributes of a tool that are needed here."""

    @property
    def name(self) -> str: ...

    @property
    def tool_input_guardrails(self) -> Sequence[ToolInputGuardrail[Any]] | None: ...

    @property
    def tool_output_guardrails(self) -> Sequence[ToolOutputGuardrail[Any]] | None: ...


# --- guardrails of agents: concurrently -----------------------------------------------------------


async def run_input_guardrails(
    guardrails: Sequence[InputGuardrail[Any]],
    context: RunContextWrapper[Any],
    agent: Agent[Any],
    input: str | list[TResponseInputItem],
    timeout_s: float | None,
    *,
    results: list[InputGuardrailResult] | None = None,
) -> list[InputGuardrailResult]:
    """Ask all guardrails; the results are in order of completion.

    If ``results`` is given, each result is appended to it as it arrives, so it also has the results
    that arrived before an exception.

    Raises:
        InputGuardrailTripwireTriggered: for the first that trips; the rest are cancelled.
        GuardrailTimeout: for one that takes longer than ``timeout_s``.
        Exception: what a guardrail raises.
    """
    return await _verdicts(
        guardrails,
        lambda each: each.run(agent, input, context),
        InputGuardrailTripwireTriggered,
        timeout_s,
        [] if results is None else results,
    )


async def run_output_guardrails(
    guardrails: Sequence[OutputGuardrail[Any]],
    context: RunContextWrapper[Any],
    agent: Agent[Any],
    output: Any,
    timeout_s: float | None,
    *,
    results: list[OutputGuardrailResult] | None = None,
) -> list[OutputGuardrailResult]:
    """As :func:`run_input_guardrails`, with ``OutputGuardrailTripwireTriggered``."""
    return await _verdicts(
        guardrails,
        lambda each: each.run(context, agent, output),
        OutputGuardrailTripwireTriggered,
        timeout_s,
        [] if results is None else results,
    )


async def _verdicts(
    guardrails: Sequence[AnyGuardrail],
    ask: Callable[[Any], Awaitable[Any]],
    trip: Callable[[Any], Exception],
    timeout_s: float | None,
    heard: list[Any],
) -> list[Any]:
    """Ask all guardrails concurrently; append each result to ``heard`` as it arrives."""

    async def check(guardrail: AnyGuardrail) -> Any:
        with part_of_run(GuardrailSpanData(guardrail.get_name())) as shown:
            result = await ask(_stoppable(guardrail, timeout_s))
            result.guardrail = guardrail
            shown.triggered = bool(getattr(result.output, "tripwire_triggered", False))
        return result

    def hear(result: Any) -> None:
        _check_verdict(result.guardrail.get_name(), result.output, "tripwire_triggered")
        heard.append(result)
        if result.output.tripwire_triggered:
            raise trip(result)

    await _ask_all([(each.get_name(), check(each)) for each in guardrails], timeout_s, hear)
    return heard


# --- guardrails of tools: one after the other -----------------------------------------------------


async def guard_tool_input(
    tool: GuardedTool,
    data: ToolInputGuardrailData,
    timeout_s: float | None,
    *,
    results: list[ToolInputGuardrailResult] | None = None,
) -> tuple[list[ToolInputGuardrailResult], str | None]:
    """Ask the guardrails before a call; a returned text replaces the call for the model.

    Raises:
        ToolInputGuardrailTripwireTriggered: if one wants the run to end.
        GuardrailTimeout: if one takes longer than ``timeout_s``.
        UserError: for anything else that a guardrail raises.
    """
    heard = [] if results is None else results
    for guardrail in tool.tool_input_guardrails or ():
        moved = _stoppable(guardrail, timeout_s)
        output = await _verdict(tool, guardrail.get_name(), moved.run(data), timeout_s)
        heard.append(ToolInputGuardrailResult(guardrail, output))
        if output.behavior["type"] == "raise_exception":
            raise ToolInputGuardrailTripwireTriggered(guardrail, output)
        if output.behavior["type"] == "reject_content":
            return heard, output.behavior["message"]
    return heard, None


async def guard_tool_output(
    tool: GuardedTool,
    data: ToolOutputGuardrailData,
    timeout_s: float | None,
    *,
    results: list[ToolOutputGuardrailResult] | None = None,
) -> tuple[list[ToolOutputGuardrailResult], Any]:
    """Ask the guardrails after a call; the second value is the output that the model gets.

    Raises:
        ToolOutputGuardrailTripwireTriggered: if one wants the run to end.
        GuardrailTimeout: if one takes longer than ``timeout_s``.
        UserError: for anything else that a guardrail raises.
    """
    heard = [] if results is None else results
    for guardrail in tool.tool_output_guardrails or ():
        moved = _stoppable(guardrail, timeout_s)
        output = await _verdict(tool, guardrail.get_name(), moved.run(data), timeout_s)
        heard.append(ToolOutputGuardrailResult(guardrail, output))
        if output.behavior["type"] == "raise_exception":
            raise ToolOutputGuardrailTripwireTriggered(guardrail, output)
        if output.behavior["type"] == "reject_content":
            return heard, output.behavior["message"]
    return heard, data.output


async def _verdict(
    tool: GuardedTool,
    name: str,
    check: Coroutine[Any, Any, ToolGuardrailFunctionOutput],
    timeout_s: float | None,
) -> ToolGuardrailFunctionOutput:
    heard: list[ToolGuardrailFunctionOutput] = []
    try:
        await _ask_all([(name, check)], timeout_s, heard.append)
    except AgentsException:
        raise
    except Exception as error:
        raise UserError(f"Error running tool {tool.name}: {error_text(error)}") from error
    _check_verdict(name, heard[0], "behavior")
    behavior: Mapping[str, Any] = heard[0].behavior
    if behavior.get("type") not in ("allow", "reject_content", "raise_exception"):
        raise UserError(
            f"Guardrail '{name}' of tool '{tool.name}' must allow, reject_content or "
            f"raise_exception; it said {behavior!r}."
        )
    return heard[0]


# --- asking ---------------------------------------------------------------------------------------


async def _ask_all(
    checks: Sequence[tuple[str, Coroutine[Any, Any, T]]],
    timeout_s: float | None,
    hear: Callable[[T], None],
) -> None:
    """Run all checks concurrently and pass on each answer; the first exception cancels the rest."""
    finished: asyncio.Queue[asyncio.Task[T]] = asyncio.Queue()
    waiting: dict[asyncio.Task[T], str] = {}
    for name, check in checks:
        task = asyncio.create_task(not_cancelled_by_itself(f"Guardrail '{name}'", check))
        task.add_done_callback(finished.put_nowait)
        waiting[task] = name
    tasks = list(waiting)
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            while waiting:
                task = await finished.get()
                del waiting[task]
                hear(task.result())
    except TimeoutError as error:
        if timeout_s is None or not limit.expired():
            raise
        raise GuardrailTimeout(next(iter(waiting.values())), timeout_s) from error
    finally:
        await stop(tasks)


def _stoppable(guardrail: AnyGuardrail, timeout_s: float | None) -> AnyGuardrail:
    """A guardrail whose time limit can be enforced.

    A plain function runs on the event loop, where it would block the timeout as well. With a limit
    it therefore runs in a thread, which can be abandoned but not stopped.
    """
    function: Any = guardrail.guardrail_function
    if timeout_s is None or not callable(function) or _is_async(function):
        return guardrail

    async def in_thread(*arguments: Any) -> Any:
        answer = await asyncio.to_thread(_without_stop_iteration, function, *arguments)
        return await answer if inspect.isawaitable(answer) else answer

    moved = copy.copy(guardrail)
    moved.guardrail_function = in_thread
    return moved


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  for callable objects
    )


def _without_stop_iteration(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except StopIteration as error:
        # a future cannot carry StopIteration: the caller would wait forever
        raise RuntimeError("the guardrail raised StopIteration") from error


def _check_verdict(name: str, output: object, attribute: str) -> None:
    if not hasattr(output, attribute):
        kind = "GuardrailFunctionOutput"
        expected = kind if attribute == "tripwire_triggered" else f"Tool{kind}"
        raise UserError(f"Guardrail '{name}' must return {expected}, not {output!r}.")
