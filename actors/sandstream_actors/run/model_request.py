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
    """The request of the due turn, with the tool host's preparation.

    Args:
        state: The run.
        prepared: The tool host's newest preparation; by default the one in the run's log.
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
    """The last event that the request includes: later events are for the next request."""
    prepared = prepared or state.prepared
    return (prepared.upto if prepared and prepared.input is not None else 0) or state.last_seq


def _definitions(state: RunState, prepared: Prepared) -> list[Raw]:
    """The tools offered to the model: those listed for the turn, the agent's own, and handoffs.

    A handoff has priority over a tool of the same name, the agent's own tool over a listed one.
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
    """The key that this request shares with requests of the same beginning, for the endpoint's
    cache.

    The id of a conversation or group belongs to the caller and is sent only as a digest.
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
