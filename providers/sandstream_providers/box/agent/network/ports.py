"""Ports: connections that come in on the host's side go to the same port inside.

The listeners belong to the host's network, this process to the sandbox's; a socket keeps the
network it was made in.
"""

from __future__ import annotations

import errno
import socket

from sandstream_providers.box.agent.loop import READ, WRITE, Loop

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Callable


BUFFER = 65536
MAX_CONNECTIONS = 200


class Forwarder:
    """Accepts on one listener, up to a number of connections; more have to wait."""

    def __init__(self, loop: Loop, listener: socket.socket, target: int | str) -> None:
        """``target``: a port of this network, or the path of a unix socket."""
        self._loop = loop
        self._listener = listener
        self._family = socket.AF_UNIX if isinstance(target, str) else socket.AF_INET
        self._target = target if isinstance(target, str) else ("127.0.0.1", target)
        self._open = 0
        listener.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._loop.watch(self._listener.fileno(), READ, self._accept)

    def _pause(self) -> None:
        self._loop.unwatch(self._listener.fileno())

    def _accept(self, _events: int) -> None:
        try:
            outer, _ = self._listener.accept()
            inner = socket.socket(self._family, socket.SOCK_STREAM)
        except OSError:  # it went away, or we are short of descriptors: try again later
            self._pause()
            self._loop.after(0.05, self._listen)
            return
        inner.setblocking(False)
        outer.setblocking(False)
        if inner.connect_ex(self._target) not in (0, errno.EINPROGRESS):
            inner.close()
            outer.close()
            return
        self._open += 1
        if self._open >= MAX_CONNECTIONS:
            self._pause()
        self._loop.watch(inner.fileno(), WRITE, lambda _events: self._connected(outer, inner))

    def _connected(self, outer: socket.socket, inner: socket.socket) -> None:
        self._loop.unwatch(inner.fileno())
        if inner.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            inner.close()
            outer.close()
            self._closed()
        else:
            Pipe(self._loop, outer, inner, self._closed)

    def _closed(self) -> None:
        self._open -= 1
        self._listen()


class Side:
    """One socket of a pair, and the bytes on their way to it."""

    __slots__ = ("closed_for_reading", "pending", "shut", "socket")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.pending = b""
        self.closed_for_reading = False
        self.shut = False


class Pipe:
    """Both directions of one connection. A side that reads slowly slows the other down."""

    def __init__(
        self,
        loop: Loop,
        outer: socket.socket,
        inner: socket.socket,
        closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._closed = closed
        self._sides = (Side(outer), Side(inner))
        self._watch()

    def _ready(self, index: int, events: int) -> None:
        here, there = self._sides[index], self._sides[1 - index]
        try:
            if events & READ and not here.closed_for_reading and not there.pending:
                self._read(here, there)
            if events & WRITE:
                self._write(here)
        except BlockingIOError:
            pass
        except OSError:
            self._close()
            return
        for source, target in ((here, there), (there, here)):
            if source.closed_for_reading and not target.pending and not target.shut:
                target.shut = True
                try:
                    target.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    self._close()
                    return
        if here.shut and there.shut:
            self._close()
        else:
            self._watch()

    def _read(self, here: Side, there: Side) -> None:
        data = here.socket.recv(BUFFER)
        if data:
            there.pending = data
            self._write(there)
        else:
            here.closed_for_reading = True

    def _write(self, side: Side) -> None:
        if side.pending:
            side.pending = side.pending[side.socket.send(side.pending) :]

    def _watch(self) -> None:
        for index, side in enumerate(self._sides):
            other = self._sides[1 - index]
            events = 0
            if not side.closed_for_reading and not other.pending:
                events |= READ
            if side.pending:
                events |= WRITE
            fd = side.socket.fileno()
            if events:
                self._loop.watch(fd, events, lambda ready, at=index: self._ready(at, ready))  # type: ignore[misc]
            else:
                self._loop.unwatch(fd)

    def _close(self) -> None:
        for side in self._sides:
            self._loop.unwatch(side.socket.fileno())
            side.socket.close()
        self._closed()
