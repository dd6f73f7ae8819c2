"""A TCP proxy in front of a local server that misbehaves like a network.

It can drop all connections, refuse new ones, delay every byte, stop reading, and leave connections
half open: the bytes of one direction or both are swallowed without notice. A connection that lost
bytes stays broken, like a real one whose state a router has forgotten. New connections follow the
current state of the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Literal, NamedTuple

Direction = Literal["up", "down"]
"""To the server, or from it."""
BOTH: frozenset[Direction] = frozenset(("up", "down"))


class _Link:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._writers = (client, server)
        self.swallows: frozenset[Direction] = frozenset()
        self.flows = asyncio.Event()
        self.flows.set()

    def abort(self) -> None:
        self.flows.set()
        for writer in self._writers:
            writer.transport.abort()


class _Piece(NamedTuple):
    due: float
    data: bytes
    """Empty: end of the stream."""


class TcpProxy:
    """Forwards connections to a port. A context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._refuses = False
        self._swallows: frozenset[Direction] = frozenset()
        self._links: set[_Link] = set()
        self._news = asyncio.Condition()
        self.delay_s = 0.0
        """The delay of every byte, in each direction."""
        self.accepted = 0
        """How many connections were forwarded."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refuse()
        self._server.close()
        await self._server.wait_closed()
        async with self._news:
            await self._news.wait_for(lambda: not self._links)

    # --- how it misbehaves ---------------------------------------------------------------------

    def drop(self) -> None:
        """Break all connections. New ones work."""
        for link in self._links:
            link.abort()

    def refuse(self) -> None:
        """Break all connections and close new ones at once, until :meth:`open`."""
        self._refuses = True
        self.drop()

    def half_open(self, swallows: frozenset[Direction] = BOTH) -> None:
        """Keep all connections open, but swallow these directions. New connections work."""
        for link in self._links:
            link.swallows = swallows

    def stall(self) -> None:
        """Stop reading from all connections, so that their ends cannot send any more."""
        for link in self._links:
            link.flows.clear()

    def swallow(self) -> None:
        """Like :meth:`half_open`; new connections are accepted but also silent, until
        :meth:`open`.
        """
        self._swallows = BOTH
        self.half_open()

    def open(self) -> None:
        """New connections work again."""
        self._refuses = False
        self._swallows = frozenset()

    async def until_accepted(self, count: int, within_s: float) -> None:
        """Wait until this many connections were forwarded in total."""
        async with asyncio.timeout(within_s), self._news:
            await self._news.wait_for(lambda: self.accepted >= count)

    # --- passing on ----------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except ConnectionError:  # the server is down: the client sees that
            writer.transport.abort()
            return
        link = _Link(writer, server_writer)
        link.swallows = self._swallows
        self._links.add(link)
        self.accepted += 1
        await self._tell()
        try:
            await asyncio.gather(
                self._pump(link, "up", reader, server_writer),
                self._pump(link, "down", server_reader, writer),
            )
        finally:
            link.abort()
            self._links.discard(link)
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _pump(
        self,
        link: _Link,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        pieces: asyncio.Queue[_Piece] = asyncio.Queue()
        sending = asyncio.ensure_future(_send(pieces, writer))
        clock = asyncio.get_running_loop().time
        try:
            with contextlib.suppress(ConnectionError):  # dropped: that is what it is for
                while data := await reader.read(65536):
                    if direction not in link.swallows:
                        pieces.put_nowait(_Piece(clock() + self.delay_s, data))
                    await link.flows.wait()
            pieces.put_nowait(_Piece(clock() + self.delay_s, b""))
            await sending
        finally:
            sending.cancel()
            link.abort()


async def _send(pieces: asyncio.Queue[_Piece], writer: asyncio.StreamWriter) -> None:
    """Write each piece when it is due, in order."""
    clock = asyncio.get_running_loop().time
    while (piece := await pieces.get()).data:
        await asyncio.sleep(max(0.0, piece.due - clock()))
        with contextlib.suppress(ConnectionError):
            writer.write(piece.data)
            await writer.drain()
