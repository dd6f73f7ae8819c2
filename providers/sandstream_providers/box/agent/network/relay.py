"""``agent relay PATH``: connects standard input and output to the agent's unix socket.

For hosts that can only execute programs in a box. Each connection is one execution; the agent and
its commands live on when the execution ends. Where the end of the other side may go unnoticed, the
relay ends by itself after a time without input.
"""

from __future__ import annotations

import os
import select
import socket
import threading

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHUNK = 256 * 1024


def relay(path: str, idle_s: float | None = None, *, packed: bool = False) -> None:
    """Does not return. ``packed``: standard input and output are packed, see :mod:`.packer`."""
    pack: Callable[[bytes], bytes] = bytes
    unpack: Callable[[bytes], Iterable[bytes]] = _unchanged
    if packed:
        from sandstream_providers.box.agent.network.packer import Packer, Unpacker

        pack, unpack = Packer().packed, Unpacker().pieces
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError as error:
        raise SystemExit(f"no agent listens on {path}: {error}") from None
    threading.Thread(target=_send, args=(sock, idle_s, unpack), daemon=True).start()
    try:
        while True:
            data = sock.recv(CHUNK)
            if not data:
                break
            _write(pack(data))
    except OSError:
        pass  # one of the two has gone: the other sees its stream end
    os._exit(0)


def _unchanged(data: bytes) -> list[bytes]:
    return [data]


def _send(
    sock: socket.socket, idle_s: float | None, unpack: Callable[[bytes], Iterable[bytes]]
) -> None:
    try:
        while select.select([0], [], [], idle_s)[0]:
            data = os.read(0, CHUNK)
            if not data:
                break
            for piece in unpack(data):
                sock.sendall(piece)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        os._exit(1)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
