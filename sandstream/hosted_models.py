"""Asks a model object of the user for a turn, in the process that has it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.model.vendor_types import plain
from sandstream_actors.model_request import build_request
from sandstream_actors.run_state import RunState
from sandstream_bus.messages import CallRequested, ModelAnswered, TokenUsage
from sandstream_bus.specs import NO_JSON
from sandstream_bus.subjects import RunId

from sandstream.agent import Agent
from sandstream.exceptions import ModelBehaviorError
from sandstream.graph import output_schema_of, tools_of
from sandstream.items import ModelResponse
from sandstream.model_settings import ModelSettings
from sandstream.models.interface import Model, ModelTracing
from sandstream.run_config import RunConfig
from sandstream.usage import InputTokensDetails, OutputTokensDetails, Usage
from sandstream.user_code import HostedRun

_POSITIONAL = (
    "system_instructions",
    "input",
    "model_settings",
    "tools",
    "output_schema",
    "handoffs",
    "tracing",
)
"""What users' ``stream_response`` has always been called with by position."""

PublishDelta = Callable[[RunId, int, int, bytes], Awaitable[None]]
"""(run, turn, number, stream event as JSON)"""


def find_model(agent: Agent[Any], config: RunConfig) -> Model:
    """The model object of an agent: its own, or the provider's for its name."""
    model = config.model if config.model is not None else agent.model
    if isinstance(model, Model):
        return model
    assert config.model_provider is not None
    return config.model_provider.get_model(model)


class HostedModels:
    """Calls model objects; passes their stream events on."""

    def __init__(self, publish_delta: PublishDelta) -> None:
        self._publish_delta = publish_delta

    async def ask(self, hosted: HostedRun, state: RunState, call: CallRequested) -> ModelAnswered:
        agent = hosted.agent(call.agent)
        model = find_model(agent, hosted.config)
        request = build_request(state)
        disabled = set(state.prepared.disabled_tools) if state.prepared else set()
        settings = ModelSettings.coerce(request.settings)
        if request.cache_key is not None and getattr(model, "takes_cache_key", False):
            key = {"prompt_cache_key": request.cache_key}
            settings = replace(settings, extra_args={**key, **(settings.extra_args or {})})
        arguments: dict[str, Any] = {
            "system_instructions": request.instructions,
            "input": [msgspec.json.decode(item) for item in request.input],
            "model_settings": settings,
            "tools": [tool for tool in tools_of(agent, hosted.config) if tool.name not in disabled],
            "output_schema": output_schema_of(agent),
            "handoffs": [],
            "tracing": ModelTracing.DISABLED,
            "previous_response_id": request.previous_response_id,
            "conversation_id": request.conversation_id,
            "prompt": msgspec.json.decode(request.prompt) if request.prompt else None,
        }
        began = time.monotonic()
        if request.stream:
            response = await self._stream(model, arguments, state.run, call.turn)
        else:
            response = await model.get_response(**arguments)
        if not isinstance(response, ModelResponse):
            raise ModelBehaviorError(
                f"{type(model).__name__}.get_response must return a ModelResponse, not "
                f"{type(response).__name__}"
            )
        return ModelAnswered(
            turn=call.turn,
            agent=call.agent,
            output=[Raw(msgspec.json.encode(item)) for item in response.to_input_items()],
            usage=_tokens(response.usage),
            response_id=response.response_id,
            request_id=response.request_id,
            raw_usage=Raw(msgspec.json.encode(response.raw_usage))
            if response.raw_usage
            else NO_JSON,
            duration_ms=round((time.monotonic() - began) * 1000),
        )

    async def _stream(
        self,
        model: Model,
        arguments: dict[str, Any],
        run: RunId,
        turn: int,
    ) -> ModelResponse:
        final: dict[str, Any] | None = None
        number = 0
        leading = [arguments.pop(name) for name in _POSITIONAL]
        async for event in model.stream_response(*leading, **arguments):
            raw = plain(event)
            number += 1
            await self._publish_delta(run, turn, number, msgspec.json.encode(raw))
            if raw.get("type") == "response.completed":
                final = plain(raw["response"])
        if final is None:
            raise ModelBehaviorError(
                f"{type(model).__name__}.stream_response ended without response.completed"
            )
        return ModelResponse(
            [plain(item) for item in final.get("output", [])],
            _usage(plain(final.get("usage")) or {}),
            final.get("id"),
        )


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        requests=1,
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        total_tokens=usage.get("total_tokens", 0),
        input_tokens_details=InputTokensDetails(
            cached_tokens=(usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
        ),
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=(usage.get("output_tokens_details") or {}).get("reasoning_tokens", 0)
        ),
    )


def _tokens(usage: Usage) -> TokenUsage:
    return TokenUsage(
        requests=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        cache_write_tokens=usage.input_tokens_details.cache_write_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
    )
