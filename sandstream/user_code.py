"""The tool host's callables: runs the user's Python for a call and makes an outcome of whatever
happens.

Needs a :class:`HostedRun` for the run: the agents, the context and the settings as objects. Where
these come from is up to the caller: the process of ``Runner.run`` has them, a worker finds them by
the agent's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import (
    CallFinished,
    CallRequested,
    ErrorInfo,
    ModelAnswered,
    Prepared,
    RunDone,
    StopDecision,
)
from sandstream_bus.specs import NO_JSON
from sandstream_bus.subjects import RunId

from sandstream.agent import Agent, Tool, is_tool_enabled
from sandstream.custom_tool import CustomTool, CustomToolCustomDataContext
from sandstream.error_handlers import (
    RunErrorData,
    RunErrorHandlerInput,
    RunErrorHandlers,
    as_result,
)
from sandstream.exceptions import ModelBehaviorError, UserError
from sandstream.graph import output_schema_of, tools_of
from sandstream.items import ToolCallOutputItem
from sandstream.outcomes import error_info, exception_of
from sandstream.run_config import (
    CallModelData,
    ModelInputData,
    RunConfig,
    ToolErrorFormatterArgs,
)
from sandstream.run_context import RunContextWrapper
from sandstream.run_view import RunView, usage_of
from sandstream.tool import (
    FunctionTool,
    FunctionToolCustomDataContext,
    FunctionToolResult,
    ToolsToFinalOutputResult,
    invoke_function_tool,
    tool_output_to_wire,
)
from sandstream.tool_context import ToolContext

_encode = msgspec.json.encode


@dataclass
class HostedRun:
    """The objects behind one run in this process."""

    agents: dict[str, Agent[Any]]
    """As the user made them: what results and contexts show."""
    context: RunContextWrapper[Any]
    config: RunConfig
    error_handlers: RunErrorHandlers = field(default_factory=lambda: RunErrorHandlers())
    values: dict[str, Any] = field(default_factory=dict)
    """Return values of tools, by call, while the run is in this process."""
    exceptions: dict[str, Exception] = field(default_factory=dict)
    """What user code raised, by message, so that a caller in this process gets the original."""

    working: dict[str, Agent[Any]] = field(default_factory=dict)
    """Agents as this run has them, where that is different: with the tools of their sandbox."""

    def working_agent(self, name: str) -> Agent[Any]:
        """The agent whose tools and instructions count."""
        return self.working.get(name) or self.agent(name)

    def agent(self, name: str) -> Agent[Any]:
        found = self.agents.get(name)
        if found is None:
            offered = ", ".join(map(repr, self.agents)) or "none"
            raise UserError(f"this worker does not offer agent {name!r} (it offers {offered})")
        return found


FindRun = Callable[[RunId, StateCache], Awaitable[HostedRun]]
AskHostedModel = Callable[[HostedRun, RunState, CallRequested], Awaitable[ModelAnswered]]


class UserCode:
    """Dispatches calls by kind."""

    def __init__(self, find_run: FindRun, ask_model: AskHostedModel) -> None:
        self._find_run = find_run
        self._ask_model = ask_model

    async def admit(self, run: RunId, states: StateCache) -> None:
        await self._find_run(run, states)

    async def invoke(
        self, run: RunId, call: CallRequested, states: StateCache
    ) -> CallFinished | ModelAnswered:
        hosted = await self._find_run(run, states)
        # outside of the try: that the log cannot be read now is no outcome of the user's code
        state = None if call.kind == "tool" else await states.load(run)
        try:
            if state is None:
                return await _call_tool(hosted, call, run, states)
            if call.kind == "model":
                hosted.context.usage = usage_of(call.usage)
                if state.prepared is None:
                    state.prepared = await _prepare(hosted, state, call, states)
                return await self._ask_model(hosted, state, call)
            result = await _HOST_CALLS[call.kind](hosted, state, call, states)
            return _finished(call, output=Raw(_encode(result)))
        except Exception as error:  # noqa: BLE001  what user code raises is the call's outcome
            return failure(hosted, call, error)


def failure(hosted: HostedRun, call: CallRequested, error: Exception) -> CallFinished:
    """User code raised: the run ends with that, and a caller in this process gets the original."""
    info = error_info(error)
    hosted.exceptions[info.message] = error
    return _finished(call, error=info)


def _finished(
    call: CallRequested, *, output: Raw = NO_JSON, error: ErrorInfo | None = None, **more: Any
) -> CallFinished:
    return CallFinished(
        call=call.call, kind=call.kind, turn=call.turn, output=output, error=error, **more
    )


# --- tools ----------------------------------------------------------------------------------------


async def _call_tool(
    hosted: HostedRun, call: CallRequested, run: RunId, states: StateCache
) -> CallFinished:
    agent = hosted.agent(call.agent)
    tools = tools_of(hosted.working_agent(call.agent), hosted.config)
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None or not await _was_offered(tool, run, states):
        text = await _not_found(hosted, call)
        return _finished(
            call,
            output=Raw(_encode(text)),
            error=ErrorInfo(code="tool_not_found", message=text),
        )
    if isinstance(tool, CustomTool):
        return await _call_custom_tool(hosted, call, tool)
    function_call = {
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
    }
    context = _tool_context(hosted, call, function_call)

    async def format_error(ctx: Any, error: Exception, default: str) -> str | None:
        return await _format_error(hosted, call, "tool_exception", default, error)

    formatter = format_error if hosted.config.tool_error_formatter else None
    value = await invoke_function_tool(tool, context, call.arguments, error_formatter=formatter)
    hosted.values[call.call] = value
    return _finished(
        call,
        output=Raw(_encode(tool_output_to_wire(value))),
        value=_as_json(final_value(agent, value))
        if agent.tool_use_behavior != "run_llm_again"
        else NO_JSON,
        custom_data=await _custom_data(tool, context, value),
    )


async def _call_custom_tool(
    hosted: HostedRun, call: CallRequested, tool: CustomTool
) -> CallFinished:
    """The model gets a text, whatever happens: what the tool raises is told to it, too."""
    context = _tool_context(hosted, call, None)
    failed: ErrorInfo | None = None
    try:
        value = await _resolved(tool.on_invoke_tool(context, call.arguments))
        text = value if isinstance(value, str) else str(value)
    except Exception as error:  # noqa: BLE001  what user code raises is the call's outcome
        failed = error_info(error)
        text = failed.message
    custom_data = NO_JSON
    if tool.custom_data_extractor is not None:
        raw = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": text}
        data = CustomToolCustomDataContext(context, tool, call.arguments, text, raw)
        custom_data = _as_json(await _resolved(tool.custom_data_extractor(data)))
    return _finished(call, output=Raw(_encode(text)), error=failed, custom_data=custom_data)


def _tool_context(
    hosted: HostedRun, call: CallRequested, tool_call: dict[str, str] | None
) -> ToolContext[Any]:
    return ToolContext(
        hosted.context.context,
        usage_of(call.usage),
        call.name,
        call.call_id,
        call.arguments,
        tool_call,
        agent=hosted.agent(call.agent),
        run_config=hosted.config,
    )


def final_value(agent: Agent[Any], value: Any) -> Any:
    """What a run ends with if a tool's return value ends it: text, unless the agent is typed."""
    if output_schema_of(agent) is not None or isinstance(value, str):
        return value
    return str(value)


async def _was_offered(tool: Tool, run: RunId, states: StateCache) -> bool:
    """A tool that was disabled when the model was asked does not exist for it."""
    if isinstance(tool, CustomTool) or tool.is_enabled is True:
        return True
    return tool.name not in (await states.load(run)).disabled_tools


async def _not_found(hosted: HostedRun, call: CallRequested) -> str:
    default = f"Tool '{call.name}' not found."
    formatted = await _format_error(hosted, call, "tool_not_found", default, None)
    return formatted or default


async def _format_error(
    hosted: HostedRun, call: CallRequested, kind: Any, default: str, error: Exception | None
) -> str | None:
    if hosted.config.tool_error_formatter is None:
        return None
    text = await _resolved(
        hosted.config.tool_error_formatter(
            ToolErrorFormatterArgs(
                kind=kind,
                tool_type="function",
                tool_name=call.name,
                call_id=call.call_id,
                default_message=default,
                run_context=hosted.context,
                error=error,
            )
        )
    )
    return text if isinstance(text, str) else None


async def _custom_data(tool: FunctionTool, context: ToolContext[Any], value: Any) -> Raw:
    if tool.custom_data_extractor is None:
        return NO_JSON
    raw = {
        "call_id": context.tool_call_id,
        "output": tool_output_to_wire(value),
        "type": "function_call_output",
    }
    data = FunctionToolCustomDataContext(context, tool, value, raw)
    return _as_json(await _resolved(tool.custom_data_extractor(data)))


# --- the other calls ------------------------------------------------------------------------------


async def _prepare(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> Prepared:
    """Instructions, prompt, enabled tools and filtered input of the turn that is due."""
    agent = hosted.agent(call.agent)
    working = hosted.working_agent(call.agent)
    context = hosted.context
    context.usage = usage_of(call.usage)
    items = [msgspec.json.decode(item) for item in state.conversation()]
    context.turn_input = items
    instructions = await working.get_system_prompt(context)
    prompt = await agent.get_prompt(context)
    disabled = [
        tool.name
        for tool in tools_of(working, hosted.config)
        if not await is_tool_enabled(tool, context, agent)
    ]
    filtered: list[Raw] | None = None
    if hosted.config.call_model_input_filter is not None:
        data: CallModelData[Any] = CallModelData(
            ModelInputData(items, instructions), agent, context.context
        )
        changed = await _resolved(hosted.config.call_model_input_filter(data))
        if not isinstance(changed, ModelInputData):
            raise UserError(
                f"call_model_input_filter must return ModelInputData, not {type(changed).__name__}"
            )
        filtered = [Raw(_encode(item)) for item in changed.input]
        instructions = changed.instructions
    return Prepared(
        instructions=instructions,
        prompt=Raw(_encode(prompt)) if prompt else NO_JSON,
        disabled_tools=disabled,
        input=filtered,
    )


async def _decide_stop(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> StopDecision:
    """A callable ``tool_use_behavior``."""
    agent = hosted.agent(call.agent)
    behavior = agent.tool_use_behavior
    assert callable(behavior) and state.answer is not None
    working = hosted.working_agent(call.agent)
    tools = {tool.name: tool for tool in tools_of(working, hosted.config)}
    results: list[FunctionToolResult] = []
    for tool_call in state.answer.tool_calls:
        tool = tools.get(tool_call.name)
        if not isinstance(tool, FunctionTool):
            continue
        wire = msgspec.json.decode(state.results[tool_call.id].output)
        value = hosted.values.get(tool_call.id, wire)
        raw = {"call_id": tool_call.call_id, "output": wire, "type": "function_call_output"}
        item = ToolCallOutputItem(agent, raw, value)
        results.append(FunctionToolResult(tool, value, item))
    decision = await _resolved(behavior(hosted.context, results))
    if not isinstance(decision, ToolsToFinalOutputResult):
        raise UserError(
            "a tool_use_behavior function must return ToolsToFinalOutputResult, not "
            f"{type(decision).__name__}"
        )
    if not decision.is_final_output:
        return StopDecision(final=False)
    final = final_value(agent, decision.final_output)
    hosted.values["final"] = final
    return StopDecision(final=True, value=_as_json(final))


async def _validate_output(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
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


async def _handle_error(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> StopDecision:
    assert call.error is not None
    done = RunDone(
        status="failed", agent=call.agent, turns=state.turn, usage=state.usage, error=call.error
    )
    error = exception_of(done, state.run)
    assert error is not None
    return await _ask_handler(hosted, state, states, call.error.code, error)


async def _ask_handler(
    hosted: HostedRun, state: RunState, states: StateCache, kind: str, error: Exception
) -> StopDecision:
    handler: Any = hosted.error_handlers.get(kind)
    view = RunView(hosted.agents, hosted.values, hosted.working)
    for event in await states.log.read(state.run):
        view.feed(event.event, event.subject)
    history = view.input + [item.to_input_item() for item in view.items]
    data = RunErrorData(
        input=view.input,
        new_items=view.items,
        history=history,
        output=[item.to_input_item() for item in view.items],
        raw_responses=view.responses,
        last_agent=view.agent,
    )
    answer = await _resolved(handler(RunErrorHandlerInput(error, hosted.context, data)))
    result = as_result(answer)
    if result is None:
        return StopDecision(final=False)
    value = _checked_final(hosted.agent(state.agent_name), result.final_output)
    hosted.values["final"] = result.final_output
    return StopDecision(final=True, value=value, include_in_history=result.include_in_history)


def _checked_final(agent: Agent[Any], value: Any) -> Raw:
    """A handler's output must fit ``output_type`` as the model's would."""
    schema = output_schema_of(agent)
    if schema is None:
        return Raw(_encode(value if isinstance(value, str) else str(value)))
    text = _as_json(value)
    wrapped = list(schema.json_schema().get("properties", {})) == ["response"]
    candidate = b'{"response":' + bytes(text) + b"}" if wrapped else bytes(text)
    try:
        schema.validate_json(candidate.decode())
    except ModelBehaviorError as error:
        raise UserError(
            f"the error handler's final_output does not fit output_type: {error}"
        ) from error
    return text


async def _resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _as_json(value: Any) -> Raw:
    """Any return value as JSON; what JSON cannot say becomes its text."""
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        return Raw(str(dump()).encode())
    return Raw(_encode(value, enc_hook=_enc_hook))


def _enc_hook(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


_HostCall = Callable[[HostedRun, RunState, CallRequested, StateCache], Awaitable[Any]]
_HOST_CALLS: dict[str, _HostCall] = {
    "prepare": _prepare,
    "stop": _decide_stop,
    "output": _validate_output,
    "error": _handle_error,
}
