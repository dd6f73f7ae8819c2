"""An agent as a tool of another agent: each call is a child run of the caller's run.

Within a run the harness starts the child run; the tool host calls only those parts that the user
customized (see _hosting/children.py). Called outside a run, the tool runs the agent itself.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import BaseModel, TypeAdapter, ValidationError

from sandstream._surface.agent_tool_stream import AgentToolStreamEvent, OnStream, feed
from sandstream._surface.hook_points import check_run_hooks
from sandstream._surface.runtime import runtime
from sandstream.agent import Agent
from sandstream.agent_tool_input import (
    AgentAsToolInput,
    StructuredToolInputBuilder,
    StructuredToolInputResult,
    build_structured_input_schema_info,
    resolve_agent_tool_input,
)
from sandstream.exceptions import ModelBehaviorError, UserError
from sandstream.items import ToolOrigin, ToolOriginType
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.run_context import RunContextWrapper
from sandstream.strict_schema import ensure_strict_json_schema
from sandstream.tool import FunctionTool, ToolErrorFunction
from sandstream.tool_context import ToolContext

if TYPE_CHECKING:
    from sandstream.lifecycle import RunHooks
    from sandstream.memory.session import Session
    from sandstream.result import RunResult, RunResultStreaming

__all__ = ["AgentTool", "AgentToolStreamEvent"]

logger = logging.getLogger(__name__)

OutputExtractor = Callable[[Any], Awaitable[str]]
"""Makes the tool's output from the result of the agent's run."""


@dataclass
class AgentTool(FunctionTool):
    """The tool that ``Agent.as_tool`` returns."""

    agent: Agent[Any] = field(kw_only=True)
    """The agent that a call runs."""
    run_config: RunConfig | None = field(default=None, kw_only=True)
    """Settings of the child run; ``None`` uses those of the caller's run."""
    max_turns: int | None = field(default=DEFAULT_MAX_TURNS, kw_only=True)
    """How many model calls the child run may make; ``None`` removes the limit."""
    run_hooks: RunHooks[Any] | None = field(default=None, kw_only=True)
    """Callbacks for the events of the child run."""
    session: Session | None = field(default=None, kw_only=True)
    """The history of the child run; ``None`` starts each call without one."""
    previous_response_id: str | None = field(default=None, kw_only=True)
    """The stored response that the child run continues after."""
    conversation_id: str | None = field(default=None, kw_only=True)
    """The stored conversation that the child run continues."""
    custom_output_extractor: OutputExtractor | None = field(default=None, kw_only=True)
    """Makes the tool's output of the child run's result; ``None`` takes the final output."""
    on_stream: OnStream | None = field(default=None, kw_only=True)
    """Called with each event of the child run."""
    on_stream_max_pending_events: int | None = field(default=1024, kw_only=True)
    """How many events may wait for ``on_stream``; ``None`` removes the limit."""
    parameters: type[Any] | None = field(default=None, kw_only=True)
    """The type of the tool's parameters; ``None`` is one text named ``input``."""
    input_builder: StructuredToolInputBuilder | None = field(default=None, kw_only=True)
    """Makes the child run's input of the parameters; ``None`` uses the default text."""
    include_input_schema: bool = field(default=False, kw_only=True)
    """Whether the child run's input shows the schema of the parameters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.on_invoke_tool, _ByHand):  # may belong to the original of this copy
            self.on_invoke_tool = _ByHand(self)

    @property
    def on_failure(self) -> ToolErrorFunction | None:
        """Makes the model's text for a failed run. None: the caller's run fails too."""
        return self._on_failure

    @property
    def starts_runs(self) -> bool:
        """Does a call start a child run? Not if the user replaced ``on_invoke_tool``."""
        return isinstance(self.on_invoke_tool, _ByHand)

    @property
    def makes_input(self) -> bool:
        """Does user code help to make the run's input?"""
        return self.parameters is not None or self.input_builder is not None

    @property
    def makes_output(self) -> bool:
        """Does user code help to make the tool's output?"""
        return self.custom_output_extractor is not None or self.custom_data_extractor is not None

    def config_of(self, parent: RunConfig) -> RunConfig:
        """The settings of its runs: its own, or else the caller's.

        Args:
            parent: The settings of the caller's run.
        """
        return self.run_config or parent

    # --- arguments -----------------------------------------------------------------------------

    def parsed(self, arguments: str) -> Any:
        """The model's arguments as plain data, checked against ``parameters``.

        Args:
            arguments: The model's arguments as JSON text; an empty text is an empty object.

        Raises:
            ModelBehaviorError: if they are not JSON or do not fit.
        """
        what = f"Invalid JSON input for tool {self.name}"
        adapter: TypeAdapter[Any] = TypeAdapter(self.parameters or AgentAsToolInput)
        try:
            decoded = msgspec.json.decode(arguments) if arguments else {}
        except (msgspec.DecodeError, RecursionError):
            raise ModelBehaviorError(what) from None
        if not isinstance(decoded, dict):
            raise ModelBehaviorError(f"{what}: expected a JSON object")
        try:
            return adapter.dump_python(adapter.validate_python(decoded), mode="json")
        except ValidationError:  # its text shows the arguments, which may be sensitive
            raise ModelBehaviorError(what) from None

    async def input_of(self, params: Any) -> StructuredToolInputResult:
        """The input of the agent's run, from its parsed arguments.

        Args:
            params: The arguments as plain data, from :meth:`parsed`.
        """
        with_schema = self.include_input_schema and self.parameters is not None
        info = build_structured_input_schema_info(
            self.params_json_schema, include_json_schema=with_schema
        )
        return await resolve_agent_tool_input(
            params=params,
            schema_info=info if self.makes_input else None,
            input_builder=self.input_builder,
        )

    def context_of(
        self, caller: RunContextWrapper[Any], call_id: str, arguments: str, agent: Agent[Any] | None
    ) -> ToolContext[Any]:
        """The context of the agent's run: the caller's object, and the tool call it answers.

        Args:
            caller: The context of the run that calls the tool.
            call_id: The model's id of the call.
            arguments: The model's arguments as JSON text.
            agent: The agent that calls the tool; ``None`` if the call comes from outside a run.
        """
        item = {
            "type": "function_call",
            "name": self.name,
            "call_id": call_id,
            "arguments": arguments,
        }
        return ToolContext(
            caller.context,
            None,
            self.name,
            call_id,
            arguments,
            item,
            agent=agent,
            run_config=self.run_config,
            tool_input=self._tool_input(arguments),
        )

    def _tool_input(self, arguments: str) -> Any:
        """The structured arguments for the agent's own code."""
        if not self.makes_input:
            return None
        try:
            return self.parsed(arguments)
        except ModelBehaviorError:
            return None  # there will be no run

    # --- output --------------------------------------------------------------------------------

    async def output_of(self, result: RunResult | RunResultStreaming) -> Any:
        """The tool's output, from the result of the agent's run.

        Args:
            result: The result of the agent's run.
        """
        if self.custom_output_extractor is not None:
            return await self.custom_output_extractor(result)
        final = result.final_output
        if final not in (None, "") or result.output_guardrail_results:
            return final
        from sandstream.items import ItemHelpers, MessageOutputItem, ToolCallOutputItem

        for item in reversed(result.new_items):
            text: Any = None
            if isinstance(item, MessageOutputItem):
                text = ItemHelpers.text_message_output(item)
            elif isinstance(item, ToolCallOutputItem):
                text = item.output
            if isinstance(text, str) and text:
                return text
        return final


class _ByHand:
    """``on_invoke_tool`` of an agent tool: runs the agent for callers outside a run."""

    def __init__(self, tool: AgentTool | None = None) -> None:
        self._tool = tool

    async def __call__(self, ctx: RunContextWrapper[Any], arguments: str) -> Any:
        assert self._tool is not None
        try:
            return await self._run(self._tool, ctx, arguments)
        except Exception as error:
            if self._tool.on_failure is None:
                raise
            text = self._tool.on_failure(ctx, error)
            return await text if inspect.isawaitable(text) else text

    async def _run(self, tool: AgentTool, ctx: RunContextWrapper[Any], arguments: str) -> Any:
        input = await tool.input_of(tool.parsed(arguments))
        call_id = ctx.tool_call_id if isinstance(ctx, ToolContext) else ""
        agent = ctx.agent if isinstance(ctx, ToolContext) else None
        context = tool.context_of(ctx, call_id, arguments, agent)
        config = tool.run_config
        if config is None and isinstance(ctx, ToolContext):
            config = ctx.run_config
        options: dict[str, Any] = {
            "context": context,
            "max_turns": tool.max_turns,
            "hooks": tool.run_hooks,
            "run_config": config,
            "previous_response_id": tool.previous_response_id,
            "conversation_id": tool.conversation_id,
            "session": tool.session,
        }
        result: RunResult | RunResultStreaming
        if tool.on_stream is None:
            result = await runtime().run(tool.agent, input, **options)
        else:
            result = runtime().run_streamed(tool.agent, input, **options)
            try:
                await feed(
                    tool.on_stream,
                    tool.on_stream_max_pending_events,
                    result.stream_events(),
                    tool.agent,
                    context.tool_call,
                )
            except BaseException:
                result.cancel()
                raise
        ctx.usage.add(result.context_wrapper.usage)
        return await tool.output_of(result)


def agent_tool(
    agent: Agent[Any],
    *,
    tool_name: str | None,
    tool_description: str | None,
    custom_output_extractor: OutputExtractor | None,
    is_enabled: Any,
    on_stream: OnStream | None,
    run_config: Any | None,
    max_turns: int | None,
    hooks: RunHooks[Any] | None,
    previous_response_id: str | None,
    conversation_id: str | None,
    session: Session | None,
    failure_error_function: ToolErrorFunction | None,
    needs_approval: Any,
    parameters: type[Any] | None,
    input_builder: StructuredToolInputBuilder | None,
    include_input_schema: bool,
    on_stream_max_pending_events: int | None,
) -> AgentTool:
    """Make the tool for ``Agent.as_tool``; see there for the arguments."""
    name = tool_name or _function_name(agent.name)
    if on_stream is not None and not callable(on_stream):
        raise UserError(f"on_stream of the agent tool {name!r} must be a function or None")
    limit = on_stream_max_pending_events
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise UserError(
            f"on_stream_max_pending_events of the agent tool {name!r} must be None or at least 1, "
            f"not {limit!r}"
        )
    check_run_hooks(hooks)
    config = None if run_config is None else RunConfig.coerce(run_config)
    return AgentTool(
        name=name,
        description=tool_description or "",
        params_json_schema=_schema(parameters, name),
        on_invoke_tool=_ByHand(),
        is_enabled=is_enabled,
        needs_approval=needs_approval,
        tool_origin=ToolOrigin(
            ToolOriginType.AGENT_AS_TOOL, agent_name=agent.name, agent_tool_name=name
        ),
        agent=agent,
        run_config=config,
        max_turns=DEFAULT_MAX_TURNS if max_turns is None else max_turns,
        run_hooks=hooks,
        session=session,
        previous_response_id=previous_response_id,
        conversation_id=conversation_id,
        custom_output_extractor=custom_output_extractor,
        on_stream=on_stream,
        on_stream_max_pending_events=limit,
        parameters=parameters,
        input_builder=input_builder,
        include_input_schema=include_input_schema,
        _on_failure=failure_error_function,
    )


def _schema(parameters: type[Any] | None, name: str) -> dict[str, Any]:
    if parameters is None:
        parameters = AgentAsToolInput
    is_type = isinstance(parameters, type)
    if not is_type or not (
        dataclasses.is_dataclass(parameters) or issubclass(parameters, BaseModel)
    ):
        raise TypeError(
            f"parameters of the agent tool {name!r} must be a dataclass or a pydantic model, not "
            f"{parameters!r}"
        )
    return ensure_strict_json_schema(TypeAdapter(parameters).json_schema())


def _function_name(agent: str) -> str:
    """An agent's name as a valid function name."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", agent)
    if name != agent:
        logger.warning(
            "An agent's name has characters that a tool's name cannot have; they were replaced. "
            "Give as_tool a tool_name if two agents get the same name",
            extra={"agent": agent, "tool": name.lower()},
        )
    return name.lower()
