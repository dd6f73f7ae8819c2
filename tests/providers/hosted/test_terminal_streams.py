"""The streams over a terminal: nothing stays open, however they end."""

from __future__ import annotations

import asyncio

import pytest
from sandstream_providers.hosted.streams import streams_of


class SilentTerminal:
    """Says nothing until it is closed."""

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def send(self, data: bytes) -> None:
        del data

    async def receive(self) -> bytes:
        await self._closed.wait()
        return b""

    async def close(self) -> None:
        self._closed.set()


@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_cancelled_pump_closes_its_socket(cancels: int, is_running: bool) -> None:
    """The end of an event loop cancels it at any moment, also before it began or while it ends."""

    async def story() -> None:
        tasks: set[asyncio.Task[None]] = set()
        opening = asyncio.ensure_future(streams_of(SilentTerminal(), b"", tasks))
        await asyncio.sleep(0)
        (task,) = tasks
        if is_running:
            await opening
            await asyncio.sleep(0)
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])
        reader, writer = await opening
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()

    asyncio.run(story())
