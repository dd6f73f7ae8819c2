"""The seam to the official ``mcp`` package, of which two major versions are in use.

The package is optional and imported only when a server connects. Differences between its versions
(field names, error codes, its HTTP client) are handled here and nowhere else.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import cache
from typing import Any

from sandstream.exceptions import UserError

_END_OF_SESSION = {"connection closed", "session terminated"}
"""The package's own messages for the end of a session. Its error code does not identify it:
servers use the same code for their own errors."""


def load(module: str) -> Any:
    """A module of the package.

    Raises:
        UserError: if the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UserError(
            "MCP servers need the mcp package, which is not installed. Install it with: "
            "pip install sandstream[mcp]"
        ) from error


@cache
def is_v2() -> bool:
    """Whether the installed package has major version 2 or later."""
    load("mcp")
    return int(importlib.metadata.version("mcp").partition(".")[0]) >= 2


@cache
def http() -> Any:
    """The HTTP client library of the installed package."""
    load("mcp")
    return importlib.import_module("httpx2" if is_v2() else "httpx")


def prepare() -> None:
    """Import what a connection needs. The first call takes a second, so run it in a thread."""
    for module in ("mcp", "mcp.types", "mcp.client.stdio", "mcp.client.streamable_http"):
        load(module)
    http()


def _error_type() -> type[Exception]:
    names = vars(load("mcp.shared.exceptions"))
    found: type[Exception] = names.get("MCPError") or names["McpError"]
    return found


# Sessions


@asynccontextmanager
async def client_session(
    streams: AbstractAsyncContextManager[Any],
    read_timeout_s: float | None,
    message_handler: Any,
) -> AsyncIterator[tuple[Any, Any]]:
    """An initialized session over a transport, with the server's initialize result."""
    package = load("mcp")
    if is_v2():
        client = package.Client(
            streams,
            mode="auto",
            cache=None,
            read_timeout_seconds=read_timeout_s,
            message_handler=message_handler,
        )
        async with client:
            yield client.session, getattr(client.session, "initialize_result", None)
        return
    limit = None if read_timeout_s is None else timedelta(seconds=read_timeout_s)
    async with (
        streams as (read, write, *_),
        package.ClientSession(read, write, limit, message_handler=message_handler) as session,
    ):
        yield session, await session.initialize()


async def list_page(session: Any, method: str, cursor: str | None) -> Any:
    """One page of a listing; ``method`` is a method of the session."""
    ask = getattr(session, method)
    if cursor is None:
        return await ask()
    return await ask(params=load("mcp.types").PaginatedRequestParams(cursor=cursor))


def resource_uri(uri: str) -> Any:
    if is_v2():
        return uri
    from pydantic import AnyUrl

    return AnyUrl(uri)


# Fields


def input_schema(tool: Any) -> Any:
    return _either(tool, "input_schema", "inputSchema")


def next_cursor(page: Any) -> str | None:
    cursor: str | None = _either(page, "next_cursor", "nextCursor")
    return cursor


def without_cursor(page: Any, **changes: Any) -> Any:
    name = "next_cursor" if hasattr(page, "next_cursor") else "nextCursor"
    return page.model_copy(update={name: None, **changes})


def structured_content(result: Any) -> dict[str, Any] | None:
    content: dict[str, Any] | None = _either(result, "structured_content", "structuredContent")
    return content


def is_error(result: Any) -> bool | None:
    flag: bool | None = _either(result, "is_error", "isError")
    return flag


def mime_type(content: Any) -> str:
    return str(_either(content, "mime_type", "mimeType"))


def _either(value: Any, new: str, old: str) -> Any:
    return getattr(value, new) if hasattr(value, new) else getattr(value, old, None)


# Errors


def is_protocol_error(error: BaseException) -> bool:
    """Is it an error that the server answered, or that the session created in its place?"""
    return isinstance(error, _error_type())


def protocol_message(error: BaseException) -> str:
    details = getattr(error, "error", None)
    return str(getattr(details, "message", error))


def is_timeout(error: BaseException) -> bool:
    return is_protocol_error(error) and _code(error) == (-32001 if is_v2() else 408)


def is_connection_lost(error: BaseException) -> bool:
    """Is the session unusable: closed, broken, or forgotten by the server?"""
    if isinstance(error, BaseExceptionGroup):
        return any(is_connection_lost(each) for each in error.exceptions)
    if is_protocol_error(error):
        return protocol_message(error).lower() in _END_OF_SESSION
    anyio = importlib.import_module("anyio")
    closed = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    return isinstance(error, (*closed, http().ConnectError))


def _code(error: BaseException) -> int | None:
    details = getattr(error, "error", None)
    code: int | None = getattr(details, "code", None)
    return code


def http_problem(error: BaseException) -> str | None:
    """A description of a failed HTTP request, without the URL, which may contain credentials."""
    library = http()
    for each in leaves(error):
        if isinstance(each, library.HTTPStatusError):
            response: Any = getattr(each, "response")  # noqa: B009 - its type is not known
            return f"HTTP error {response.status_code} ({response.reason_phrase})"
        if isinstance(each, library.ConnectError):
            return "Could not reach the server."
        if isinstance(each, library.TimeoutException):
            return "Connection timeout."
        if isinstance(each, library.HTTPError):
            return "Request failed."
    return None


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in an exception group; otherwise the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error
