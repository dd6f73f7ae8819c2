"""Takes listeners of the host's network, for the ports of a box that has a network of its own.

A socket stays in the network namespace in which it was made. So a process of the host makes the
listeners and passes them to this one: one message with the token, the ports and the descriptors, on
a separate socket. The answer says where each port can be reached. A port that already has a
listener keeps it, so a request can be repeated. A request without descriptors only asks.
"""

from __future__ import annotations

import json
import os
import socket
import struct

from sandstream_providers.box.agent.loop import READ, Loop
from sandstream_providers.box.agent.network.ports import Forwarder
from sandstream_providers.box.agent.network.transports import Listener, unix_listener

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


MESSAGE_BYTES = 64 * 1024
MOST_PORTS = 200
"""One message of the kernel carries 253 descriptors."""
FD = struct.Struct("i")


class Handover:
    """Listens for listeners."""

    def __init__(self, loop: Loop, path: str, token: str) -> None:
        self._loop = loop
        self._token = token.encode()
        self._places: dict[int, tuple[str, int]] = {}
        Listener(loop, unix_listener(path, socket.SOCK_SEQPACKET), self._accept)

    def _accept(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._loop.watch(sock.fileno(), READ, lambda _events: self._take(sock))

    def _take(self, sock: socket.socket) -> None:
        self._loop.unwatch(sock.fileno())
        try:
            room = socket.CMSG_SPACE(MOST_PORTS * FD.size)
            data, extra, _, _ = sock.recvmsg(MESSAGE_BYTES, room, socket.MSG_CMSG_CLOEXEC)
            fds = [
                fd
                for level, kind, packed in extra
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
                for (fd,) in FD.iter_unpack(packed[: len(packed) // FD.size * FD.size])
            ]
            answer = self._answer(data, fds)
            sock.send(json.dumps(answer).encode())
        except OSError:
            pass  # the peer has gone; it asks again
        finally:
            sock.close()

    def _answer(self, data: bytes, fds: list[int]) -> dict[str, Any]:
        from hmac import compare_digest  # not loaded by agents without ports

        try:
            request = json.loads(data)
            token, ports = str(request["token"]), [int(port) for port in request["ports"]]
        except (ValueError, KeyError, TypeError):
            token, ports = "", []
        if not compare_digest(token.encode(), self._token):
            for fd in fds:
                os.close(fd)
            return {"error": "the token is wrong"}
        for port, fd in zip(ports, fds):
            if port in self._places:
                os.close(fd)
                continue
            listener = socket.socket(fileno=fd)
            self._places[port] = listener.getsockname()[:2]
            Forwarder(self._loop, listener, port)
        for fd in fds[len(ports) :]:
            os.close(fd)
        return {"ports": {str(port): place for port, place in self._places.items()}}
