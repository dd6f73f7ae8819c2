"""Servers by transport: a program over stdio, and two kinds over HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from sandstream.exceptions import UserError
from sandstream.mcp import package
from sandstream.mcp.contexts import HttpClientFactory
from sandstream.mcp.session_server import MCPServerWithClientSession

logger = logging.getLogger(__name__)

_HTTP_TIMEOUT_S = 5
_SSE_READ_TIMEOUT_S = 300


class MCPServerStdioParams(TypedDict):
    """A program to start, and the text encoding of its pipes (UTF-8, strict)."""

    command: str
    """The program, by its path or by its name in ``PATH``."""
    args: NotRequired[list[str]]
    """The arguments of the program."""
    env: NotRequired[dict[str, str]]
    """Variables of its environment, besides the few that every program gets, such as ``PATH``."""
    cwd: NotRequired[str | Path]
    """The folder in which it starts; missing: that of this process."""
    encoding: NotRequired[str]
    """The text encoding of its pipes; missing: UTF-8."""
    encoding_error_handler: NotRequired[Literal["strict", "ignore", "replace"]]
    """What happens to bytes that are not valid; missing: ``strict``."""


class MCPServerStdio(MCPServerWithClientSession[MCPServerStdioParams]):
    """A server that is a program: started by ``connect``, stopped by ``cleanup``.

    Example:
        async with MCPServerStdio(params={"command": "uvx", "args": ["mcp-server-git"]}) as git:
            agent = Agent(name="Coder", mcp_servers=[git])
            result = await Runner.run(agent, "What changed last?")
    """

    @classmethod
    def _default_name(cls, params: MCPServerStdioParams) -> str:
        return f"stdio: {_required(params, 'command', cls)}"

    def create_streams(self) -> AbstractAsyncContextManager[Any]:
        stdio = package.load("mcp.client.stdio")
        given = {key: value for key, value in self.params.items() if value is not None}
        known = stdio.StdioServerParameters.model_fields
        parameters = stdio.StdioServerParameters(
            **{key: value for key, value in given.items() if key in known}
        )
        streams: AbstractAsyncContextManager[Any] = stdio.stdio_client(parameters)
        return streams


class MCPServerSseParams(TypedDict):
    """The connection parameters of a server over HTTP with server-sent events."""

    url: str
    """The address of the server."""
    headers: NotRequired[dict[str, str]]
    """HTTP headers of each request, for example ``Authorization``."""
    timeout: NotRequired[float]
    """Seconds for an HTTP request; missing: 5."""
    sse_read_timeout: NotRequired[float]
    """Seconds without an event after which the connection counts as lost; missing: 300."""
    auth: NotRequired[Any]
    """Authenticates requests, as ``auth`` of the HTTP client."""
    httpx_client_factory: NotRequired[HttpClientFactory]
    """Creates the HTTP client; missing: our own."""


class MCPServerSse(MCPServerWithClientSession[MCPServerSseParams]):
    """A server over HTTP with server-sent events, the older of the two HTTP transports.

    Example:
        server = MCPServerSse(params={"url": "https://example.com/sse"})
    """

    @classmethod
    def _default_name(cls, params: MCPServerSseParams) -> str:
        return f"sse: {_required(params, 'url', cls)}"

    def create_streams(self) -> AbstractAsyncContextManager[Any]:
        params = self.params
        auth = params.get("auth")
        _check_auth(auth)
        streams: AbstractAsyncContextManager[Any] = package.load("mcp.client.sse").sse_client(
            url=params["url"],
            headers=params.get("headers"),
            timeout=params.get("timeout", _HTTP_TIMEOUT_S),
            sse_read_timeout=params.get("sse_read_timeout", _SSE_READ_TIMEOUT_S),
            httpx_client_factory=_checked(params.get("httpx_client_factory") or _http_client),
            auth=auth,
        )
        return streams


class MCPServerStreamableHttpParams(TypedDict):
    """The connection parameters of a server over streamable HTTP."""

    url: str
    """The address of the server."""
    headers: NotRequired[dict[str, str]]
    """HTTP headers of each request, for example ``Authorization``."""
    timeout: NotRequired[timedelta | float]
    """How long an HTTP request may take, in seconds if it is a number; missing: 5 seconds."""
    sse_read_timeout: NotRequired[timedelta | float]
    """The time without an event after which a stream counts as lost; missing: 300 seconds."""
    terminate_on_close: NotRequired[bool]
    """Whether the server is told that the session is over; missing: yes."""
    httpx_client_factory: NotRequired[HttpClientFactory]
    """Creates the HTTP client; missing: our own."""
    auth: NotRequired[Any]
    """Authenticates requests, as ``auth`` of the HTTP client."""
    ignore_initialized_notification_failure: NotRequired[bool]
    """Use the server even if it refuses the notification that ends the handshake."""


class MCPServerStreamableHttp(MCPServerWithClientSession[MCPServerStreamableHttpParams]):
    """A server over streamable HTTP.

    Example:
        params = {"url": "https://example.com/mcp", "headers": {"Authorization": f"Bearer {token}"}}
        async with MCPServerStreamableHttp(params=params, cache_tools_list=True) as server:
            agent = Agent(name="Assistant", mcp_servers=[server])
    """

    _one_request_at_a_time = True
    _session_id: str | None = None

    @classmethod
    def _default_name(cls, params: MCPServerStreamableHttpParams) -> str:
        return f"streamable_http: {_required(params, 'url', cls)}"

    @property
    def session_id(self) -> str | None:
        """The session id that the server assigned.

        ``None`` if it assigns none, as servers of the newest protocol do, or is not connected. Send
        it as the header ``Mcp-Session-Id`` to continue that session from elsewhere.
        """
        return None if self.session is None else self._session_id

    def create_streams(self) -> AbstractAsyncContextManager[Any]:
        _check_auth(self.params.get("auth"))
        self._session_id = None
        return self._streams()

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        params = self.params
        terminate = params.get("terminate_on_close", True)
        factory = _checked(params.get("httpx_client_factory") or _http_client)
        timeout = package.http().Timeout(
            _seconds(params.get("timeout", _HTTP_TIMEOUT_S)),
            read=_seconds(params.get("sse_read_timeout", _SSE_READ_TIMEOUT_S)),
        )
        module = package.load("mcp.client.streamable_http")
        client = factory(headers=params.get("headers"), timeout=timeout, auth=params.get("auth"))
        client.event_hooks.setdefault("response", []).append(self._on_response)
        async with (
            client,
            module.streamable_http_client(
                params["url"], http_client=client, terminate_on_close=terminate
            ) as streams,
        ):
            yield streams

    async def _on_response(self, response: Any) -> None:
        if response.is_success:
            self._session_id = response.headers.get("mcp-session-id") or self._session_id
            return
        ignores = self.params.get("ignore_initialized_notification_failure", False)
        if ignores and b'"notifications/initialized"' in response.request.content:
            logger.warning(
                "The server refuses the initialized notification; that is ignored",
                extra={"server": self.safe_name, "status": response.status_code},
            )
            response.status_code = 202
        elif b'"method":"server/discover"' in response.request.content and (
            response.status_code >= 500
        ):
            # otherwise the client would treat the server as an old one and hide the real problem
            response.raise_for_status()
        elif b'"method":"initialize"' in response.request.content:
            response.raise_for_status()


def _required(params: Any, key: str, cls: type) -> str:
    if not isinstance(params, Mapping) or not isinstance(params.get(key), str):
        raise UserError(
            f"{cls.__name__} needs params with {key!r} as a string, such as "
            f"{cls.__name__}(params={{{key!r}: ...}})."
        )
    return str(params[key])


def _seconds(value: timedelta | float) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _http_client(
    headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None
) -> Any:
    given = {"headers": headers, "timeout": timeout, "auth": auth}
    options = {key: value for key, value in given.items() if value is not None}
    # a redirect could send the credentials in the headers to another host
    return package.http().AsyncClient(follow_redirects=False, **options)


def _check_auth(auth: Any) -> None:
    library = package.http()
    if auth is not None and not isinstance(auth, library.Auth):
        raise UserError(
            f"The auth of an MCP server must be an instance of {library.__name__}.Auth with the "
            "installed mcp package. Use that, or an Authorization header."
        )


def _checked(factory: HttpClientFactory) -> HttpClientFactory:
    def create(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:
        client = factory(headers=headers, timeout=timeout, auth=auth)
        library = package.http()
        if not isinstance(client, library.AsyncClient):
            raise UserError(
                "The httpx_client_factory of an MCP server must return an instance of "
                f"{library.__name__}.AsyncClient with the installed mcp package."
            )
        return client

    return create
