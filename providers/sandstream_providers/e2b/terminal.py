"""A terminal in an E2B box: output comes over one stream, input goes in one request after another.

Both directions push back. Output that is not received stays in the box as soon as the queue here is
full, and a request with input is answered when the box's terminal has taken it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Self

from sandstream_providers.hosted.calls import within

logger = logging.getLogger(__name__)

CHUNK = 256 * 1024
"""Bytes of input in one request."""
SEND_S = 60.0
"""How long the programs on the terminal may leave one chunk unread."""
_CLOSE_S = 10.0
_MOST_EVENTS = 64
"""Of output, which wait here. Each has at most 32 KiB."""
_ROWS, _COLUMNS = 50, 200


class E2BTerminal:
    """Implements :class:`sandstream_providers.hosted.vendor.Terminal`."""

    def __init__(self, pty: Any) -> None:
        self._pty = pty
        self._handle: Any = None
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(_MOST_EVENTS)
        self._turn = asyncio.Lock()
        self._has_ended = False
        """The shell or its stream has ended."""
        self._is_broken = False
        """A piece of the input may be lost."""
        self._is_over = False
        """The last byte was received."""
        self._is_closed = False
        self._closing = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, sandbox: Any, size: Any, *, user: str | None = None, request_s: float
    ) -> Self:
        """Start a login shell on a new terminal, as ``user`` or as the template's own user. Errors
        of the SDK pass through.
        """
        terminal = cls(sandbox.pty)
        terminal._handle = handle = await sandbox.pty.create(
            size(rows=_ROWS, cols=_COLUMNS),
            terminal._arrived.put,
            user=user,
            timeout=0,  # else the shell is killed after a minute
            request_timeout=request_s,
        )
        # the SDK looks for the reason when a stream ends, and that request wakes a paused box again
        handle._check_health = None
        terminal._watch = asyncio.create_task(terminal._until_end())
        return terminal

    async def _until_end(self) -> None:
        # any exit code and any loss of the connection is an exception here
        await asyncio.gather(self._handle.wait(), return_exceptions=True)
        self._has_ended = True
        await self._arrived.put(b"")

    async def send(self, data: bytes) -> None:
        async with self._turn:
            for start in range(0, len(data), CHUNK):
                await self._sent(data[start : start + CHUNK])

    async def _sent(self, piece: bytes) -> None:
        if self._has_ended or self._is_broken or self._is_closed:
            raise ConnectionResetError("the terminal has ended")
        request = self._pty.send_stdin(self._handle.pid, piece, request_timeout=SEND_S)
        try:
            await within("write to the terminal", SEND_S, request)
        except Exception as error:
            self._is_broken = True
            raise ConnectionResetError(f"the terminal does not take input: {error}") from error

    async def receive(self) -> bytes:
        if self._is_over:
            return b""
        data = await self._arrived.get()
        self._is_over = not data
        return data

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def close(self) -> None:
        """The shell would live on without its stream, so it is killed."""
        await self._end(by_kill=not self._has_ended)

    async def leave(self) -> None:
        """End the connection only: the box is about to end the shell."""
        await self._end(by_kill=False)

    async def _end(self, *, by_kill: bool) -> None:
        """If it is being closed already, wait for that."""
        is_first, self._is_closed = not self._is_closed, True
        async with self._closing:
            if is_first:
                await self._ended(by_kill=by_kill)

    async def _ended(self, *, by_kill: bool) -> None:
        try:
            if by_kill:
                await self._kill()
        finally:
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.wait([self._watch])
            await self._disconnected()
            while not self._arrived.empty():
                self._arrived.get_nowait()
            self._arrived.put_nowait(b"")

    async def _disconnected(self) -> None:
        """Within a time: a pause or the end of a box must not hang on its terminal."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._handle.disconnect()
                # the SDK's own task: an error that no one asks for would be logged as forgotten
                await asyncio.gather(self._handle._wait, return_exceptions=True)
        except TimeoutError:
            logger.warning("a terminal's stream does not end", extra={"pid": self._handle.pid})

    async def _kill(self) -> None:
        pid = self._handle.pid
        kill = within("end a terminal", _CLOSE_S, self._pty.kill(pid, request_timeout=_CLOSE_S))
        outcome = (await asyncio.gather(kill, return_exceptions=True))[0]
        if isinstance(outcome, BaseException):  # its box may be asleep or gone
            logger.info("a terminal was not ended", extra={"pid": pid, "error": str(outcome)})
