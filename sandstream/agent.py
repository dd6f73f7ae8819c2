"""The agent: a plain description without I/O. _wire/compile.py turns it into messages."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, cast

from sandstream.agent_output import AgentOutputSchemaBase
from sandstream.custom_tool import CustomTool
from sandstream.guardrail import InputGuardrail, OutputGuardrail
from sandstream.handoffs.handoff import Handoff
from sandstream.lifecycle import AgentHooksBase
from sandstream.model_settings import ModelSettings
from sandstream.models.default_models import get_default_model_settings
from sandstream.models.interface import Model
from sandstream.run_context import RunContextWrapper, TContext
from sandstream.tool import (
    FunctionTool,
    FunctionToolResult,
    ToolsToFinalOutputResult,
    default_tool_error_function,
)
from sandstream.tool import (
    Tool as Tool,
)

if TYPE_CHECKING:
    from sandstream.lifecycle import AgentHooks
    from sandstream.mcp import MCPServer


Instructions = (
    str | Callable[[RunContextWrapper[TContext], "Agent[TContext]"], str | Awaitable[str]]
)
ToolsToFinalOutputFunction = Callable[
    [RunContextWrapper[Any], list[FunctionToolResult]],
    ToolsToFinalOutputResult | Awaitable[ToolsToFinalOutputResult],
]


class MCPConfig(TypedDict, total=False):
    """How an agent uses the tools of its MCP servers."""

    convert_schemas_to_strict: bool
    """Whether the tools' schemas are made strict where possible; missing: no."""
    failure_error_function: Any
    """Makes a text for the model of a failed call; ``None`` ends the run with the error. Missing:
    the default text."""
    include_server_in_tool_names: bool
    """Whether each tool's name starts with its server's name, so that two servers may have tools of
    the same name; missing: no."""


class StopAtTools(TypedDict):
    """End the run when one of these tools was called.

    Example:
        stop = StopAtTools(stop_at_tool_names=["book"])
        agent = Agent(name="Clerk", tools=[find, book], tool_use_behavior=stop)
    """

    stop_at_tool_names: list[str]
    """The names of these tools. The output of the first one called is the final output."""


ToolUseBehavior = (
    Literal["run_llm_again", "stop_on_first_tool"] | StopAtTools | ToolsToFinalOutputFunction
)


class Prompt(TypedDict, total=False):
    """A stored prompt of the Responses API."""

    id: str
    """The id of the prompt at the provider."""
    version: str
    """The version to use; missing: the current one."""
    variables: dict[str, Any]
    """Values for the variables of the prompt's text, by name."""


@dataclass
class GenerateDynamicPromptData:
    """The argument of a prompt function.

    Example:
        def choose(data: GenerateDynamicPromptData) -> Prompt:
            return {"id": "pmpt_1", "variables": {"city": data.context.context.city}}


        agent = Agent(name="Guide", prompt=choose)
    """

    context: RunContextWrapper[Any]
    """The context of the run."""
    agent: Agent[Any]
    """The agent whose prompt is needed."""


DynamicPromptFunction = Callable[[GenerateDynamicPromptData], Prompt | Awaitable[Prompt]]


@dataclass
class Agent(Generic[TContext]):
    """A model with instructions and tools. It holds no state of a run; share it between runs.

    Args:
        name: The name in logs, traces and handoffs.
        handoff_description: Tells other agents when to hand over to this one.
        tools: The tools that the model may call.
        mcp_servers: MCP servers whose tools the model may call, too. You connect and close them.
        mcp_config: How the tools of the MCP servers are offered.
        instructions: The system prompt, or a function of the context and the agent that returns it.
        prompt: A stored prompt of the Responses API, or a function that returns one.
        handoffs: Agents that this one may hand the conversation over to.
        model: A model's name, or an object that calls a model; ``None`` is the default model.
        model_settings: Settings such as the temperature; ``None`` derives them from the model.
        input_guardrails: Checks of the input, when this agent is the first of a run.
        output_guardrails: Checks of the output, when this agent is the last of a run.
        output_type: The type of the final output; ``None`` is text.
        hooks: Callbacks for the events of this agent.
        tool_use_behavior: What happens after tool calls: another model call, or the end of the run.
        reset_tool_choice: Let the model choose freely after it has called a tool.

    Raises:
        TypeError: A field has a wrong type.

    Example:
        agent = Agent(name="Poet", instructions="Answer in haikus.", tools=[get_weather])
        result = await Runner.run(agent, "How is the weather in Paris?")
    """

    name: str
    handoff_description: str | None = None
    tools: list[Tool] = field(default_factory=list)
    mcp_servers: list[MCPServer] = field(default_factory=list)
    mcp_config: MCPConfig = field(default_factory=lambda: MCPConfig())
    instructions: Instructions[TContext] | None = None
    prompt: Prompt | DynamicPromptFunction | None = None
    handoffs: list[Agent[Any] | Handoff[TContext, Any]] = field(default_factory=list)
    model: str | Model | None = None
    model_settings: ModelSettings = cast(ModelSettings, None)
    input_guardrails: list[InputGuardrail[TContext]] = field(default_factory=list)
    output_guardrails: list[OutputGuardrail[TContext]] = field(default_factory=list)
    output_type: type[Any] | AgentOutputSchemaBase | None = None
    hooks: AgentHooks[TContext] | None = None
    tool_use_behavior: ToolUseBehavior = "run_llm_again"
    reset_tool_choice: bool = True
    has_implicit_settings: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"Agent name must be a string, not {type(self.name).__name__}")
        if not self.name:
            raise TypeError("Agent name must not be empty")
        self._check_types()
        if self.model_settings is None:
            self.has_implicit_settings = True
            name = self.model if isinstance(self.model, str) else None
            if name is not None or self.model is None:
                self.model_settings = get_default_model_settings(name)
            else:
                self.model_settings = ModelSettings()
        else:
            self.model_settings = ModelSettings.coerce(self.model_settings)

    def _check_types(self) -> None:
        where = f"Agent {self.name!r}:"
        if not isinstance(self.tools, list):
            raise TypeError(f"{where} tools must be a list, not {type(self.tools).__name__}")
        for tool in self.tools:
            if not isinstance(tool, FunctionTool | CustomTool):
                hint = " (decorate it with @function_tool)" if callable(tool) else ""
                raise TypeError(f"{where} {tool!r} is not a tool{hint}")
        for name in ("handoffs", "input_guardrails", "output_guardrails", "mcp_servers"):
            value = getattr(self, name)
            if not isinstance(value, list):
                raise TypeError(f"{where} {name} must be a list, not {type(value).__name__}")
        for item in self.handoffs:
            if not isinstance(item, Agent | Handoff):
                raise TypeError(
                    f"{where} {item!r} is not a handoff: give an Agent or handoff(agent)"
                )
        for guard in (*self.input_guardrails, *self.output_guardrails):
            kind = InputGuardrail if guard in self.input_guardrails else OutputGuardrail
            if not isinstance(guard, kind):
                what = f"{guard!r} is not an {kind.__name__}"
                raise TypeError(f"{where} {what}: decorate the function")
        if not (self.instructions is None or isinstance(self.instructions, str)) and not callable(
            self.instructions
        ):
            raise TypeError(f"{where} instructions must be a string or a function")
        if not (self.hooks is None or isinstance(self.hooks, AgentHooksBase)):
            raise TypeError(f"{where} hooks must be AgentHooks, not {type(self.hooks).__name__}")
        if not (self.model is None or isinstance(self.model, str | Model)):
            raise TypeError(f"{where} model must be a name or a Model object, not {self.model!r}")
        behavior = self.tool_use_behavior
        if isinstance(behavior, str):
            if behavior not in ("run_llm_again", "stop_on_first_tool"):
                raise TypeError(
                    f"{where} tool_use_behavior {behavior!r} is unknown; use 'run_llm_again', "
                    "'stop_on_first_tool', {'stop_at_tool_names': [...]} or a function"
                )
        elif isinstance(behavior, Mapping):
            if set(behavior) != {"stop_at_tool_names"}:
                raise TypeError(f"{where} tool_use_behavior must have the key stop_at_tool_names")
        elif not callable(behavior):
            raise TypeError(f"{where} tool_use_behavior must be a string, dict or function")

    def clone(self, **changes: Any) -> Agent[TContext]:
        """Copy the agent with some fields changed.

        Args:
            changes: New values by the name of the field. The copy shares all other values, also
                lists, with this agent.

        Returns:
            The copy.
        """
        if "model_settings" not in changes and self.has_implicit_settings:
            changes["model_settings"] = None  # derived again from the clone's model
        return dataclasses.replace(self, **changes)

    def as_tool(
        self,
        tool_name: str | None,
        tool_description: str | None,
        custom_output_extractor: Any | None = None,
        is_enabled: Any = True,
        on_stream: Any | None = None,
        run_config: Any | None = None,
        max_turns: int | None = None,
        hooks: Any | None = None,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        session: Any | None = None,
        failure_error_function: Any = default_tool_error_function,
        needs_approval: Any = False,
        parameters: type[Any] | None = None,
        input_builder: Any | None = None,
        include_input_schema: bool = False,
        on_stream_max_pending_events: int | None = 1024,
    ) -> FunctionTool:
        """Make the agent a tool of other agents. Each call is a child run of the caller's run.

        Args:
            tool_name: The name of the tool; ``None`` derives it from the agent's name.
            tool_description: Tells the model when to call the tool.
            custom_output_extractor: Makes the tool's output of the child run's result.
            is_enabled: Whether the model sees the tool: a bool, or a function that decides it in
                each turn.
            on_stream: Called with each event of the child run.
            run_config: Settings of the child run.
            max_turns: How many model calls the child run may make.
            hooks: Callbacks for the events of the child run.
            previous_response_id: The stored response that the child run continues after.
            conversation_id: The stored conversation that the child run continues.
            session: The history of the child run.
            failure_error_function: Makes a text for the model of an error; ``None`` ends the
                caller's run with the error.
            needs_approval: Whether a person must approve a call: a bool, or a function.
            parameters: A type with the tool's parameters; ``None`` is one text.
            input_builder: Makes the child run's input of these parameters.
            include_input_schema: Show the schema of the parameters to the child run.
            on_stream_max_pending_events: How many events may wait for ``on_stream``; ``None``
                removes the limit.

        Returns:
            The tool.

        Example:
            writer = Agent(name="Writer", tools=[researcher.as_tool("research", "Looks up facts.")])
        """
        from sandstream.agent_tool import agent_tool

        return agent_tool(
            self,
            tool_name=tool_name,
            tool_description=tool_description,
            custom_output_extractor=custom_output_extractor,
            is_enabled=is_enabled,
            on_stream=on_stream,
            run_config=run_config,
            max_turns=max_turns,
            hooks=hooks,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            session=session,
            failure_error_function=failure_error_function,
            needs_approval=needs_approval,
            parameters=parameters,
            input_builder=input_builder,
            include_input_schema=include_input_schema,
            on_stream_max_pending_events=on_stream_max_pending_events,
        )

    async def get_system_prompt(self, run_context: RunContextWrapper[TContext]) -> str | None:
        """The instructions of a turn.

        Args:
            run_context: The context of the run, which is passed on if ``instructions`` is a
                function.

        Returns:
            The text; ``None`` if the agent has no instructions.

        Raises:
            TypeError: The function does not take exactly two arguments.
        """
        if self.instructions is None or isinstance(self.instructions, str):
            return self.instructions
        count = len(inspect.signature(self.instructions).parameters)
        if count != 2:
            raise TypeError(
                f"Agent {self.name!r}: the instructions function must take exactly 2 arguments "
                f"(context, agent), but it takes {count}"
            )
        text = self.instructions(run_context, self)
        return await text if inspect.isawaitable(text) else text

    async def get_prompt(self, run_context: RunContextWrapper[TContext]) -> Prompt | None:
        """The stored prompt of a turn.

        Args:
            run_context: The context of the run, which is passed on if ``prompt`` is a function.

        Returns:
            The prompt; ``None`` if the agent has none.
        """
        if self.prompt is None or not callable(self.prompt):
            return self.prompt
        prompt = self.prompt(GenerateDynamicPromptData(run_context, self))
        return await prompt if inspect.isawaitable(prompt) else prompt

    async def get_mcp_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """The tools of the agent's MCP servers, as these list them now.

        Args:
            run_context: The context of the run, which the servers' tool filters receive.
        """
        if not self.mcp_servers:
            return []
        from sandstream.mcp.agent_tools import list_mcp_tools

        return await list_mcp_tools(self, run_context)

    async def get_all_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """The tools that are enabled now.

        Args:
            run_context: The context of the run, which ``is_enabled`` functions and tool filters
                receive.

        Returns:
            The tools of the MCP servers, then the agent's own.
        """
        own = [tool for tool in self.tools if await is_tool_enabled(tool, run_context, self)]
        return [*await self.get_mcp_tools(run_context), *own]


async def is_tool_enabled(
    tool: Tool, run_context: RunContextWrapper[Any], agent: Agent[Any]
) -> bool:
    if isinstance(tool, CustomTool):
        return True
    enabled = tool.is_enabled
    if isinstance(enabled, bool):
        return enabled
    result = enabled(run_context, agent)
    return bool(await result if inspect.isawaitable(result) else result)
