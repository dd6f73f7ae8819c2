"""A tiny HTTP/1.1 server on loopback that records requests and gives scripted replies.

It knows nothing of any model API: what it answers is what the test wrote down, byte for byte.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Recorded:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What the server says; `pieces` are written one by one, then `cut` drops the connection."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()
    cut: bool = False
    hold_s: float = 0.0


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    named.setdefault("content-type", "application/json")
    return Reply(status=status, body=json.dumps(value).encode(), headers=named)


def sse_reply(
    events: Iterable[Any], *, done: bool = False, cut: bool = False, **headers: str
) -> Reply:
    """Server-sent events; a dict with a `type` also gets the `event:` line, as OpenAI sends it."""
    pieces = []
    for event in events:
        name = event.get("type") if isinstance(event, dict) else None
        head = f"event: {name}\n" if name else ""
        pieces.append(f"{head}data: {json.dumps(event)}\n\n".encode())
    if done:
        pieces.append(b"data: [DONE]\n\n")
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    named.setdefault("content-type", "text/event-stream")
    return Reply(pieces=tuple(pieces), headers=named, cut=cut)


class RecordingServer:
    """`async with RecordingServer([...]) as server:` serves the replies in order."""

    def __init__(self, replies: Iterable[Reply] | Callable[[Recorded], Reply]) -> None:
        self._script = replies if callable(replies) else None
        self._replies = [] if callable(replies) else list(replies)
        self.requests: list[Recorded] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    @property
    def bodies(self) -> list[Any]:
        return [request.json for request in self.requests]

    async def __aenter__(self) -> RecordingServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(self.connections, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(connection, reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one(
        self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (line.split(":", 1) for line in lines if line)
        headers = {name.lower(): text.strip() for name, text in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        recorded = Recorded(method, path, headers, body, connection)
        self.requests.append(recorded)
        reply = self._next(recorded)
        if reply.hold_s:
            await asyncio.sleep(reply.hold_s)
        return await _write(reply, writer)

    def _next(self, recorded: Recorded) -> Reply:
        if self._script is not None:
            return self._script(recorded)
        if not self._replies:
            return json_reply({"error": {"message": "the test script is used up"}}, status=400)
        return self._replies.pop(0)


async def _write(reply: Reply, writer: asyncio.StreamWriter) -> bool:
    if reply.cut and not reply.pieces:
        return False
    headers = dict(reply.headers)
    if reply.pieces:
        headers["transfer-encoding"] = "chunked"
    else:
        headers["content-length"] = str(len(reply.body))
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    writer.write(f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode("latin-1"))
    for piece in reply.pieces:
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
    if reply.cut:
        return False
    writer.write(b"0\r\n\r\n" if reply.pieces else reply.body)
    await writer.drain()
    return True
