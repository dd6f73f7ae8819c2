"""What a turn's model request is made of, where the user's code has a say in it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import (
    CallRequested,
    Prepared,
)
from sandstream_bus.specs import NO_JSON

from sandstream.agent import is_tool_enabled
from sandstream.exceptions import UserError
from sandstream.graph import tools_of
from sandstream.hosting.hosted_run import HostedRun
from sandstream.hosting.outcomes import encode
from sandstream.hosting.values import resolved
from sandstream.run_config import CallModelData, ModelInputData
from sandstream.run_view import usage_of


async def prepare(
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
        changed = await resolved(hosted.config.call_model_input_filter(data))
        if not isinstance(changed, ModelInputData):
            raise UserError(
                f"call_model_input_filter must return ModelInputData, not {type(changed).__name__}"
            )
        filtered = [encode(item) for item in changed.input]
        instructions = changed.instructions
    return Prepared(
        instructions=instructions,
        prompt=encode(prompt) if prompt else NO_JSON,
        disabled_tools=disabled,
        input=filtered,
    )
