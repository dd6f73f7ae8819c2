"""Models of OpenAI-compatible endpoints as objects, for programs that bring their own client.

The harness calls models that are given by name. These objects are for programs that pass a client,
a key or a base URL in Python: none of these may cross the bus, so the process that has them calls
the model. The call itself uses the model seam; this module names no vendor type.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw
from sandstream_actors.harness.model_turn import PATIENCE_S
from sandstream_actors.harness.model_turn import error_info as seam_error_info
from sandstream_actors.model import (
    NO_JSON,
    ModelAnswer,
    ModelCallError,
    ModelClient,
    ModelRequest,
    OutputSchema,
    Route,
    routes_from_env,
)
from sandstream_actors.model.client import OnEvent
from sandstream_actors.model.routes import Api
from sandstream_actors.model.vendor_types import plain, typed_event
from sandstream_bus.environment import environment

from sandstream.exceptions import UserError
from sandstream.items import ItemHelpers, ModelResponse, TResponseInputItem
from sandstream.models.default_models import get_default_model
from sandstream.models.defaults import DefaultModels, current_defaults
from sandstream.models.interface import Model, ModelProvider, ModelTracing

if TYPE_CHECKING:
    from sandstream.agent_output import AgentOutputSchemaBase
    from sandstream.model_settings import ModelSettings
    from sandstream.tool import FunctionTool


class _Caller(Protocol):
    """The interface of the model seam for a model object."""

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer: ...

    async def aclose(self) -> None: ...


class _Endpoint:
    """Model clients of one route, one per event loop: connections do not outlive their loop."""

    def __init__(self, route: Route, client: Any | None) -> None:
        self._route = route
        self._client = client
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, ModelClient] = (
            WeakKeyDictionary()
        )

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        """One model call. It waits in this process if a rate limit is reached."""
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = ModelClient(
                [self._route], default_client=self._client, unknown_prefix="passthrough"
            )
        retry = request.settings.get("retry") or {}
        may_wait = retry.get("max_retries") != 0
        waited_s, attempt = 0.0, 0
        while True:
            try:
                return await self._by_loop[loop].call(request, on_event)
            except ModelCallError as error:
                if error.kind != "rate_limited" or waited_s >= PATIENCE_S or not may_wait:
                    raise
                attempt += 1
                delay_s = error.retry_after_s or min(0.5 * 2**attempt, 60.0)
                waited_s += delay_s
            await asyncio.sleep(delay_s)

    async def aclose(self) -> None:
        client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


class SeamModel(Model):
    """A model behind the seam. ``openai_client`` is an ``AsyncOpenAI``; its creator closes it."""

    api: ClassVar[Api]
    prefix: ClassVar[str] = "openai/"
    """The seam's own prefix: the rest of the name goes unchanged to the endpoint."""
    _cache_key: str | None = None

    def __init__(self, model: str, openai_client: Any) -> None:
        self.model = model
        self._is_explicit = True
        self._endpoint: _Caller = _Endpoint(Route(prefix="openai", api=self.api), openai_client)

    @classmethod
    def at(cls, endpoint: _Caller, model: str | None) -> SeamModel:
        """A provider's model; None: the default model.

        Args:
            endpoint: Makes the calls. It belongs to the provider, which closes it.
            model: The name of the model; ``None`` is the default model.
        """
        self = cls.__new__(cls)
        self.model = model or get_default_model()
        self._is_explicit = bool(model)
        self._endpoint = endpoint
        return self

    def with_cache_key(self, key: str | None) -> SeamModel:
        """The same model with the cache key of one run.

        Args:
            key: Sent with each request, so that requests of one run meet the same prompt cache;
                ``None`` sends no key.
        """
        copied = copy.copy(self)
        copied._cache_key = key
        return copied

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[FunctionTool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any | None = None,
    ) -> ModelResponse:
        request = self._request(
            system_instructions, input, model_settings, tools, output_schema, prompt
        )
        request = msgspec.structs.replace(
            request, previous_response_id=previous_response_id, conversation_id=conversation_id
        )
        return _response(await self._ask(request))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[FunctionTool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any | None = None,
    ) -> AsyncIterator[Any]:
        request = self._request(
            system_instructions, input, model_settings, tools, output_schema, prompt
        )
        request = msgspec.structs.replace(
            request,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            stream=True,
        )
        events: asyncio.Queue[bytes | None] = asyncio.Queue()
        asking = asyncio.ensure_future(self._ask(request, events.put_nowait))
        asking.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield typed_event(msgspec.json.decode(event))
            await asking
        finally:
            asking.cancel()

    async def close(self) -> None:
        await self._endpoint.aclose()

    async def _ask(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        try:
            return await self._endpoint.call(request, on_event)
        except ModelCallError as error:
            from sandstream._surface.outcomes import exception_of_error

            raise exception_of_error(seam_error_info(error), "") from error

    def _request(
        self,
        instructions: str | None,
        input: str | list[TResponseInputItem],
        settings: ModelSettings,
        tools: list[FunctionTool],
        schema: AgentOutputSchemaBase | None,
        prompt: Any | None,
    ) -> ModelRequest:
        from sandstream._surface.definitions import output_spec, tool_definition

        output = None if schema is None or schema.is_plain_text() else output_spec(schema)
        # a stored prompt names its own model
        name = f"{self.prefix}{self.model}" if self._is_explicit or prompt is None else ""
        return ModelRequest(
            model=name,
            input=[_json(item) for item in ItemHelpers.input_to_new_input_list(input)],
            instructions=instructions,
            tools=[tool_definition(tool) for tool in tools],
            settings=settings.to_wire(),
            output_schema=None
            if output is None
            else OutputSchema(name=output.name, schema=output.schema, strict=output.strict),
            prompt=NO_JSON if prompt is None else _json(prompt),
            cache_key=self._cache_key,
        )


class OpenAIResponsesModel(SeamModel):
    """A model of an endpoint with the Responses API.

    Args:
        model: The name of the model.
        openai_client: An ``AsyncOpenAI``. The caller closes it.

    Example:
        model = OpenAIResponsesModel("gpt-5.5", AsyncOpenAI(base_url="http://localhost:8000/v1"))
        agent = Agent(name="Assistant", model=model)
    """

    api = "responses"


class OpenAIChatCompletionsModel(SeamModel):
    """A model of an endpoint with Chat Completions.

    Args:
        model: The name of the model.
        openai_client: An ``AsyncOpenAI``. The caller closes it.

    Example:
        model = OpenAIChatCompletionsModel("llama", AsyncOpenAI(base_url="http://localhost:8000/v1"))
        agent = Agent(name="Assistant", model=model)
    """

    api = "chat"


class OpenAIProvider(ModelProvider):
    """Models of one endpoint, by name.

    Settings that are not given come from ``set_default_openai_*`` or the environment when a model
    is first requested.

    Args:
        api_key: The key.
        base_url: The URL.
        openai_client: An ``AsyncOpenAI``, instead of the other settings. The caller closes it.
        organization: The organization.
        project: The project.
        use_responses: Use the Responses API instead of Chat Completions.

    Raises:
        UserError: A client is combined with settings that the client itself has.

    Example:
        local = OpenAIProvider(base_url="http://localhost:8000/v1", api_key="none")
        config = RunConfig(model_provider=local)
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        openai_client: Any | None = None,
        organization: str | None = None,
        project: str | None = None,
        use_responses: bool | None = None,
    ) -> None:
        own = {
            "api_key": api_key,
            "base_url": base_url,
            "organization": organization,
            "project": project,
        }
        given = {name: value for name, value in own.items() if value is not None}
        if openai_client is not None and given:
            raise UserError(
                f"OpenAIProvider: give openai_client or {', '.join(given)}, not both: the client "
                "has its own"
            )
        self._given = given
        self._client = openai_client
        self._use_responses = use_responses
        self._endpoint: _Endpoint | None = None
        self._api: Api = "responses"

    def get_model(self, model_name: str | None) -> Model:
        """Find a model.

        Args:
            model_name: The name; ``None`` is the default model.

        Returns:
            The model.
        """
        if self._endpoint is None:
            self._endpoint, self._api = self._open()
        kind = OpenAIResponsesModel if self._api == "responses" else OpenAIChatCompletionsModel
        return kind.at(self._endpoint, model_name)

    async def aclose(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.aclose()

    def _open(self) -> tuple[_Endpoint, Api]:
        defaults = current_defaults()
        route = routes_from_env(environment())[0]
        if defaults.key is not None:
            route = dataclasses.replace(route, api_key=defaults.key)
        api = defaults.api or route.api
        if self._use_responses is not None:
            api = "responses" if self._use_responses else "chat"
        client = self._client if self._client is not None or self._given else defaults.client
        return _Endpoint(dataclasses.replace(route, api=api, **self._given), client), api


class _NamedModel(SeamModel):
    """A model that the defaults and the environment resolve by its full name, with the prefix."""

    prefix = ""


class NamedModels(ModelProvider):
    """Models by name, called as the harness would, for runs that call them in this process."""

    def __init__(self) -> None:
        self._models = DefaultModels()

    def get_model(self, model_name: str | None) -> Model:
        return _NamedModel.at(self._models, model_name)

    async def aclose(self) -> None:
        await self._models.aclose()


def _response(answer: ModelAnswer) -> ModelResponse:
    from sandstream.usage import usage_of

    return ModelResponse(
        [msgspec.json.decode(item) for item in answer.output],
        usage_of(answer.usage),
        answer.response_id,
        answer.request_id,
        msgspec.json.decode(answer.raw_usage) if answer.raw_usage else None,
    )


def _json(value: Any) -> Raw:
    return Raw(msgspec.json.encode(plain(value)))
