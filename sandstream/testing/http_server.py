"""A small HTTP/1.1 server on asyncio: keep-alive, chunked streams, and deliberate faults.

Owns bytes and sockets: it parses requests, frames replies, pauses inside a reply, and can close a
socket in the middle of one. An immediate reply is written in the same loop iteration in which the
request was read, without a task. Knows nothing of models and scripts. For loopback and tests, not
for an open network: no TLS, no limits, no back-pressure.
"""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple

import msgspec

Piece = tuple[float, bytes]
"""A pause in seconds, and the bytes that follow it."""

_REASONS = {status.value: status.phrase for status in HTTPStatus}


class HttpRequest(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class Reply(msgspec.Struct, kw_only=True):
    """What to send, with delays and faults."""

    pieces: Sequence[Piece]
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = {}
    chunked: bool = False
    latency_s: float = 0.0
    dropped: bool = False
    """Close the socket instead of finishing."""
    drop_after_bytes: int | None = None
    """How much of the body is sent before that; ``None``: not even the head."""
    on_sent: Callable[[], None] | None = None

    def frames(self) -> list[Piece]:
        """The reply as bytes on the wire; pieces without a pause between them are joined."""
        if self.dropped and self.drop_after_bytes is None:
            return [(self.latency_s, b"")]
        frames: list[Piece] = []
        pause, pending = self.latency_s, [self._head()]
        left = self.drop_after_bytes if self.dropped else None
        for delay, data in self.pieces:
            sent = data if left is None else data[:left]
            if left is not None:
                left -= len(sent)
            if delay > 0:
                frames.append((pause, b"".join(pending)))
                pause, pending = delay, []
            if sent:
                pending.append(b"%x\r\n%b\r\n" % (len(sent), sent) if self.chunked else sent)
            if left == 0:
                break
        if self.chunked and not self.dropped:
            pending.append(b"0\r\n\r\n")
        frames.append((pause, b"".join(pending)))
        return frames

    def _head(self) -> bytes:
        if self.chunked:
            framing = "transfer-encoding: chunked"
        else:
            framing = f"content-length: {sum(len(data) for _, data in self.pieces)}"
        lines = [
            f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Unknown')}",
            f"content-type: {self.content_type}",
            framing,
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


Handler = Callable[[HttpRequest], Reply]


class HttpServer:
    """The caller of `start` must call `stop`, on the same loop."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> int:
        """Start listening and return the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._handler, self._connections, loop),
            host=host,
            port=port,
            backlog=1024,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening and abort every connection, answered or not."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        await self._server.wait_closed()
        self._server = None


class _Connection(asyncio.Protocol):
    def __init__(
        self,
        handler: Handler,
        connections: "set[_Connection]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._handler = handler
        self._connections = connections
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._busy = False
        self._frames: list[Piece] = []
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._serve()

    def _serve(self) -> None:
        """Answer the received requests one after the other, until a reply has to wait."""
        while not self._busy and self._transport is not None and not self._transport.is_closing():
            try:
                request = self._take_request()
            except ValueError:
                self._transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                self._transport.close()
                return
            if request is None:
                return
            reply = self._handler(request)
            closing = reply.dropped or request.headers.get("connection", "").lower() == "close"
            self._busy = True
            self._frames = reply.frames()[::-1]
            self._send(reply, closing)

    def _send(self, reply: Reply, closing: bool, *, waited: bool = False) -> None:
        transport = self._transport
        if transport is None:
            return
        while self._frames:
            pause, data = self._frames[-1]
            if pause > 0 and not waited:
                self._timer = self._loop.call_later(pause, self._resume, reply, closing)
                return
            waited = False
            self._frames.pop()
            transport.write(data)
        self._timer = None
        self._busy = False
        if reply.on_sent is not None and not reply.dropped:
            reply.on_sent()
        if closing:
            transport.close()

    def _resume(self, reply: Reply, closing: bool) -> None:
        self._send(reply, closing, waited=True)
        self._serve()

    def _take_request(self) -> HttpRequest | None:
        """Take the next complete request from the buffer; ``None`` while it is incomplete."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        start = end + 4
        if headers.get("transfer-encoding", "").lower() == "chunked":
            unchunked = _unchunk(self._buffer, start)
            if unchunked is None:
                return None
            body, stop = unchunked
        else:
            stop = start + int(headers.get("content-length", "0"))
            if len(self._buffer) < stop:
                return None
            body = bytes(self._buffer[start:stop])
        del self._buffer[:stop]
        return HttpRequest(method, path, headers, body)


def _unchunk(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    """A chunked body and where it ends; ``None`` while it is incomplete."""
    body = bytearray()
    while True:
        line_end = buffer.find(b"\r\n", start)
        if line_end < 0:
            return None
        size = int(buffer[start:line_end].split(b";")[0], 16)
        stop = line_end + 2 + size + 2
        if len(buffer) < stop:
            return None
        if size == 0:
            return bytes(body), stop
        body += buffer[line_end + 2 : stop - 2]
        start = stop
