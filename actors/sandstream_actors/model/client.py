"""The model client: one call in, one answer out, for either API of an endpoint.

Owns routing, retries and the time limit of an attempt. Knows nothing of agents, tools or runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sandstream_bus.environment import environment
from sandstream_bus.wire.error_text import named_error

from sandstream_actors.model.chat_answer import read_chat_answer
from sandstream_actors.model.chat_request import chat_call
from sandstream_actors.model.chat_stream import ChatStream
from sandstream_actors.model.interface import ModelAnswer, ModelCallError, ModelRequest, Usage
from sandstream_actors.model.responses_answer import ResponsesStream, read_answer
from sandstream_actors.model.responses_request import responses_call
from sandstream_actors.model.retry import RetryPolicy, Sleep, with_retries
from sandstream_actors.model.routes import Route, UnknownPrefix, resolve, routes_from_env
from sandstream_actors.model.transport import Call, Connection, Received

OnEvent = Callable[[bytes], None]


class ModelClient:
    """Calls models over pooled connections. Its creator closes it with `aclose()`.

    `routes` begins with the default route; without `routes` the environment defines them.
    `default_client` is an `AsyncOpenAI` (or Azure) client for the default route; its owner closes
    it.
    """

    def __init__(
        self,
        routes: Sequence[Route] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        default_client: Any | None = None,
        unknown_prefix: UnknownPrefix = "error",
        retry: RetryPolicy | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._environ = environment(environ)
        self._routes = list(routes) if routes is not None else routes_from_env(self._environ)
        self._unknown_prefix: UnknownPrefix = unknown_prefix
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._connections: dict[str, Connection] = {}
        if default_client is not None:
            default = self._routes[0]
            connection = Connection(default, self._environ, default_client)
            self._connections[default.prefix] = connection

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        """Call a model, with short retries. Raises only `ModelCallError`.

        For a streamed request, `on_event` gets the JSON of each Responses event as it arrives.
        """
        route, model = resolve(request.model, self._routes, self._unknown_prefix)
        connection = self._connection(route)
        call = _encode(request, model, connection)
        policy = self._retry.overridden(request.settings.get("retry"))
        attempt = _Attempt(connection, call, model, request.settings, on_event)
        answer, failures = await with_retries(attempt.run, policy, self._sleep)
        if failures:
            usage = answer.usage.plus(Usage(requests=failures))
            answer = msgspec.structs.replace(answer, usage=usage)
        return answer

    async def aclose(self) -> None:
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.aclose()

    def _connection(self, route: Route) -> Connection:
        connection = self._connections.get(route.prefix)
        if connection is None:
            connection = Connection(route, self._environ)
            self._connections[route.prefix] = connection
        return connection


def _encode(request: ModelRequest, model: str, connection: Connection) -> Call:
    if not connection.is_official:
        request = msgspec.structs.replace(request, cache_key=None)
    try:
        if connection.route.api == "chat":
            return chat_call(request, model, official=connection.is_official)
        return responses_call(request, model)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError) as error:
        # Items, tools and settings come from users; one of them is invalid.
        raise ModelCallError(
            "misconfigured",
            f"The request for model {request.model!r} cannot be built: {named_error(error)}",
            code="bad_request",
        ) from error


class _Attempt:
    """The attempts of one call, and what they have shown to the caller so far."""

    def __init__(
        self,
        connection: Connection,
        call: Call,
        model: str,
        settings: Mapping[str, Any],
        on_event: OnEvent | None,
    ) -> None:
        self._connection = connection
        self._call = call
        self._model = model
        self._timeout_s: float | None = settings.get("timeout")
        self._keep_usage = bool(settings.get("preserve_raw_usage"))
        self._on_event = on_event
        self._events_seen = 0
        self._committed = False

    async def run(self) -> ModelAnswer:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await self._send()
        except ModelCallError as error:
            error.events_seen = self._events_seen
            error.retryable = error.retryable and not self._committed
            raise
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ModelCallError(
                "timeout",
                f"The model call took longer than {self._timeout_s} s (model setting 'timeout').",
                code="timeout",
                events_seen=self._events_seen,
            ) from error

    async def _send(self) -> ModelAnswer:
        async with self._connection.send(self._call) as received:
            if self._call.stream:
                return await self._read_stream(received)
            if self._connection.route.api == "chat":
                return read_chat_answer(received, self._model, keep_usage=self._keep_usage)
            return read_answer(received, keep_usage=self._keep_usage)

    async def _read_stream(self, received: Received) -> ModelAnswer:
        stream: ChatStream | ResponsesStream
        if self._connection.route.api == "chat":
            stream = ChatStream(
                received,
                self._model,
                self._on_event,
                keep_usage=self._keep_usage,
                official=self._connection.is_official,
            )
        else:
            stream = ResponsesStream(received, self._on_event, keep_usage=self._keep_usage)
        try:
            return await stream.read()
        finally:
            self._events_seen += stream.seen
            self._committed = self._committed or stream.committed
