"""``agent relay PATH``: connects standard input and output to the agent's unix socket.

For hosts that can only execute programs in a box. Each connection is one execution; the agent and
its commands live on when the execution ends.
"""

from __future__ import annotations

import os
import socket
import threading

CHUNK = 256 * 1024


def relay(path: str) -> None:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError as error:
        raise SystemExit(f"no agent listens on {path}: {error}") from None
    threading.Thread(target=_send, args=(sock,), daemon=True).start()
    try:
        while True:
            data = sock.recv(CHUNK)
            if not data:
                break
            _write(data)
    except OSError:
        pass  # one of the two has gone: the other sees its stream end
    os._exit(0)


def _send(sock: socket.socket) -> None:
    try:
        while True:
            data = os.read(0, CHUNK)
            if not data:
                break
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        os._exit(1)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
