"""Compiles agents and run settings into what crosses the bus. All checks happen here, before any
effect.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.sandbox_messages import SandboxUse
from sandstream_bus.specs import (
    NO_JSON,
    AgentSpec,
    GraphSpec,
    OutputSpec,
    RunOptions,
    ToolSpec,
    ToolUseSpec,
)

from sandstream.agent import Agent, Tool
from sandstream.agent_output import AgentOutputSchema, AgentOutputSchemaBase
from sandstream.custom_tool import CustomTool
from sandstream.error_handlers import RunErrorHandlers
from sandstream.exceptions import UserError
from sandstream.model_settings import ModelSettings
from sandstream.models.default_models import get_default_model, get_default_model_settings
from sandstream.models.interface import Model
from sandstream.run_config import RunConfig

logger = logging.getLogger(__name__)

_BUILT_IN_CHOICES = {
    "auto",
    "required",
    "none",
    "file_search",
    "web_search",
    "web_search_preview",
    "code_interpreter",
    "image_generation",
    "computer_use_preview",
    "mcp",
}


def output_schema_of(agent: Agent[Any]) -> AgentOutputSchemaBase | None:
    """The agent's structured output; None for plain text."""
    output = agent.output_type
    if output is None or output is str:
        return None
    schema = output if isinstance(output, AgentOutputSchemaBase) else AgentOutputSchema(output)
    return None if schema.is_plain_text() else schema


def tools_of(agent: Agent[Any], config: RunConfig) -> list[Tool]:
    """The agent's tools, one per name: the last one wins, or two are an error, as configured."""
    by_name: dict[str, Tool] = {}
    for tool in agent.tools:
        if tool.name in by_name:
            problem = f"Agent {agent.name!r} has two tools named {tool.name!r}"
            if config.tool_name_collision_policy == "error":
                raise UserError(f"{problem}: give one of them a name_override")
            logger.warning("%s; the last one wins", problem)
            del by_name[tool.name]
        by_name[tool.name] = tool
    return list(by_name.values())


def compile_graph(
    agent: Agent[Any], config: RunConfig, *, host: str, sandbox: SandboxUse | None = None
) -> GraphSpec:
    """The agent and all that it can reach, as data. ``host`` is the pool of its callables.

    An agent with a ``sandbox`` must be the working one of its run (see sandbox/binding.py).
    """
    if not isinstance(agent, Agent):
        raise TypeError(f"the starting agent must be an Agent, not {type(agent).__name__}")
    return GraphSpec(
        start=agent.name, agents={agent.name: _compile_agent(agent, config, host, sandbox)}
    )


def hosted_by(graph: GraphSpec, pool: str) -> GraphSpec:
    """The same graph with its callables in another pool."""
    agents = {
        name: msgspec.structs.replace(agent, host=pool) for name, agent in graph.agents.items()
    }
    return msgspec.structs.replace(graph, agents=agents)


def with_sandbox(graph: GraphSpec, name: str, sandbox: SandboxUse) -> GraphSpec:
    """The same graph with an agent's sandbox filled in."""
    agent = msgspec.structs.replace(graph.agents[name], sandbox=sandbox)
    return msgspec.structs.replace(graph, agents={**graph.agents, name: agent})


def _compile_agent(
    agent: Agent[Any], config: RunConfig, host: str, sandbox: SandboxUse | None
) -> AgentSpec:
    tools = tools_of(agent, config)
    model = config.model if config.model is not None else agent.model
    schema = output_schema_of(agent)
    static = agent.instructions is None or isinstance(agent.instructions, str)
    prompt = agent.prompt
    settings = settings_of(agent, config)
    has_policy = settings.retry is not None and settings.retry.policy is not None
    hosted = isinstance(model, Model) or config.model_provider is not None or has_policy
    _check_tool_choice(agent, settings, tools)
    return AgentSpec(
        name=agent.name,
        host=host,
        model=model if isinstance(model, str) else ("" if prompt else get_default_model()),
        instructions=agent.instructions if isinstance(agent.instructions, str) else None,
        prompt=NO_JSON if prompt is None or callable(prompt) else _json(prompt, "prompt", agent),
        settings=settings.to_wire(),
        tools=[_tool_spec(tool, in_sandbox=sandbox is not None) for tool in tools],
        output=output_spec(schema) if schema else None,
        tool_use=_tool_use(agent, tools),
        reset_tool_choice=agent.reset_tool_choice,
        dynamic=not static or callable(prompt),
        hosted_model=hosted,
        sandbox=sandbox,
    )


def settings_of(agent: Agent[Any], config: RunConfig) -> ModelSettings:
    """The model settings of an agent in a run."""
    own = agent.model_settings
    model = config.model if config.model is not None else agent.model
    if agent.has_implicit_settings and config.model is not None:
        own = get_default_model_settings(model) if isinstance(model, str) else ModelSettings()
    return own.resolve(config.model_settings)


def tool_definition(tool: Tool) -> Raw:
    """What a model is told of a tool."""
    if isinstance(tool, CustomTool):
        return Raw(msgspec.json.encode(tool.tool_config))
    definition = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.params_json_schema,
        "strict": tool.strict_json_schema,
    }
    return Raw(msgspec.json.encode(definition))


def _tool_spec(tool: Tool, *, in_sandbox: bool) -> ToolSpec:
    if getattr(tool, "needs_approval", False):
        raise UserError(
            f"tool {tool.name!r} has needs_approval, but approvals are not supported yet"
        )
    return ToolSpec(
        name=tool.name,
        definition=tool_definition(tool),
        conditional=not isinstance(tool, CustomTool) and tool.is_enabled is not True,
        at_most_once=not isinstance(tool, CustomTool) and tool.delivery == "at_most_once",
        sandbox=in_sandbox and _is_built_in(tool),
    )


def _is_built_in(tool: Tool) -> bool:
    """A tool of the sandbox as we made it. One that was derived, renamed or given other code is
    the user's own.
    """
    known: str | None = getattr(tool, "sandbox_tool", None)
    if known is None or tool.name != known:
        return False
    ours = type(tool).__module__.startswith("sandstream.sandbox.capabilities.tools.")
    return ours and tool.on_invoke_tool == getattr(tool, "_invoke", None)


def output_spec(schema: AgentOutputSchemaBase) -> OutputSpec:
    """What a model is told of its output's form."""
    return OutputSpec(
        name="final_output",
        schema=Raw(msgspec.json.encode(schema.json_schema())),
        strict=schema.is_strict_json_schema(),
    )


def _tool_use(agent: Agent[Any], tools: list[Tool]) -> ToolUseSpec:
    behavior = agent.tool_use_behavior
    if behavior == "run_llm_again":
        return ToolUseSpec()
    if behavior == "stop_on_first_tool":
        return ToolUseSpec(kind="stop_on_first")
    if isinstance(behavior, Mapping):
        names = list(behavior["stop_at_tool_names"])
        _check_known(agent, tools, names, "stop_at_tool_names")
        return ToolUseSpec(kind="stop_at", names=names)
    return ToolUseSpec(kind="ask_host")


def _check_tool_choice(agent: Agent[Any], settings: ModelSettings, tools: list[Tool]) -> None:
    choice = settings.tool_choice
    if isinstance(choice, str) and choice not in _BUILT_IN_CHOICES:
        _check_known(agent, tools, [choice], "tool_choice")


def _check_known(agent: Agent[Any], tools: list[Tool], names: list[str], where: str) -> None:
    known = [tool.name for tool in tools]
    missing = [name for name in names if name not in known]
    if missing:
        raise UserError(
            f"Agent {agent.name!r}: {where} names {', '.join(map(repr, missing))}, "
            f"but its tools are {', '.join(known) or 'none'}"
        )


def _json(value: Any, what: str, agent: Agent[Any]) -> Raw:
    try:
        return Raw(json.dumps(value).encode())
    except (TypeError, ValueError) as error:
        raise UserError(f"Agent {agent.name!r}: {what} is not JSON: {error}") from None


def compile_options(
    config: RunConfig,
    *,
    max_turns: int | None,
    stream: bool = False,
    error_handlers: RunErrorHandlers | None = None,
    previous_response_id: str | None = None,
    conversation_id: str | None = None,
    auto_previous_response_id: bool = False,
) -> RunOptions:
    """Run settings as data."""
    if max_turns is not None and (not isinstance(max_turns, int) or max_turns < 0):
        raise UserError(f"max_turns must be None or a number of turns; it is {max_turns!r}")
    if previous_response_id and conversation_id:
        raise UserError("give previous_response_id or conversation_id, not both")
    if auto_previous_response_id and conversation_id:
        raise UserError("give auto_previous_response_id or conversation_id, not both")
    execution = config.tool_execution
    metadata = config.trace_metadata or {}
    try:
        msgspec.json.encode(metadata)
    except TypeError as error:
        raise UserError(f"trace_metadata is not JSON: {error}") from None
    return RunOptions(
        max_turns=max_turns,
        stream=stream,
        filters_input=config.call_model_input_filter is not None,
        handled_errors=sorted(name for name, handler in (error_handlers or {}).items() if handler),
        tool_not_found=config.tool_not_found_behavior,
        max_tool_concurrency=execution.max_function_tool_concurrency if execution else None,
        previous_response_id=previous_response_id,
        conversation_id=conversation_id,
        auto_previous_response_id=auto_previous_response_id,
        reasoning_ids=config.reasoning_item_id_policy,
        workflow_name=config.workflow_name,
        group_id=config.group_id,
        metadata=metadata,
    )


def compile_input(input: Any) -> list[Raw]:
    """A user's input as raw items."""
    if isinstance(input, str):
        return [Raw(msgspec.json.encode({"content": input, "role": "user"}))]
    if not isinstance(input, list | tuple):
        raise UserError(
            f"input must be a string or a list of input items, not {type(input).__name__}"
        )
    from sandstream_actors.model.vendor_types import plain

    items: list[Raw] = []
    for index, item in enumerate(input):
        value = plain(item)
        if not isinstance(value, Mapping):
            raise UserError(f"input[{index}] must be an item (a dict), not {type(item).__name__}")
        try:
            items.append(Raw(msgspec.json.encode(value)))
        except TypeError as error:
            raise UserError(f"input[{index}] is not JSON: {error}") from None
    return items
