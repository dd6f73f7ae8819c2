"""One client's connection: frames in, frames out, never more waiting to go out than needed."""

from __future__ import annotations

import os
import socket
from collections import deque

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.loop import READ, WRITE, Loop

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Optional, Tuple

    Frame = Tuple[Any, bytes]
    Queued = Tuple[memoryview, Optional[Callable[[], None]]]


CHUNK = 256 * 1024
ENOUGH_WAITING = 1024 * 1024
LINGER_S = 1.0
LINGER_BYTES = 1024 * 1024


class Streams:
    """A pair of descriptors that is used like a socket."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self.target = target

    def fileno(self) -> int:
        return self._source

    def setblocking(self, flag: bool) -> None:
        os.set_blocking(self._source, flag)
        os.set_blocking(self.target, flag)

    def recv(self, size: int) -> bytes:
        return os.read(self._source, size)

    def send(self, data: memoryview) -> int:
        return os.write(self.target, data)

    def close(self) -> None:
        os.close(self._source)
        os.close(self.target)


class Connection:
    """``on_frame`` gets each request. ``on_close`` is called once, whichever side closes."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket | Streams,
        on_frame: Callable[[Connection, dict[str, Any], bytes], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._out_fd: int = getattr(sock, "target", self._fd)
        self.on_frame = on_frame
        self.on_close = on_close
        self.on_bad_frame: Callable[[Connection, wire.BadFrame], None] | None = None
        """Called instead of closing."""
        self.most_bytes = 0
        """A frame may have so many bytes; 0: only the limits of the protocol hold."""
        self._discarded: int | None = None
        """The bytes that were thrown away since the peer was refused."""
        self._in = bytearray()
        self._out: deque[Queued] = deque()
        self._out_bytes = 0
        self._sources: deque[Iterator[Frame]] = deque()
        self._watching_write = False
        self.open = True
        sock.setblocking(False)
        loop.watch(self._fd, READ, self._ready)

    @property
    def congested(self) -> bool:
        return self._out_bytes > ENOUGH_WAITING

    def send(
        self,
        header: dict[str, Any],
        payload: bytes = b"",
        sent: Callable[[], None] | None = None,
    ) -> None:
        """Queue a frame. ``sent`` is called when it has gone out, or never will."""
        if not self.open:
            if sent is not None:
                sent()
            return
        self._queue(header, payload, sent)
        self._write()

    def send_all(self, frames: Iterator[Frame]) -> None:
        """Frames that are made only when there is room for them."""
        if self.open:
            self._sources.append(frames)
            self._write()

    def refuse(self, error: dict[str, Any]) -> None:
        """Send a last frame with this error, then close. What the peer still sends is thrown away
        for a moment: closing at once would throw away the error as well.
        """
        self.send({"id": 0, "error": error})
        if not self.open or not isinstance(self._socket, socket.socket):
            self.close()
            return
        self._discarded = 0
        self._in.clear()
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self._loop.after(LINGER_S, self.close)

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        self._loop.unwatch(self._fd)
        self._loop.unwatch(self._out_fd)
        self._socket.close()
        self._sources.clear()
        waiting, self._out = self._out, deque()
        for _, sent in waiting:
            if sent is not None:
                sent()
        self.on_close(self)

    def _queue(
        self, header: dict[str, Any], payload: bytes, sent: Callable[[], None] | None
    ) -> None:
        head = wire.encode(header, len(payload))
        if len(payload) <= CHUNK:
            head += payload
            payload = b""
        self._out.append((memoryview(head), None if payload else sent))
        if payload:
            self._out.append((memoryview(payload), sent))
        self._out_bytes += len(head) + len(payload)

    def _ready(self, events: int) -> None:
        if events & READ:
            self._read()
        if events & WRITE and self.open:
            self._write()

    def _read(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.close()
            return
        self._in += data
        try:
            self._take_frames()
        except wire.BadFrame as error:
            if self.on_bad_frame is None:
                self.close()
            else:
                self.on_bad_frame(self, error)

    def _take_frames(self) -> None:
        start = 0
        prefix = wire.LENGTHS.size
        while self.open and len(self._in) - start >= prefix:
            header, payload = wire.lengths(bytes(self._in[start : start + prefix]))
            if self.most_bytes and header + payload > self.most_bytes:
                raise wire.BadFrame(f"a frame of {header + payload} bytes")
            body = start + prefix
            end = body + header + payload
            if len(self._in) < end:
                break
            request = wire.decode(bytes(self._in[body : body + header]))
            content = bytes(memoryview(self._in)[body + header : end])
            start = end
            self.on_frame(self, request, content)
        del self._in[:start]

    def _write(self) -> None:
        while self.open:
            while self._sources and not self.congested:
                try:
                    header, payload = next(self._sources[0])
                except StopIteration:
                    self._sources.popleft()
                else:
                    self._queue(header, payload, None)
            if not self._out:
                break
            data, sent = self._out[0]
            try:
                count = self._socket.send(data)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return
            self._out_bytes -= count
            if count < len(data):
                self._out[0] = (data[count:], sent)
                continue
            self._out.popleft()
            if sent is not None:
                sent()
        self._watch_write(bool(self._out))

    def _watch_write(self, wanted: bool) -> None:
        if not self.open or wanted == self._watching_write:
            return
        self._watching_write = wanted
        if self._out_fd == self._fd:
            self._loop.watch(self._fd, READ | WRITE if wanted else READ, self._ready)
        elif wanted:
            self._loop.watch(self._out_fd, WRITE, self._ready)
        else:
            self._loop.unwatch(self._out_fd)
