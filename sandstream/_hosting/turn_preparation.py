"""The parts of a turn's model request that the user's code decides."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import States
from sandstream_bus.wire.messages import CallRequested, Prepared
from sandstream_bus.wire.specs import NO_JSON

from sandstream._hosting import hooks
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.outcomes import encode
from sandstream._hosting.tools.mcp import list_for
from sandstream._hosting.values import resolved
from sandstream._wire.compile import handoffs_of, tool_spec, tools_of
from sandstream.agent import Agent, Tool, is_tool_enabled
from sandstream.exceptions import UserError
from sandstream.items import TResponseInputItem
from sandstream.mcp.agent_tools import is_handoff_enabled
from sandstream.run_config import CallModelData, ModelInputData
from sandstream.usage import usage_of

logger = logging.getLogger(__name__)


async def prepare(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> Prepared:
    """Hooks, instructions, prompt, tools, handoffs and filtered input of the next turn."""
    agent = hosted.agent(call.agent)
    working = hosted.working_agent(call.agent)
    context = hosted.context
    context.usage = usage_of(call.usage)
    context.turn_input = _decoded([*(state.history or []), *state.input])
    if state.agent_is_new:
        await hooks.agent_start(hosted.hooks, agent.hooks, context, agent)
    instructions = await working.get_system_prompt(context)
    prompt = await agent.get_prompt(context)
    disabled = await _disabled(hosted, working, agent)
    listed = await _listed(hosted, call.agent, disabled) if agent.mcp_servers else []
    items: list[TResponseInputItem] = _decoded(state.conversation())
    upto = state.last_seq  # before the filter, which may take long
    filtered: list[Raw] | None = None
    if hosted.config.call_model_input_filter is not None:
        data: CallModelData[Any] = CallModelData(
            ModelInputData(items, instructions), agent, context.context
        )
        changed = await resolved(hosted.config.call_model_input_filter(data))
        if not isinstance(changed, ModelInputData):
            raise UserError(
                f"call_model_input_filter must return ModelInputData, not {type(changed).__name__}"
            )
        items, instructions = changed.input, changed.instructions
        filtered = [encode(item) for item in items]
    await hooks.llm_start(hosted.hooks, agent.hooks, context, agent, instructions, items)
    return Prepared(
        instructions=instructions,
        prompt=encode(prompt) if prompt else NO_JSON,
        disabled_tools=disabled,
        input=filtered,
        upto=upto if filtered is not None else 0,
        tools=[tool_spec(tool) for tool in listed],
    )


def _decoded(items: list[Raw]) -> list[Any]:
    return [msgspec.json.decode(item) for item in items]


async def _disabled(hosted: HostedRun, working: Agent[Any], agent: Agent[Any]) -> list[str]:
    """The names of tools and handoffs that the model does not see in this turn."""
    context = hosted.context
    tools = {
        tool.name: await is_tool_enabled(tool, context, agent)
        for tool in tools_of(working, hosted.config)
    }
    handoffs = {
        item.tool_name: await is_handoff_enabled(item, context, agent)
        for item in handoffs_of(working)
    }
    return [name for name, enabled in {**tools, **handoffs}.items() if not enabled]


async def _listed(hosted: HostedRun, key: str, disabled: list[str]) -> list[Tool]:
    """The tools of the agent's MCP servers, without those whose name is taken."""
    working = hosted.working_agent(key)
    taken = {tool.name for tool in tools_of(working, hosted.config)}
    taken |= {item.tool_name for item in handoffs_of(working)}
    taken -= set(disabled)
    free: list[Tool] = []
    for tool in await list_for(hosted, key):
        if tool.name not in taken:
            free.append(tool)
            continue
        problem = f"Agent {working.name!r} and one of its MCP servers both have {tool.name!r}"
        if hosted.config.tool_name_collision_policy == "error":
            raise UserError(
                f"{problem}: set mcp_config={{'include_server_in_tool_names': True}}, or rename "
                "the agent's own"
            )
        logger.warning("%s; the agent's own is used", problem)
    return free
