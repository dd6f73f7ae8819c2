"""Asks the user's model object for a turn, in the process that has the object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.harness.deltas import DeltaSink
from sandstream_actors.model.responses_answer import PRELUDE
from sandstream_actors.model.vendor_types import plain
from sandstream_actors.run.model_request import build_request, seen_upto
from sandstream_actors.run.state import RunState
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import CallRequested, ModelAnswered, Prepared, TokenUsage
from sandstream_bus.wire.specs import NO_JSON

from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.retry_policy import with_policy
from sandstream._wire.compile import handoffs_of, output_schema_of, settings_of
from sandstream.agent import Agent, Tool
from sandstream.exceptions import ModelBehaviorError, ModelTimeoutError
from sandstream.handoffs.handoff import Handoff
from sandstream.items import ModelResponse
from sandstream.model_settings import ModelSettings
from sandstream.models.interface import Model, ModelTracing
from sandstream.models.openai_provider import NamedModels, SeamModel
from sandstream.retry import ModelRetrySettings
from sandstream.run_config import RunConfig
from sandstream.usage import InputTokensDetails, OutputTokensDetails, Usage

_POSITIONAL = (
    "system_instructions",
    "input",
    "model_settings",
    "tools",
    "output_schema",
    "handoffs",
    "tracing",
)
"""Arguments that ``stream_response`` of users' models always gets by position."""


class HostedModels:
    """Calls model objects and passes their stream events on. The creator closes it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._by_name = NamedModels()

    async def aclose(self) -> None:
        await self._by_name.aclose()

    def _find(self, agent: Agent[Any], config: RunConfig) -> Model:
        """The model object of an agent: its own, or the provider's for its name."""
        model = config.model if config.model is not None else agent.model
        if isinstance(model, Model):
            return model
        return (config.model_provider or self._by_name).get_model(model)

    async def ask(
        self, hosted: HostedRun, state: RunState, prepared: Prepared, call: CallRequested
    ) -> ModelAnswered:
        agent = hosted.agent(call.agent)
        model = self._find(agent, hosted.config)
        request, upto = build_request(state, prepared), seen_upto(state, prepared)
        disabled = set(prepared.disabled_tools)
        settings = ModelSettings.coerce(request.settings)
        retry = settings_of(agent, hosted.config).retry
        has_policy = retry is not None and retry.policy is not None
        if has_policy:  # the policy decides on retries: the model must not retry by itself
            settings = replace(settings, retry=ModelRetrySettings(max_retries=0))
        if isinstance(model, SeamModel):
            model = model.with_cache_key(request.cache_key)
        arguments: dict[str, Any] = {
            "system_instructions": request.instructions,
            "input": [msgspec.json.decode(item) for item in request.input],
            "model_settings": settings,
            "tools": _tools(hosted, call.agent, disabled),
            "output_schema": output_schema_of(agent),
            "handoffs": _handoffs(hosted, call.agent, disabled),
            "tracing": _tracing(state),
            "previous_response_id": request.previous_response_id,
            "conversation_id": request.conversation_id,
            "prompt": msgspec.json.decode(request.prompt) if request.prompt else None,
        }
        began = time.monotonic()
        asking = _Asking(DeltaSink(self._bus, state.run, call.turn), model, arguments)
        ask = asking.stream if request.stream else asking.whole
        failures = 0
        if retry is not None and has_policy:
            response, failures = await with_policy(
                ask,
                retry,
                stream=request.stream,
                has_shown=lambda: asking.has_shown,
                advise=model.get_retry_advice,
                previous_response_id=request.previous_response_id,
                conversation_id=request.conversation_id,
            )
        else:
            response = await ask()
        if not isinstance(response, ModelResponse):
            raise ModelBehaviorError(
                f"{type(model).__name__}.get_response must return a ModelResponse, not "
                f"{type(response).__name__}"
            )
        return ModelAnswered(
            turn=call.turn,
            agent=call.agent,
            output=[Raw(msgspec.json.encode(item)) for item in response.to_input_items()],
            disabled_tools=sorted(disabled),
            listed_tools=prepared.tools,
            usage=_tokens(response.usage).plus(TokenUsage(requests=failures)),
            response_id=response.response_id,
            request_id=response.request_id,
            raw_usage=Raw(msgspec.json.encode(response.raw_usage))
            if response.raw_usage
            else NO_JSON,
            upto=upto,
            duration_ms=round((time.monotonic() - began) * 1000),
        )


def _tracing(state: RunState) -> ModelTracing:
    """How much a model may itself trace of a call."""
    if not state.options.traced:
        return ModelTracing.DISABLED
    is_open = state.options.trace_contents
    return ModelTracing.ENABLED if is_open else ModelTracing.ENABLED_WITHOUT_DATA


def _handoffs(hosted: HostedRun, key: str, disabled: set[str]) -> list[Handoff[Any, Any]]:
    every = handoffs_of(hosted.working_agent(key))
    return [item for item in every if item.tool_name not in disabled]


def _tools(hosted: HostedRun, key: str, disabled: set[str]) -> list[Tool]:
    """The tools that the model may call; a handoff takes precedence over a tool of its name."""
    taken = {item.tool_name for item in _handoffs(hosted, key, disabled)}
    tools = {tool.name: tool for tool in hosted.tools(key)}
    return [tool for name, tool in tools.items() if name not in disabled and name not in taken]


class _Asking:
    """One turn's call of a model object; notes whether stream events were shown."""

    def __init__(
        self,
        sink: DeltaSink,
        model: Model,
        arguments: dict[str, Any],
    ) -> None:
        self._sink = sink
        self._model = model
        self._arguments = arguments
        self._timeout_s: float | None = arguments["model_settings"].timeout
        self.has_shown = False

    async def whole(self) -> ModelResponse:
        async with self._limit():
            return await self._model.get_response(**self._arguments)

    async def stream(self) -> ModelResponse:
        async with self._limit():
            return await self._stream()

    @asynccontextmanager
    async def _limit(self) -> AsyncIterator[None]:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired() or self._timeout_s is None:
                raise
            raise ModelTimeoutError(self._timeout_s) from None

    async def _stream(self) -> ModelResponse:
        model = self._model
        final: dict[str, Any] | None = None
        arguments = dict(self._arguments)
        leading = [arguments.pop(name) for name in _POSITIONAL]
        async for event in model.stream_response(*leading, **arguments):
            raw = plain(event)
            self.has_shown = self.has_shown or raw.get("type") not in PRELUDE
            self._sink(msgspec.json.encode(raw))
            if raw.get("type") == "response.completed":
                final = plain(raw["response"])
        self._sink.flush()
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
