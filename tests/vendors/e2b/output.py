"""Events of a process for the clients that follow it, and its pipes.

As in the vendor's daemon, output is read only as fast as the slowest follower takes it, and output
that no client follows is discarded.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncGenerator
from typing import Any

Event = dict[str, Any]
_PENDING_EVENTS = 16


class Subscription:
    """One client's view of a process, from the moment it connects."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event | None] = asyncio.Queue(_PENDING_EVENTS)
        """``None`` is the end."""
        self.closed = False

    def close(self) -> None:
        """Stop following. A publisher that waits for this client goes on."""
        self.closed = True
        while not self.events.empty():
            self.events.get_nowait()


class Publisher:
    """Gives each event to every client that follows."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []

    def subscribe(self) -> Subscription:
        subscription = Subscription()
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        subscription.close()
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    async def publish(self, event: Event | None) -> None:
        for subscription in tuple(self._subscriptions):
            if not subscription.closed:
                await subscription.events.put(event)


class OutputPipe:
    """One output of a process: a pipe, or the terminal."""

    def __init__(self, kind: str, fd: int, chunk_bytes: int) -> None:
        self._kind = kind
        self._fd = fd
        self._chunk_bytes = chunk_bytes
        self._transport: asyncio.ReadTransport | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """Until every holder of the other end has closed it."""
        reader = asyncio.StreamReader(limit=self._chunk_bytes)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._fd, "rb", 0)
        )
        with contextlib.suppress(OSError):  # EIO: the last holder of the terminal is gone
            while data := await reader.read(self._chunk_bytes):
                yield {"data": {self._kind: base64.b64encode(data).decode()}}

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        else:
            os.close(self._fd)


class InputPipe:
    """What clients write to a process; a write waits until the process has room for it."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.closed = False
        self._turn = asyncio.Lock()
        self._room_made = asyncio.Event()

    async def write(self, data: bytes) -> None:
        """Raises ``OSError`` if the process has closed its end."""
        async with self._turn:
            view = memoryview(data)
            while view:
                if self.closed:
                    raise BrokenPipeError
                try:
                    view = view[os.write(self.fd, view) :]
                except BlockingIOError:
                    await self._room()

    async def _room(self) -> None:
        loop = asyncio.get_running_loop()
        self._room_made.clear()
        loop.add_writer(self.fd, self._room_made.set)
        try:
            await self._room_made.wait()
        finally:
            if not self.closed:
                loop.remove_writer(self.fd)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._room_made.set()
            asyncio.get_running_loop().remove_writer(self.fd)
            os.close(self.fd)
