"""One session with a server, opened and closed by its own task.

The package's transports must be closed in the task that opened them. With a dedicated task, any
other task can connect, call and clean up, and a waiting call learns when the transport breaks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_LIMIT_S = 10.0
"""How long a session may take to close; after that it is cancelled, and then abandoned."""
_CANCEL_LIMIT_S = 5.0


class ConnectionLost(Exception):
    """The session ended before the answer arrived."""


class RequestCancelled(Exception):
    """The request was cancelled from within, not by its caller."""


class Connection:
    """A session and the task that owns it. Create it in a running loop; it opens at once."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[tuple[Any, Any]]]) -> None:
        self._opening = opening
        self._ready: asyncio.Future[tuple[Any, Any]] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._broken = False
        self._owner = asyncio.create_task(self._own(), name="mcp-connection")
        self._owner.add_done_callback(_read_outcome)

    async def _own(self) -> None:
        async with self._opening() as opened:
            self._ready.set_result(opened)
            await self._closing.wait()

    @property
    def session(self) -> Any:
        return self._ready.result()[0]

    @property
    def is_lost(self) -> bool:
        return self._broken or self._owner.done()

    def mark_lost(self) -> None:
        """The session no longer answers, although its transport has not noticed."""
        self._broken = True

    async def opened(self) -> Any:
        """Wait until the session is usable; return the server's initialize result.

        Raises:
            Exception: the error of the transport or the handshake.
        """
        try:
            either: list[asyncio.Future[Any]] = [self._owner, self._ready]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._ready.done():
            return self._ready.result()[1]
        if self._owner.cancelled():
            raise ConnectionLost("the connection was cancelled while it was opened")
        error = self._owner.exception()
        raise ConnectionLost("the connection ended while it was opened") if error is None else error

    async def run(self, request: Callable[[Any], Awaitable[T]], limit_s: float | None) -> T:
        """Make a request. It ends when the transport ends, or after ``limit_s``, at the latest.

        Raises:
            ConnectionLost: if the session ended first.
            TimeoutError: if the limit was reached. The session is then not used again.
            RequestCancelled: if the request was cancelled from within.
        """
        if self.is_lost:
            raise ConnectionLost
        task = asyncio.ensure_future(request(self.session))
        either: list[asyncio.Future[Any]] = [task, self._owner]
        try:
            await asyncio.wait(either, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unfinished = not task.done()
            if unfinished:
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCEL_LIMIT_S)
        if not unfinished:
            if task.cancelled():
                raise RequestCancelled
            return task.result()
        if self._owner.done():
            raise ConnectionLost
        self.mark_lost()
        raise TimeoutError

    async def close(self) -> None:
        """End the session and its transport; returns in bounded time and never raises."""
        self._closing.set()
        if not self._ready.done():
            self._owner.cancel()
        try:
            await asyncio.wait({self._owner}, timeout=CLOSE_LIMIT_S)
        finally:
            if not self._owner.done():
                self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=_CANCEL_LIMIT_S)
        if not self._owner.done():
            logger.error("A connection to an MCP server does not close; it is abandoned")


def _read_outcome(owner: asyncio.Task[None]) -> None:
    """Report a broken transport to the calls that need it, not to the event loop."""
    if not owner.cancelled() and (error := owner.exception()) is not None:
        logger.debug("A connection to an MCP server ended", extra={"error": type(error).__name__})
