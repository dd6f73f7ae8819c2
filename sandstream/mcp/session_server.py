"""A server that is reached through a client session of the ``mcp`` package.

Manages the connection, its loss and reconnection, retries, and the cached list of tools. The
classes in transports.py provide the transport.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self, TypeVar

import pydantic
from sandstream_bus.wire.error_text import error_text

from sandstream.exceptions import UserError
from sandstream.mcp import limits, package
from sandstream.mcp.approval import RequireApprovalSetting
from sandstream.mcp.connection import Connection, ConnectionLost, RequestCancelled
from sandstream.mcp.contexts import MCPToolCustomDataExtractor, MCPToolMetaResolver
from sandstream.mcp.errors import MCPToolCancellationError
from sandstream.mcp.filters import ToolFilter, filtered_tools
from sandstream.mcp.pages import EndlessListing, Listing
from sandstream.mcp.server import UNSET, MCPServer, Unset
from sandstream.run_context import RunContextWrapper
from sandstream.tool import ToolErrorFunction

P = TypeVar("P")
T = TypeVar("T")


class NotConnected(UserError):
    """The server was not connected, or was cleaned up. Retrying does not help."""


class MCPServerWithClientSession(MCPServer, Generic[P]):
    """Base of the servers over stdio, SSE and streamable HTTP."""

    _one_request_at_a_time = False
    """With mcp 1, a failed request over streamable HTTP ends all concurrent requests."""

    def __init__(
        self,
        params: P,
        cache_tools_list: bool = False,
        name: str | None = None,
        client_session_timeout_seconds: float | None = 5,
        tool_filter: ToolFilter = None,
        use_structured_content: bool = False,
        max_retry_attempts: int = 0,
        retry_backoff_seconds_base: float = 1.0,
        message_handler: Any | None = None,
        require_approval: RequireApprovalSetting = None,
        failure_error_function: ToolErrorFunction | Unset | None = UNSET,
        tool_meta_resolver: MCPToolMetaResolver | None = None,
        custom_data_extractor: MCPToolCustomDataExtractor | None = None,
        retry_backoff_seconds_max: float | None = None,
        *,
        tool_input_guardrails: list[Any] | None = None,
        tool_output_guardrails: list[Any] | None = None,
        max_list_pages: int | None = None,
    ) -> None:
        """Configure a connection; nothing happens before ``connect``.

        Args:
            params: How to reach the server, as a dict.
            cache_tools_list: List the tools once, until ``invalidate_tools_cache``.
            name: The name of the server; ``None`` makes one of ``params``.
            client_session_timeout_seconds: The time limit of an answer; ``None`` or 0 removes it.
            tool_filter: Which tools agents see: a dict of names, or a function.
            use_structured_content: Give the model the structured result instead of the content.
            max_retry_attempts: How often a failed listing or call is repeated; -1 has no limit.
                Only with retries does the next request reopen a lost connection.
            retry_backoff_seconds_base: Seconds before the first retry; each next delay is twice as
                long.
            message_handler: Receives the server's messages that are not answers.
            require_approval: Which tools a person must approve: ``always``, ``never``, a mapping of
                tool names, or a function.
            failure_error_function: Makes a text for the model of a failed call; ``None`` ends the
                run with the error. If it is not given, the agent's ``mcp_config`` applies.
            tool_meta_resolver: Makes the ``_meta`` that is sent with a call.
            custom_data_extractor: Makes data for your application of a result.
            retry_backoff_seconds_max: The longest delay; ``None`` removes the limit.
            tool_input_guardrails: Checks of the arguments before a call.
            tool_output_guardrails: Checks of the result after a call.
            max_list_pages: How many pages a listing may have; more are an error.

        Raises:
            UserError: ``params`` or a limit is not usable.
        """
        super().__init__(
            use_structured_content=use_structured_content,
            require_approval=require_approval,
            failure_error_function=failure_error_function,
            tool_meta_resolver=tool_meta_resolver,
            custom_data_extractor=custom_data_extractor,
            tool_input_guardrails=tool_input_guardrails,
            tool_output_guardrails=tool_output_guardrails,
        )
        limits.read_timeout_s(client_session_timeout_seconds)
        limits.check_backoff_max(retry_backoff_seconds_max)
        limits.check_max_pages(max_list_pages)
        self.params = params
        self._name = name or self._default_name(params)
        self.cache_tools_list = cache_tools_list
        self.client_session_timeout_seconds = client_session_timeout_seconds
        self.tool_filter = tool_filter
        self.max_retry_attempts = max_retry_attempts
        self.retry_backoff_seconds_base = retry_backoff_seconds_base
        self.retry_backoff_seconds_max = retry_backoff_seconds_max
        self.message_handler = message_handler
        self.max_list_pages = max_list_pages
        self.server_initialize_result: Any | None = None
        self._connection: Connection | None = None
        self._opening: Connection | None = None
        self._cleanups = 0
        self._lifecycle = asyncio.Lock()
        self._requests = asyncio.Lock()
        self._tools: list[Any] | None = None
        self._tools_are_stale = True
        self._invalidations = 0

    @classmethod
    @abc.abstractmethod
    def _default_name(cls, params: P) -> str:
        """A default name from the parameters, which are also checked."""

    @abc.abstractmethod
    def create_streams(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """The transport: a pair of streams that is open inside the block."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def session(self) -> Any | None:
        """The client session of the ``mcp`` package; ``None`` while there is no connection."""
        return None if self._connection is None else self._connection.session

    @property
    def connection_lost(self) -> bool:
        return self._connection is not None and self._connection.is_lost

    # Connection

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.cleanup()

    async def connect(self) -> None:
        """Open the connection; a lost one is replaced, a working one is kept.

        Raises:
            UserError: if the server cannot be started or reached, or the package is missing.
        """
        cleanups = self._cleanups
        async with self._lifecycle:
            if self._connection is None or self._connection.is_lost:
                await self._open(cleanups)

    async def cleanup(self) -> None:
        """Close the connection, or stop opening it.

        It may be called from any task, repeatedly; it does not hang.
        """
        self._cleanups += 1
        if self._opening is not None:
            await self._opening.close()
        async with self._lifecycle:
            connection, self._connection = self._connection, None
            self.server_initialize_result = None
            if connection is not None:
                await connection.close()

    async def _reopen(self, lost: Connection) -> None:
        cleanups = self._cleanups
        async with self._lifecycle:
            if self._connection is lost:
                await self._open(cleanups)

    async def _open(self, cleanups: int) -> None:
        """Open it, unless ``cleanup`` was called since the caller read the counter."""
        await asyncio.to_thread(package.prepare)
        limit_s = limits.read_timeout_s(self.client_session_timeout_seconds)
        if self._connection is not None:
            await self._connection.close()
        if self._cleanups != cleanups:  # that cleanup could not cancel what had not begun
            raise self._connect_failure(ConnectionLost())
        connection = Connection(
            lambda: package.client_session(self.create_streams(), limit_s, self.message_handler)
        )
        self._opening = connection
        try:
            self.server_initialize_result = await connection.opened()
        except Exception as error:  # noqa: BLE001 - transports raise all kinds of errors
            failure = self._connect_failure(error)
            # an HTTP error contains the URL, which may contain credentials
            cause = None if package.http_problem(error) else error
        else:
            self._connection = connection
            return
        finally:
            self._opening = None
        await connection.close()
        raise failure from cause

    def _connect_failure(self, error: Exception) -> UserError:
        if isinstance(error, UserError):
            return error
        problem = package.http_problem(error)
        if problem is None:
            first = next(package.leaves(error))
            if isinstance(first, OSError):
                problem = f"{first.strerror or first}: {first.filename or 'the server'}"
            elif package.is_timeout(first):
                problem = "Connection timeout. The server does not answer the handshake."
            elif isinstance(first, ConnectionLost) or package.is_connection_lost(first):
                problem = "The server ended the connection during the handshake."
            else:
                problem = package.protocol_message(first) or type(first).__name__
        return UserError(f"Failed to connect to MCP server '{self.safe_name}': {problem}")

    # Requests

    async def _once(self, request: Callable[[Any], Awaitable[T]]) -> T:
        connection = self._connected()
        if connection.is_lost and self.max_retry_attempts != 0:
            await self._reopen(connection)
            connection = self._connected()
        serial = self._one_request_at_a_time and not package.is_v2()
        limit_s = limits.read_timeout_s(self.client_session_timeout_seconds)
        # the session's own limit starts when the request is written, and writing can hang too
        whole_s = None if limit_s is None else 2 * limit_s
        async with self._requests if serial else contextlib.nullcontext():
            try:
                return await connection.run(request, whole_s)
            except Exception as error:
                if package.is_connection_lost(error):
                    connection.mark_lost()
                raise

    async def _with_retries(self, request: Callable[[Any], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                return await self._once(request)
            except (EndlessListing, NotConnected):
                raise
            except Exception:
                failures += 1
                if self.max_retry_attempts != -1 and failures > self.max_retry_attempts:
                    raise
            base, maximum = self.retry_backoff_seconds_base, self.retry_backoff_seconds_max
            await asyncio.sleep(limits.backoff_s(base, maximum, failures - 1))

    async def _answer(self, operation: str, request: Awaitable[T]) -> T:
        """The answer to a request; low-level errors are turned into one clear error."""
        try:
            return await request
        except UserError:
            raise
        except Exception as error:
            failure = self._request_failure(operation, error)
            if failure is error:
                raise
            cause = None if package.http_problem(error) else error
        raise failure from cause

    def _request_failure(self, operation: str, error: Exception) -> Exception:
        what = f"Failed to {operation} MCP server '{self.safe_name}':"
        if isinstance(error, RequestCancelled):
            return MCPToolCancellationError(f"{what} tool execution was cancelled.")
        if isinstance(error, TimeoutError):
            return UserError(f"{what} Connection timeout. The server takes no more requests.")
        if isinstance(error, pydantic.ValidationError):
            return UserError(f"{what} The server's answer is not valid: {error_text(error)}")
        if isinstance(error, ConnectionLost) or package.is_connection_lost(error):
            hint = (
                " Connect it again, or set max_retry_attempts, and it is done on the next request."
                if self.max_retry_attempts == 0
                else ""
            )
            return UserError(f"{what} Connection lost. The server may have disconnected.{hint}")
        problem = package.http_problem(error)
        return error if problem is None else UserError(f"{what} {problem}")

    def _connected(self) -> Connection:
        if self._connection is None:
            raise NotConnected("Server not initialized. Make sure you call `connect()` first.")
        return self._connection

    # Tools

    @property
    def cached_tools(self) -> list[Any] | None:
        return None if self._tools is None else _copies(self._tools)

    def invalidate_tools_cache(self) -> None:
        """List the tools again on the next use."""
        self._invalidations += 1
        self._tools_are_stale = True

    async def list_tools(
        self, run_context: RunContextWrapper[Any] | None = None, agent: Any | None = None
    ) -> list[Any]:
        """The tools that pass the filter. The caller may change the returned list and tools.

        Args:
            run_context: The context of the run; a filter function needs it.
            agent: The agent; a filter function needs it.

        Raises:
            UserError: if the server is not connected, is lost or gives an invalid answer.
        """
        self._connected()
        tools = self._tools
        if not (self.cache_tools_list and not self._tools_are_stale and tools):
            tools = await self._answer("list tools from", self._fetch_tools())
        passed = await filtered_tools(self.tool_filter, tools, run_context, agent, self.name)
        return _copies(passed)

    async def _fetch_tools(self) -> list[Any]:
        invalidations = self._invalidations
        listing = Listing("tool", self.safe_name, self.max_list_pages)
        await self._with_retries(
            lambda session: listing.collect(
                lambda cursor: package.list_page(session, "list_tools", cursor)
            )
        )
        if invalidations == self._invalidations:
            self._tools = listing.items
            self._tools_are_stale = False
        return listing.items

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Call a tool; if the tool itself fails, the result has its error flag set.

        Args:
            tool_name: The name of the tool on the server.
            arguments: The arguments; ``None`` is none.
            meta: The ``_meta`` of the request.

        Raises:
            UserError: if the server is not connected or lost, or an argument is missing.
            MCPError: (of the ``mcp`` package) an error that the server answered.
        """
        self._connected()
        operation = f"call tool '{tool_name}' on"
        self._check_arguments(operation, tool_name, arguments)
        more = {} if meta is None else {"meta": meta}
        return await self._answer(
            operation,
            self._with_retries(lambda session: session.call_tool(tool_name, arguments, **more)),
        )

    def _check_arguments(
        self, operation: str, tool_name: str, arguments: dict[str, Any] | None
    ) -> None:
        if self._tools_are_stale or self._tools is None:
            return
        tool = next((tool for tool in self._tools if tool.name == tool_name), None)
        schema = None if tool is None else package.input_schema(tool)
        required = schema.get("required") if isinstance(schema, dict) else None
        if not isinstance(required, list) or not required:
            return
        what = f"Failed to {operation} MCP server '{self.safe_name}':"
        given = {} if arguments is None else arguments
        if not isinstance(given, dict):
            raise UserError(f"{what} arguments must be an object.")
        missing = sorted(name for name in required if isinstance(name, str) and name not in given)
        if missing:
            raise UserError(f"{what} missing required parameters: {', '.join(missing)}")

    # Prompts and resources

    async def list_prompts(self) -> Any:
        listing = Listing("prompt", self.safe_name, self.max_list_pages)
        collecting = self._once(
            lambda session: listing.collect(
                lambda cursor: package.list_page(session, "list_prompts", cursor)
            )
        )
        await self._answer("list prompts on", collecting)
        if package.next_cursor(listing.first_page) is None:
            return listing.first_page
        return package.without_cursor(listing.first_page, prompts=listing.items)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return await self._answer(
            "get prompt on", self._once(lambda session: session.get_prompt(name, arguments))
        )

    async def list_resources(self, cursor: str | None = None) -> Any:
        return await self._answer(
            "list resources on",
            self._once(lambda session: package.list_page(session, "list_resources", cursor)),
        )

    async def list_resource_templates(self, cursor: str | None = None) -> Any:
        method = "list_resource_templates"
        return await self._answer(
            "list resource templates on",
            self._once(lambda session: package.list_page(session, method, cursor)),
        )

    async def read_resource(self, uri: str) -> Any:
        return await self._answer(
            "read resource on",
            self._once(lambda session: session.read_resource(package.resource_uri(uri))),
        )


def _copies(tools: list[Any]) -> list[Any]:
    """Copies, so that a caller cannot change the cache."""
    return [tool.model_copy(deep=True) for tool in tools]
