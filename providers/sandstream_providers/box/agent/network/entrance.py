"""Lets in the peers that know the token. Before that a peer may send one small frame.

The frame is ``{"id", "do": "hello", "token"}``. A peer that sends anything else, or nothing in
time, gets an error and is cut off. It costs the agent a few kilobytes and no thread. The number of
peers without a token is bounded: the oldest one makes room for a new one.
"""

from __future__ import annotations

import socket

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.loop import Loop, Timer
from sandstream_providers.box.agent.network.connection import Connection
from sandstream_providers.box.agent.refused import Refused

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable

    OnFrame = Callable[[Connection, dict[str, Any], bytes], None]
    OnClose = Callable[[Connection], None]


HELLO_S = 10.0
HELLO_BYTES = 4096
MOST_WAITING = 64


class Entrance:
    """Peers between their connection and their first frame."""

    def __init__(self, loop: Loop, token: str, on_frame: OnFrame, on_close: OnClose) -> None:
        from hmac import compare_digest  # not loaded by agents without a token

        self._compare = compare_digest
        self._loop = loop
        self._token = token.encode()
        self._on_frame = on_frame
        self._on_close = on_close
        self._waiting: dict[Connection, Timer] = {}
        self._refused: dict[Connection, None] = {}
        """Peers that may still read why, oldest first."""

    def accept(self, sock: socket.socket) -> None:
        connection = Connection(self._loop, sock, self._hello, self._gone)
        connection.most_bytes = HELLO_BYTES
        connection.on_bad_frame = self._bad_frame
        late = f"the token did not come within {HELLO_S:.0f} s"
        self._waiting[connection] = self._loop.after(
            HELLO_S, lambda: self._refuse(connection, late)
        )
        if len(self._waiting) > MOST_WAITING:
            self._refuse(next(iter(self._waiting)), "too many peers have not shown the token")

    def _hello(self, connection: Connection, request: dict[str, Any], _payload: bytes) -> None:
        token = request.get("token")
        if request.get("do") != "hello" or not isinstance(token, str):
            self._refuse(connection, "this agent wants a token first")
        elif not self._compare(wire.to_bytes(token), self._token):
            self._refuse(connection, "the token is wrong")
        else:
            self._waiting.pop(connection).cancel()
            connection.most_bytes = 0
            connection.on_frame = self._on_frame
            connection.on_close = self._on_close
            connection.on_bad_frame = None
            connection.send({"id": request.get("id"), "ok": True})

    def _bad_frame(self, connection: Connection, error: wire.BadFrame) -> None:
        self._refuse(connection, f"this agent wants a token first, not {error}")

    def _refuse(self, connection: Connection, message: str) -> None:
        self._gone(connection)
        self._refused[connection] = None
        connection.refuse(Refused("NotPermitted", message).as_dict())
        if len(self._refused) > MOST_WAITING:
            next(iter(self._refused)).close()

    def _gone(self, connection: Connection) -> None:
        self._refused.pop(connection, None)
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()
