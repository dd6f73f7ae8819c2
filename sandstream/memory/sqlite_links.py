"""Connections to SQLite, one for each event loop that uses a session, closed in that loop.

The thread of an aiosqlite connection answers to its event loop and dies if the loop is closed. So a
connection is closed before its loop ends: when its session is closed or collected, or as the last
action of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import aiosqlite


class Link:
    """A loop's own connection; its lock keeps transactions of the loop's tasks apart."""

    def __init__(self, connection: aiosqlite.Connection, links: Links) -> None:
        self.connection = connection
        self.lock = asyncio.Lock()
        self._links = links
        self._closing: asyncio.Future[None] | None = None

    def close_soon(self) -> asyncio.Future[None]:
        """Close the connection when the current task has finished with it."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        return self._closing

    async def _close(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with self.lock:
                await self.connection.close()
        finally:
            self._links.pop(loop, None)
            _open[loop].links.discard(self)


Links = dict[asyncio.AbstractEventLoop, "asyncio.Future[Link]"]
"""The connections of one session."""


async def open_link(target: dict[str, Any], links: Links) -> Link:
    """Connect for the running loop. Closed with the loop, or by :func:`close_links`."""
    loop = asyncio.get_running_loop()
    try:
        connection = aiosqlite.connect(**target)
        # Its thread must not keep the program alive if the loop was not shut down.
        thread: Any = getattr(connection, "_thread", connection)
        thread.daemon = True
        await connection
    except BaseException:
        links.pop(loop, None)
        raise
    link = Link(connection, links)
    if loop not in _open:
        _open[loop] = _LoopLinks()
        await anext(_open[loop].lifetime)
    _open[loop].links.add(link)
    return link


def close_links(links: Links) -> None:
    """Close all connections of a session, each in its loop; callable from any thread."""
    for loop, opening in list(links.items()):
        with suppress(RuntimeError):  # the loop has ended, and closed its connections
            loop.call_soon_threadsafe(opening.add_done_callback, _close_opened)


def _close_opened(opening: asyncio.Future[Link]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close_soon()


class _LoopLinks:
    """The connections of one loop."""

    def __init__(self) -> None:
        self.links: set[Link] = set()
        # asyncio.run() closes asynchronous generators last of all: that is when the loop ends.
        self.lifetime = self._until_loop_closes()

    async def _until_loop_closes(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self.links:
                await asyncio.wait([link.close_soon() for link in self.links])
            # the entry keeps its own loop alive, so it must be removed here
            _open.pop(asyncio.get_running_loop(), None)


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopLinks] = WeakKeyDictionary()
