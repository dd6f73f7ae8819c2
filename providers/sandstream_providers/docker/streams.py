"""Executions in a container with their streams, over one connection to the engine each.

The engine puts output and error output into frames of one stream. The library for the engine may
lose what comes together with its first answer, so an execution must say nothing before it is
spoken to.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

from sandstream_providers.box.link import Streams

STDOUT, STDERR = 1, 2
_HEAD = struct.Struct(">BxxxL")
_CHUNK = 256 * 1024


class Framed:
    """A connection on which the engine frames what a program says. All methods block: they are for
    threads.
    """

    def __init__(self, found: Any) -> None:
        """Args:
        found: What the library returns for a stream that is asked for as a socket.
        """
        self._found = found
        self._socket: Any = getattr(found, "_sock", found)
        self._socket.settimeout(None)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def end_input(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def set_timeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def frame(self) -> tuple[int, bytes]:
        """The next piece of output, and of which stream. No bytes: it has ended."""
        kind, size = _HEAD.unpack(self._exactly(_HEAD.size, may_end=True) or bytes(_HEAD.size))
        return (kind, self._exactly(size)) if size else (kind, b"")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        response = getattr(self._found, "_response", None)
        if response is not None:
            response.close()
        self._found.close()
        self._socket.close()

    def _exactly(self, size: int, *, may_end: bool = False) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data = self._socket.recv(min(size - len(parts), _CHUNK))
            if not data:
                if may_end and not parts:
                    return b""
                raise ConnectionResetError("the stream of an execution broke")
            parts += data
        return bytes(parts)


class Execution(Framed):
    """One program that was started in a container that runs."""

    def __init__(self, api: Any, container: str, argv: Sequence[str], user: str = "") -> None:
        made = api.exec_create(container, list(argv), stdin=True, stdout=True, user=user)
        self.id = str(made["Id"])
        self._api = api
        super().__init__(api.exec_start(self.id, socket=True))

    def exit_code(self) -> int:
        return int(self._api.exec_inspect(self.id)["ExitCode"] or 0)


def said_by(api: Any, container: str, timeout_s: float) -> bytes:
    """Start a container, and give it a line; all that it says until it ends.

    It must say nothing before it has read that line: the engine may begin to listen only after the
    start, and forgets what was said before.
    """
    asked = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
    stream = Framed(api.attach_socket(container, params=asked))
    try:
        api.start(container)
        stream.set_timeout(timeout_s)
        with contextlib.suppress(OSError):  # it has ended already, and the reader sees that
            stream.send(b"\n")
        parts = bytearray()
        while (part := stream.frame()[1]) != b"":
            parts += part
        return bytes(parts)
    finally:
        stream.close()


async def connected(execution: Execution) -> Streams:
    """Its input and output as a connection. The execution ends with the connection."""
    ours, theirs = socket.socketpair()
    for pump in (_pump_in, _pump_out):
        threading.Thread(target=pump, args=(execution, theirs), daemon=True).start()
    return await asyncio.open_connection(sock=ours)


def _pump_in(execution: Execution, theirs: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other thread sees the same end, and closes both
        while data := theirs.recv(_CHUNK):
            execution.send(data)
        execution.end_input()


def _pump_out(execution: Execution, theirs: socket.socket) -> None:
    try:
        while True:
            kind, data = execution.frame()
            if not data:
                break
            if kind == STDOUT:
                theirs.sendall(data)
    except OSError:
        pass  # one of the two has gone: the other sees its stream end
    finally:
        with contextlib.suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)
        theirs.close()
        execution.close()
