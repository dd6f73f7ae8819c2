"""Builds a turn's model request from the run's state. Pure; used by the harness and by the tool
host.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec import Raw
from sandstream_bus.wire.messages import Prepared

from sandstream_actors.model import ModelRequest, OutputSchema
from sandstream_actors.run.state import RunState


def build_request(state: RunState, prepared: Prepared | None = None) -> ModelRequest:
    """The request of the turn that is due, with what the tool host prepared for it.

    Args:
        state: The run.
        prepared: What the tool host has just prepared. Left out: what the run's log has.
    """
    agent = state.agent
    options = state.options
    prepared = prepared or state.prepared
    instructions = agent.instructions
    prompt = agent.prompt
    items = state.conversation()
    if prepared is not None:
        instructions = prepared.instructions
        prompt = prepared.prompt
        if prepared.input is not None:
            items = prepared.input
    output = agent.output
    return ModelRequest(
        model=agent.model,
        instructions=instructions,
        input=items,
        tools=_definitions(state, prepared or Prepared()),
        settings=_settings(state),
        output_schema=(
            OutputSchema(name=output.name, schema=output.schema, strict=output.strict)
            if output
            else None
        ),
        previous_response_id=state.response_id if _chains_responses(state) else None,
        conversation_id=options.conversation_id,
        prompt=prompt,
        stream=options.stream,
        cache_key=_cache_key(state),
    )


def seen_upto(state: RunState, prepared: Prepared | None = None) -> int:
    """The last event that the request takes into account: what comes later is for the next one."""
    prepared = prepared or state.prepared
    return (prepared.upto if prepared and prepared.input is not None else 0) or state.last_seq


def _definitions(state: RunState, prepared: Prepared) -> list[Raw]:
    """What the model may call: tools that were listed for the turn, the agent's own, handoffs.

    A handoff goes before a tool of its name, the agent's own tool before a listed one.
    """
    agent = state.agent
    disabled = set(prepared.disabled_tools)
    handoffs = {it.name: it.definition for it in agent.handoffs if it.name not in disabled}
    tools = {
        it.name: it.definition
        for it in (*prepared.tools, *agent.tools)
        if it.name not in disabled and it.name not in handoffs
    }
    return [*tools.values(), *handoffs.values()]


def _cache_key(state: RunState) -> str:
    """What this request shares with others that begin alike, so that the endpoint finds its cache.

    A conversation's or group's id is the caller's own and leaves only as a digest.
    """
    options = state.options
    for kind, name in (("conversation", options.conversation_id), ("group", options.group_id)):
        if name:
            return f"sandstream:{kind}:{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return f"sandstream:run:{state.run}"


def _chains_responses(state: RunState) -> bool:
    options = state.options
    return bool(options.previous_response_id or options.auto_previous_response_id)


def _settings(state: RunState) -> dict[str, Any]:
    """The agent's settings; a forced tool choice is dropped once the agent has used a tool."""
    agent = state.agent
    if agent.reset_tool_choice and state.agent_name in state.agents_with_tool_use:
        return {key: value for key, value in agent.settings.items() if key != "tool_choice"}
    return agent.settings
