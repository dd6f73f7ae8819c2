"""Compiles agents and run settings into messages. Does all checks, before any effect."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import Raw
from sandstream_bus.wire.error_text import error_text
from sandstream_bus.wire.memory_specs import MemoryUse, PhaseModel
from sandstream_bus.wire.sandboxes import SandboxUse
from sandstream_bus.wire.specs import (
    NO_JSON,
    AgentSpec,
    ChildGraph,
    ChildSpec,
    GraphSpec,
    HandoffSpec,
    ToolSpec,
    ToolUseSpec,
)

from sandstream._surface.agent_graph import Circle, Reach, reach
from sandstream._surface.definitions import output_spec, tool_definition
from sandstream._surface.hook_points import points_of
from sandstream._wire.options import compile_options
from sandstream.agent import Agent, Tool
from sandstream.agent_output import AgentOutputSchema, AgentOutputSchemaBase
from sandstream.agent_tool import AgentTool
from sandstream.custom_tool import CustomTool
from sandstream.deployed_agent import DeployedAgent
from sandstream.exceptions import UserError
from sandstream.handoffs.handoff import Handoff, handoff
from sandstream.model_settings import ModelSettings
from sandstream.models.default_models import get_default_model, get_default_model_settings
from sandstream.models.interface import Model
from sandstream.run_config import RunConfig
from sandstream.tool import default_tool_error_function

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
    """The agent's tools, one per name. Of two with one name the last wins, or this raises."""
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


@dataclass
class Workplaces:
    """The sandbox agents of a run in their working form, with the tools of their sandbox."""

    working: dict[str, Agent[Any]] = field(default_factory=dict)
    uses: dict[str, SandboxUse] = field(default_factory=dict)
    memories: dict[str, MemoryUse] = field(default_factory=dict)


def compile_graph(
    agent: Agent[Any],
    config: RunConfig,
    *,
    host: str,
    found: Reach | None = None,
    hooks: Any | None = None,
    places: Workplaces | None = None,
    child_places: Mapping[str, Workplaces] | None = None,
) -> GraphSpec:
    """The agent and everything that it can reach, as data. ``host`` is the pool of its callables.

    ``places``: its sandbox agents in their working form (see sandbox/bound_agent.py), by key;
    ``child_places``: the same for agents that are used as tools.
    """
    found = found or reach(agent, config)
    children: dict[str, ChildGraph] = {}
    for key, circle in found.children.items():
        assert circle.tool is not None
        own = (child_places or {}).get(key) or Workplaces()
        agents = _compile_circle(found, circle, host, circle.tool.run_hooks, own)
        children[key] = ChildGraph(start=circle.start, agents=agents)
    return GraphSpec(
        start=found.own.start,
        agents=_compile_circle(found, found.own, host, hooks, places or Workplaces()),
        children=children,
    )


def _compile_circle(
    found: Reach, circle: Circle, host: str, hooks: Any | None, places: Workplaces
) -> dict[str, AgentSpec]:
    return {key: _compile_agent(found, circle, key, host, hooks, places) for key in circle.agents}


def _compile_agent(
    found: Reach, circle: Circle, key: str, host: str, hooks: Any | None, places: Workplaces
) -> AgentSpec:
    public = circle.agents[key]
    if isinstance(public, DeployedAgent):
        return AgentSpec(name=public.name, host="", model="", remote=True)
    agent = places.working.get(key, public)
    sandbox = places.uses.get(key)
    config = circle.config
    tools = tools_of(agent, config)
    model = config.model if config.model is not None else agent.model
    schema = output_schema_of(agent)
    static = agent.instructions is None or isinstance(agent.instructions, str)
    prompt = agent.prompt
    settings = settings_of(agent, config)
    has_policy = settings.retry is not None and settings.retry.policy is not None
    hosted = isinstance(model, Model) or config.model_provider is not None or has_policy
    handoffs = handoffs_of(agent)
    _check_collisions(agent, config, {tool.name for tool in tools}, handoffs)
    if not agent.mcp_servers:
        names = [*(tool.name for tool in tools), *(it.tool_name for it in handoffs)]
        _check_tool_choice(agent, settings, names)
    guards = [*agent.input_guardrails, *(config.input_guardrails or [])]
    kinds = {"parallel" if it.run_in_parallel else "blocking" for it in guards}
    points = points_of(hooks, agent.hooks)
    return AgentSpec(
        name=agent.name,
        host=host,
        model=model if isinstance(model, str) else ("" if prompt else get_default_model()),
        instructions=agent.instructions if isinstance(agent.instructions, str) else None,
        prompt=NO_JSON if prompt is None or callable(prompt) else _json(prompt, "prompt", agent),
        settings=settings.to_wire(),
        tools=[
            tool_spec(tool, in_sandbox=sandbox is not None, child=_child(found, circle, tool))
            for tool in tools
        ],
        output=output_spec(schema) if schema else None,
        tool_use=_tool_use(agent, tools),
        reset_tool_choice=agent.reset_tool_choice,
        dynamic=not static or callable(prompt),
        hosted_model=hosted,
        sandbox=sandbox,
        memory=places.memories.get(key),
        handoffs=[_handoff_spec(circle, it, points) for it in handoffs],
        lists_tools=bool(agent.mcp_servers),
        guards=sorted(kinds),  # type: ignore[arg-type]
        guards_announced="parallel" in kinds,
        checks_output=bool(agent.output_guardrails or config.output_guardrails),
        hooks=points,
    )


def handoffs_of(agent: Agent[Any]) -> list[Handoff[Any, Any]]:
    """The agent's handoffs, one per tool name: the last one wins."""
    made = [it if isinstance(it, Handoff) else handoff(it) for it in agent.handoffs]
    return list({it.tool_name: it for it in made}.values())


def _check_collisions(
    agent: Agent[Any], config: RunConfig, tools: set[str], handoffs: Sequence[Handoff[Any, Any]]
) -> None:
    """A handoff takes precedence over a tool of its name, or raises, as configured."""
    for item in handoffs:
        if item.tool_name in tools and config.tool_name_collision_policy == "error":
            raise UserError(
                f"Agent {agent.name!r} has a tool and a handoff named {item.tool_name!r}: give one "
                "of them another name (name_override, tool_name_override)"
            )


def handoff_definition(item: Handoff[Any, Any]) -> Raw:
    """The definition of a handoff for the model."""
    definition = {
        "type": "function",
        "name": item.tool_name,
        "description": item.tool_description,
        "parameters": item.input_json_schema,
        "strict": item.strict_json_schema,
    }
    return Raw(msgspec.json.encode(definition))


def _handoff_spec(circle: Circle, item: Handoff[Any, Any], points: Sequence[str]) -> HandoffSpec:
    config = circle.config
    nests = config.nest_handoff_history
    if item.nest_handoff_history is not None:
        nests = item.nest_handoff_history
    filters = item.input_filter is not None or config.handoff_input_filter is not None
    return HandoffSpec(
        name=item.tool_name,
        definition=handoff_definition(item),
        agent=circle.key_of(item.agent) if item.agent is not None else "",
        conditional=item.is_enabled is not True,
        ask_host=item.has_callback or filters or nests or "handoff" in points,
    )


def _child(found: Reach, circle: Circle, tool: Tool) -> ChildSpec | None:
    if not isinstance(tool, AgentTool) or not tool.starts_runs:
        return None
    key = found.child_key(tool, circle.config)
    config = found.children[key].config
    session = tool.session
    options = compile_options(
        config,
        max_turns=tool.max_turns,
        previous_response_id=tool.previous_response_id,
        conversation_id=tool.conversation_id,
        session=session,
    )
    if tool.run_config is None:  # it gets a share of the caller's budget
        options = msgspec.structs.replace(options, budget=None)
    structured = output_schema_of(tool.agent) is not None
    on_failure = tool.on_failure
    failure: Literal["tell", "raise", "host"] = "host"
    if on_failure is None:
        failure = "raise"
    elif on_failure is default_tool_error_function:
        failure = "tell"
    return ChildSpec(
        graph=key,
        options=options,
        input="host" if tool.makes_input else "plain",
        output="host" if tool.makes_output or structured else "plain",
        failure=failure,
        watch=tool.on_stream is not None,
        announced=tool.on_stream is not None,
    )


def hosted_by(graph: GraphSpec, pool: str) -> GraphSpec:
    """The same graph with its callables in another pool."""
    children = {
        key: msgspec.structs.replace(child, agents=_moved(child.agents, pool))
        for key, child in graph.children.items()
    }
    return msgspec.structs.replace(graph, agents=_moved(graph.agents, pool), children=children)


def _moved(agents: Mapping[str, AgentSpec], pool: str) -> dict[str, AgentSpec]:
    return {
        name: agent
        if agent.remote
        else msgspec.structs.replace(agent, host=pool, memory=_moved_memory(agent.memory, pool))
        for name, agent in agents.items()
    }


def _moved_memory(use: MemoryUse | None, pool: str) -> MemoryUse | None:
    if use is None:
        return None
    one, two = (_moved_phase(phase, pool) for phase in (use.phase_one, use.phase_two))
    return msgspec.structs.replace(use, phase_one=one, phase_two=two)


def _moved_phase(phase: PhaseModel, pool: str) -> PhaseModel:
    return msgspec.structs.replace(phase, host=pool) if phase.hosted else phase


def settings_of(agent: Agent[Any], config: RunConfig) -> ModelSettings:
    """The model settings of an agent in a run."""
    own = agent.model_settings
    model = config.model if config.model is not None else agent.model
    if agent.has_implicit_settings and config.model is not None:
        own = get_default_model_settings(model) if isinstance(model, str) else ModelSettings()
    return own.resolve(config.model_settings)


def tool_spec(tool: Tool, *, in_sandbox: bool = False, child: ChildSpec | None = None) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        definition=tool_definition(tool),
        conditional=not isinstance(tool, CustomTool) and tool.is_enabled is not True,
        at_most_once=not isinstance(tool, CustomTool) and tool.delivery == "at_most_once",
        sandbox=in_sandbox and _is_built_in(tool),
        approval=_approval(tool),
        child=child,
    )


def _approval(tool: Tool) -> Literal["never", "always", "ask_host"]:
    needs: object = tool.needs_approval
    if isinstance(tool, CustomTool):
        if tool.on_approval is not None and needs is not False:
            return "ask_host"
        needs = tool.runtime_needs_approval()
    if needs is True:
        return "always"
    if callable(needs):
        return "ask_host"
    if needs is not False:
        raise UserError(
            f"tool {tool.name!r}: needs_approval must be a bool or a function, not {needs!r}"
        )
    return "never"


def _is_built_in(tool: Tool) -> bool:
    """Is it an unchanged tool of the sandbox? A derived or modified one is the user's own."""
    known: str | None = getattr(tool, "sandbox_tool", None)
    if known is None or tool.name != known:
        return False
    ours = type(tool).__module__.startswith("sandstream.sandbox.capabilities.tools.")
    return ours and tool.on_invoke_tool == getattr(tool, "_invoke", None)


def _tool_use(agent: Agent[Any], tools: list[Tool]) -> ToolUseSpec:
    behavior = agent.tool_use_behavior
    if behavior == "run_llm_again":
        return ToolUseSpec()
    if behavior == "stop_on_first_tool":
        return ToolUseSpec(kind="stop_on_first")
    if isinstance(behavior, Mapping):
        names = list(behavior["stop_at_tool_names"])
        if not agent.mcp_servers:
            _check_known(agent, [tool.name for tool in tools], names, "stop_at_tool_names")
        return ToolUseSpec(kind="stop_at", names=names)
    return ToolUseSpec(kind="ask_host")


def _check_tool_choice(agent: Agent[Any], settings: ModelSettings, known: list[str]) -> None:
    choice = settings.tool_choice
    if isinstance(choice, str) and choice not in _BUILT_IN_CHOICES:
        _check_known(agent, known, [choice], "tool_choice")


def _check_known(agent: Agent[Any], known: list[str], names: list[str], where: str) -> None:
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
        raise UserError(f"Agent {agent.name!r}: {what} is not JSON: {error_text(error)}") from None
