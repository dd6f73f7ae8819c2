"""The HTTP side of one endpoint: the only module that calls the `openai` package.

The body goes through the client's low-level ``post`` as encoded bytes and comes back as the raw
HTTP response. The client still handles addresses, headers, authentication and Azure, but its typed
models, which cost ten times the call itself, are not used. The client's own retries are disabled.
`openai` is imported at the first call.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import msgspec

from sandstream_actors.model.failures import malformed, status_failure
from sandstream_actors.model.interface import ModelCallError
from sandstream_actors.model.pool import CALLS_PER_CLIENT, IDLE_S, ClientPool
from sandstream_actors.model.routes import Route, endpoint_of, is_official
from sandstream_actors.model.sse import SseParser

_DRAIN_S = 0.2
_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
_OUR_FAULT = frozenset({"UnsupportedProtocol", "LocalProtocolError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One HTTP request, ready to be sent."""

    path: str
    body: bytes
    stream: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, object] | None = None
    client_timeout_s: float | None = None
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Received:
    """A response with a good status; `response` is an httpx response, opened if streamed."""

    response: Any
    where: str

    @property
    def content(self) -> bytes:
        content: bytes = self.response.content
        return content

    @property
    def request_id(self) -> str | None:
        value: str | None = self.response.headers.get("x-request-id")
        return value

    async def events(self, take: Callable[[bytes], bool]) -> bool:
        """Pass the data of each event to `take` until it returns true; whether it did."""
        kind = self.response.headers.get("content-type", "")
        if kind.startswith(("application/json", "text/html")):
            raise malformed(f"{kind} where a stream was asked for", self.where, self.request_id)
        parser = SseParser()
        async with aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                is_complete = False
                for data in parser.feed(chunk):
                    is_complete = is_complete or take(data)
                await asyncio.sleep(0)  # let the events be passed on before reading more
                if is_complete:
                    await _drain(chunks)
                    return True
        return any(take(data) for data in parser.finish())

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives; a broken connection is `unavailable`."""
        try:
            async for chunk in self.response.aiter_bytes():
                yield chunk
        except _wire_errors(self.response) as error:
            raise _unreachable(self.where, error, self.request_id) from error


class Connection:
    """The pooled clients of one route. Its owner closes it; a lent client stays open."""

    def __init__(
        self, route: Route, environ: Mapping[str, str], lent_client: Any | None = None
    ) -> None:
        self.route = route
        self._environ = environ
        self._pool = ClientPool(self._new_client, lent_client)
        self._loaded: _Openai | None = None
        base_url = route.base_url if lent_client is None else str(lent_client.base_url)
        self.is_official = is_official(base_url)
        self.where = endpoint_of(base_url)

    @asynccontextmanager
    async def send(self, call: Call) -> AsyncIterator[Received]:
        async with self._pool.client() as client:
            response = await self._post(client, call)
            try:
                yield Received(response, self.where)
            finally:
                await response.aclose()

    async def aclose(self) -> None:
        await self._pool.aclose()

    @property
    def _openai(self) -> _Openai:
        if self._loaded is None:
            self._loaded = _Openai.load()
        return self._loaded

    def _new_client(self) -> Any:
        key = self.route.key(self._environ)
        try:
            return self._openai.client(self.route, key)
        except self._openai.bad_call as error:
            raise _not_callable(self.where, str(error)) from error

    async def _post(self, client: Any, call: Call) -> Any:
        openai = self._openai
        body: dict[str, Any] = {openai.body_name: call.body}
        if call.path == "/chat/completions" and isinstance(client, openai.azure):
            # Azure puts the deployment into the path and needs a decoded body to find its name.
            body = {"body": msgspec.json.decode(call.body)}
        try:
            return await client.post(
                call.path,
                cast_to=openai.response_type,
                options=openai.request_options(call),
                stream=call.stream,
                **body,
            )
        except openai.status_error as error:
            answer: Any = error
            raise status_failure(
                answer.status_code, answer.response.headers, answer.response.content, self.where
            ) from error
        except openai.connection_error as error:
            cause = error.__cause__ or error
            if type(cause).__name__ in _OUR_FAULT:
                # Not chained: its message quotes header values, which may be secrets.
                raise _not_callable(self.where, type(cause).__name__) from None
            raise _unreachable(self.where, cause, None, repeatable=call.repeatable) from error
        except openai.bad_call as error:
            raise _not_callable(self.where, str(error)) from error


async def preload() -> None:
    """Import the vendor's package now, outside the event loop. The import takes a second or more,
    during which an actor could not send heartbeats.
    """
    for name in ("openai", "openai._base_client"):
        await asyncio.to_thread(importlib.import_module, name)


@dataclass(frozen=True, slots=True)
class _Openai:
    """The parts of the openai package that we use, looked up once; they vary between versions."""

    package: ModuleType
    httpx: ModuleType
    tls: ssl.SSLContext
    make_options: Any
    has_security: bool
    body_name: str
    user_agent: str
    response_type: Any
    status_error: type[Exception]
    connection_error: type[Exception]
    bad_call: tuple[type[Exception], ...]
    azure: type[Any]

    @classmethod
    @functools.cache  # loading CA certificates blocks for more than 50 ms
    def load(cls) -> _Openai:
        openai = importlib.import_module("openai")
        base: Any = importlib.import_module("openai._base_client")
        # The package moved from httpx to httpx2: ask its client which one it is built on.
        name = openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]
        httpx = importlib.import_module(name)
        return cls(
            package=openai,
            httpx=httpx,
            tls=httpx.create_ssl_context(),
            make_options=base.make_request_options,
            has_security="security" in inspect.signature(base.make_request_options).parameters,
            body_name="content"
            if "content" in inspect.signature(openai.AsyncOpenAI.post).parameters
            else "body",
            user_agent=f"Sandstream/Python {_version()}",
            response_type=httpx.Response,
            status_error=openai.APIStatusError,
            connection_error=openai.APIConnectionError,
            bad_call=(openai.OpenAIError, httpx.InvalidURL, ValueError, TypeError),
            azure=openai.AsyncAzureOpenAI,
        )

    def client(self, route: Route, key: str) -> Any:
        limits = self.httpx.Limits(
            max_connections=CALLS_PER_CLIENT,
            max_keepalive_connections=CALLS_PER_CLIENT,
            keepalive_expiry=IDLE_S,
        )
        client = self.package.AsyncOpenAI(
            api_key=key,
            base_url=route.base_url,
            max_retries=0,
            http_client=self.package.DefaultAsyncHttpxClient(limits=limits, verify=self.tls),
        )
        # Set afterwards: None as an argument would mean OpenAI's value from the environment.
        client.organization = route.organization
        client.project = route.project
        return client

    def request_options(self, call: Call) -> dict[str, Any]:
        headers = dict(call.headers)
        if all(name.lower() != "user-agent" for name in headers):
            headers["User-Agent"] = self.user_agent
        arguments: dict[str, Any] = {"extra_headers": headers}
        if call.query:
            arguments["extra_query"] = call.query
        if call.client_timeout_s is not None:
            arguments["timeout"] = call.client_timeout_s
        if self.has_security:
            arguments["security"] = {"bearer_auth": True}
        return {**self.make_options(**arguments), "max_retries": 0}


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the stream's end marker; otherwise the connection could not be reused."""
    with suppress(TimeoutError, ModelCallError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass


def _wire_errors(response: Any) -> tuple[type[Exception], ...]:
    httpx: Any = sys.modules[type(response).__module__.partition(".")[0]]
    return (httpx.HTTPError, httpx.StreamError, ssl.SSLError, OSError)


def _unreachable(
    where: str, cause: BaseException, request_id: str | None, *, repeatable: bool = True
) -> ModelCallError:
    name = type(cause).__name__
    return ModelCallError(
        "unavailable",
        f"The connection to {where} failed ({name}). Check that the endpoint is up and reachable.",
        code="connection",
        request_id=request_id,
        retryable=repeatable or name in _NOT_SENT,
    )


def _not_callable(where: str, why: str) -> ModelCallError:
    what = f"No call to {where} can be made ({why}). Check its URL, key and headers."
    return ModelCallError("misconfigured", what, code="client")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sandstream")
    except PackageNotFoundError:
        return "0"
