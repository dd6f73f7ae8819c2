"""One request in progress: its entry in the journal, its fault, and the pace of its messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from aiohttp import web
from vendors.faults import Fault
from vendors.journal import Call

Message = TypeVar("Message")
PENDING_MESSAGES = 1000


class ConnectionEnds(Exception):
    """The connection is closed and the request gets no further answer."""


class Exchange:
    """Handlers of streams and websockets send and receive through it, so that ``set_latency`` and
    the fault ``cut`` reach every message.

        exchange = Exchange.of(request)
        outgoing = exchange.outgoing(socket.send_bytes)
        await outgoing.send(b"...")
        async for message in exchange.incoming(socket):
            ...
        await outgoing.finish()
    """

    def __init__(self, request: web.Request, call: Call, fault: Fault | None, latency_s: float):
        self.request = request
        self.call = call
        self.fault = fault
        self.latency_s = latency_s
        self._sent = 0

    @classmethod
    def of(cls, request: web.Request) -> Exchange:
        exchange = request["exchange"]
        assert isinstance(exchange, Exchange)
        return exchange

    def close(self) -> None:
        """Close the connection now. The client gets no further byte and no closing message."""
        if self.request.transport is not None:
            self.request.transport.abort()

    @property
    def closed(self) -> bool:
        return self.request.transport is None or self.request.transport.is_closing()

    def outgoing(self, send: Callable[[Message], Awaitable[object]]) -> Outgoing[Message]:
        """Messages to the client, each delayed by the latency, in order."""
        return Outgoing(self, send)

    async def incoming(self, messages: AsyncIterator[Message]) -> AsyncIterator[Message]:
        """Messages of the client, each delayed by the latency, in order."""
        if not self.latency_s:
            async for message in messages:
                yield message
            return
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, Message] | None] = asyncio.Queue(PENDING_MESSAGES)

        async def read() -> None:
            try:
                async for message in messages:
                    await queue.put((loop.time() + self.latency_s, message))
            finally:
                await queue.put(None)

        reader = asyncio.create_task(read())
        try:
            while (item := await queue.get()) is not None:
                await asyncio.sleep(item[0] - loop.time())
                yield item[1]
        finally:
            await _ended(reader)

    def count(self) -> None:
        """Count a message to the client, or cut the stream instead.

        Raises:
            ConnectionEnds: the fault ``cut`` closed the connection.
        """
        fault = self.fault
        if fault is not None and fault.kind == "cut" and self._sent >= fault.messages:
            self.close()
            raise ConnectionEnds
        self._sent += 1


class Outgoing(Generic[Message]):
    """Sends in order. With a latency, a message waits for its time in a queue, as on a long wire:
    two messages sent together arrive together.
    """

    def __init__(self, exchange: Exchange, send: Callable[[Message], Awaitable[object]]):
        self._exchange = exchange
        self._send = send
        self._queue: asyncio.Queue[tuple[float, Message] | None] = asyncio.Queue()
        self._sender: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        """Send one message.

        Raises:
            ConnectionEnds: the fault ``cut`` closed the connection.
        """
        if not self._exchange.latency_s:
            self._exchange.count()
            await self._send(message)
            return
        if self._sender is None:
            self._sender = asyncio.create_task(self._run())
        while self._queue.qsize() >= PENDING_MESSAGES and not self._sender.done():
            await asyncio.wait({self._sender}, timeout=self._exchange.latency_s)
        if self._sender.done():
            await self._sender
            raise ConnectionEnds
        due = asyncio.get_running_loop().time() + self._exchange.latency_s
        self._queue.put_nowait((due, message))

    async def finish(self) -> None:
        """Wait until everything is sent."""
        if self._sender is not None:
            self._queue.put_nowait(None)
            await self._sender

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while (item := await self._queue.get()) is not None:
            await asyncio.sleep(item[0] - loop.time())
            self._exchange.count()
            await self._send(item[1])


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, ConnectionError):
        await task
