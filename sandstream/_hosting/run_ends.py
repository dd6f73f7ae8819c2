"""The end of a run: stop decisions, validation of the output, error handlers, and the hooks and
guardrails for the final output.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import States
from sandstream_actors.run.withheld import WITHHELD
from sandstream_bus.wire.error_text import error_text
from sandstream_bus.wire.messages import (
    CallRequested,
    RunDone,
    StopDecision,
)

from sandstream._hosting import hooks
from sandstream._hosting.guardrails.checks import run_output_guardrails
from sandstream._hosting.guardrails.records import records_of
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.outcomes import CallFailed, Outcome, encode
from sandstream._hosting.values import as_json, final_value, resolved
from sandstream._surface.item_records import input_of
from sandstream._surface.outcomes import exception_of
from sandstream._wire.compile import output_schema_of
from sandstream.agent import Agent
from sandstream.error_handlers import RunErrorData, RunErrorHandlerInput, as_result
from sandstream.exceptions import (
    ModelBehaviorError,
    OutputGuardrailTripwireTriggered,
    UserError,
)
from sandstream.guardrail import GuardrailFunctionOutput, OutputGuardrailResult
from sandstream.items import ToolCallOutputItem
from sandstream.run_config import OutputGuardrailBlockedMessageArgs
from sandstream.tool import (
    FunctionTool,
    FunctionToolResult,
    ToolsToFinalOutputResult,
)
from sandstream.usage import usage_of

logger = logging.getLogger(__name__)


async def decide_stop(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> StopDecision:
    """Call a ``tool_use_behavior`` function."""
    agent = hosted.agent(call.agent)
    behavior = agent.tool_use_behavior
    assert callable(behavior)
    results: list[FunctionToolResult] = []
    for tool_call in state.tool_calls:
        tool = hosted.tool(call.agent, tool_call.name)
        settled = state.settled(tool_call)
        if not isinstance(tool, FunctionTool) or settled is None:
            continue
        wire = msgspec.json.decode(settled.output)
        value = hosted.values.get(tool_call.id, wire)
        raw = {"call_id": tool_call.call_id, "output": wire, "type": "function_call_output"}
        item = ToolCallOutputItem(agent, raw, value)
        results.append(FunctionToolResult(tool, value, item))
    decision = await resolved(behavior(hosted.context, results))
    if not isinstance(decision, ToolsToFinalOutputResult):
        raise UserError(
            "a tool_use_behavior function must return ToolsToFinalOutputResult, not "
            f"{type(decision).__name__}"
        )
    if not decision.is_final_output:
        return StopDecision(final=False)
    final = final_value(agent, decision.final_output)
    hosted.values["final"] = final
    return StopDecision(final=True, value=as_json(final))


async def validate_output(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> StopDecision:
    """Check the final answer against ``output_type``; ask the handler if it does not fit."""
    agent = hosted.agent(call.agent)
    schema = output_schema_of(agent)
    assert schema is not None and state.answer is not None
    try:
        hosted.values["final"] = schema.validate_json(state.answer.text or "")
    except ModelBehaviorError as error:
        if "invalid_final_output" not in hosted.error_handlers:
            raise
        decision = await _ask_handler(hosted, state, states, "invalid_final_output", error)
        if not decision.final:
            raise
        return decision
    return StopDecision(final=True)


async def handle_error(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> StopDecision:
    assert call.error is not None
    done = RunDone(
        status="failed", agent=call.agent, turns=state.turn, usage=state.usage, error=call.error
    )
    error = exception_of(done, state.run)
    assert error is not None
    return await _ask_handler(hosted, state, states, call.error.code, error)


async def _ask_handler(
    hosted: HostedRun, state: RunState, states: States, kind: str, error: Exception
) -> StopDecision:
    handler: Any = hosted.error_handlers.get(kind)
    view = hosted.view()
    view.read(await states.log.read(state.run))
    output = input_of(view.items)
    data = RunErrorData(
        input=view.given_input,
        new_items=view.items,
        history=view.input + output,
        output=output,
        raw_responses=view.responses,
        last_agent=view.agent,
    )
    answer = await resolved(handler(RunErrorHandlerInput(error, hosted.context, data)))
    result = as_result(answer)
    if result is None:
        return StopDecision(final=False)
    value = _checked_final(hosted.agent(state.agent_name), result.final_output)
    hosted.values["final"] = result.final_output
    return StopDecision(final=True, value=value, include_in_history=result.include_in_history)


def _checked_final(agent: Agent[Any], value: Any) -> Raw:
    """A handler's output must fit ``output_type``, like the model's output."""
    schema = output_schema_of(agent)
    if schema is None:
        return encode(value if isinstance(value, str) else str(value))
    text = as_json(value)
    wrapped = list(schema.json_schema().get("properties", {})) == ["response"]
    candidate = b'{"response":' + bytes(text) + b"}" if wrapped else bytes(text)
    try:
        schema.validate_json(candidate.decode())
    except ModelBehaviorError as error:
        raise UserError(
            f"the error handler's final_output does not fit output_type: {error_text(error)}"
        ) from error
    return text


async def finish(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> Outcome:
    """Call the ``agent_end`` hook or the output guardrails with the run's final output.

    Raises:
        CallFailed: if a guardrail trips, raises or takes too long.
    """
    agent = hosted.agent(call.agent)
    hosted.context.usage = usage_of(call.usage)
    output = _final_output(hosted, state, call)
    if call.name == "agent_end":
        await hooks.agent_end(hosted.hooks, agent.hooks, hosted.context, agent, output)
        return Outcome(None)
    results: list[OutputGuardrailResult] = []
    hosted.guardrails[call.call] = results
    try:
        await run_output_guardrails(
            [*agent.output_guardrails, *(hosted.config.output_guardrails or [])],
            hosted.context,
            agent,
            output,
            hosted.config.guardrail_timeout,
            results=results,
        )
    except OutputGuardrailTripwireTriggered as error:
        if call.name != "tool":
            raise CallFailed(error, guardrails=records_of(results, call.agent)) from error
        text = _blocked_message(hosted, agent, error)
        results[:] = [_without_data(it, text) for it in results]
        withheld = OutputGuardrailTripwireTriggered(_without_data(error.guardrail_result, text))
        records = records_of(results, call.agent)
        raise CallFailed(withheld, guardrails=records, value=encode(text)) from None
    except Exception as error:
        raise CallFailed(error, guardrails=records_of(results, call.agent)) from error
    return Outcome(None, {"guardrails": records_of(results, call.agent)})


def _blocked_message(
    hosted: HostedRun, agent: Agent[Any], error: OutputGuardrailTripwireTriggered
) -> str:
    """The text that replaces a tool's refused result, even if the user's function fails."""
    wanted = hosted.config.output_guardrail_blocked_message
    if callable(wanted):
        name = error.guardrail_result.guardrail.get_name()
        try:
            wanted = wanted(
                OutputGuardrailBlockedMessageArgs(WITHHELD, name, agent, hosted.context)
            )
        except Exception:
            logger.exception("output_guardrail_blocked_message failed; the default text is used")
            return WITHHELD
    return wanted if isinstance(wanted, str) and wanted else WITHHELD


def _without_data(result: OutputGuardrailResult, text: str) -> OutputGuardrailResult:
    """The verdict on a tool's output, without the output and without the guardrail's info."""
    verdict = GuardrailFunctionOutput(None, result.output.tripwire_triggered)
    return OutputGuardrailResult(result.guardrail, text, result.agent, verdict)


def _final_output(hosted: HostedRun, state: RunState, call: CallRequested) -> Any:
    """The final output as an object: the original from this process, else decoded from the bus."""
    if "final" in hosted.values:
        return hosted.values["final"]
    agent = hosted.agent(call.agent)
    for tool_call in state.tool_calls:
        if tool_call.id in hosted.values:
            value = final_value(agent, hosted.values[tool_call.id])
            if as_json(value) == call.value:
                return value
    schema = output_schema_of(agent)
    text = state.answer.text if state.answer else None
    if schema is not None and text and not state.tool_calls:
        return schema.validate_json(text)
    value = msgspec.json.decode(call.value)
    return value if schema is not None or isinstance(value, str) else bytes(call.value).decode()
