"""The ways in: an inherited listener, a unix socket, TCP with a token, or a pair of streams.

The settings ``listen_fd``, ``listen_unix`` (a path), ``listen_tcp`` (``host:port``) and
``listen_streams`` (true) may be combined. With streams alone the agent ends when they end, because
no peer could reach it afterwards. A token guards unix sockets and TCP. TCP needs one.
"""

from __future__ import annotations

import json
import os
import socket

from sandstream_providers.box.agent.loop import READ, Loop
from sandstream_providers.box.agent.network.connection import Connection, Streams

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable

    Accept = Callable[[socket.socket], object]
    OnFrame = Callable[[Connection, dict[str, Any], bytes], None]
    OnClose = Callable[[Connection], None]


BACKLOG = 128
TOKEN = "SANDSTREAM_AGENT_TOKEN"
"""The variable with the token: the command line of a process can be read by all others."""
LEAST_TOKEN = 16


class Listener:
    """Accepts connections on one socket."""

    def __init__(self, loop: Loop, sock: socket.socket, accept: Accept) -> None:
        self._loop = loop
        self._socket = sock
        self._hand_on = accept
        sock.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._loop.watch(self._socket.fileno(), READ, self._accept)

    def _accept(self, _events: int) -> None:
        try:
            sock, _ = self._socket.accept()
        except OSError:  # the peer has gone, or there are no free descriptors: try again later
            self._loop.unwatch(self._socket.fileno())
            self._loop.after(0.05, self._listen)
            return
        self._hand_on(sock)


def take_token(config: dict[str, Any]) -> str:
    """The token of this agent, from its settings or its environment; commands do not inherit it."""
    token = str(config.pop("token", "")) or os.environ.pop(TOKEN, "")
    if len(token) < LEAST_TOKEN and (token or config.get("listen_tcp")):
        raise SystemExit(f"the agent needs a token of at least {LEAST_TOKEN} characters in {TOKEN}")
    return token


def take_streams() -> Streams:
    """Standard input and output, which no command and no stray message can reach from now on."""
    streams = Streams(os.dup(0), os.dup(1))
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return streams


def open_all(
    loop: Loop, config: dict[str, Any], token: str, on_frame: OnFrame, on_close: OnClose
) -> None:
    """Start to listen wherever the configuration says, and say where on standard output."""

    def serve(sock: socket.socket | Streams) -> Connection:
        return Connection(loop, sock, on_frame, on_close)

    guarded: Accept = serve
    if token:
        from sandstream_providers.box.agent.network.entrance import Entrance  # not in every box

        guarded = Entrance(loop, token, on_frame, on_close).accept
    inherited = config.get("listen_fd") is not None
    if inherited:
        Listener(loop, socket.socket(fileno=config["listen_fd"]), serve)
    where: dict[str, Any] = {}
    if config.get("listen_unix"):
        where["unix"] = config["listen_unix"]
        Listener(loop, unix_listener(config["listen_unix"]), guarded)
    if config.get("listen_tcp"):
        listener = tcp_listener(config["listen_tcp"])
        where["tcp"] = listener.getsockname()[:2]
        Listener(loop, listener, guarded)
    if config.get("streams") is not None:
        alone = not inherited and not where
        Connection(loop, config["streams"], on_frame, _then_stop(loop, on_close, alone))
    elif where:
        os.write(1, json.dumps({"listening": where}).encode() + b"\n")


def _then_stop(loop: Loop, on_close: OnClose, stops: bool) -> OnClose:
    def closed(connection: Connection) -> None:
        on_close(connection)
        if stops:
            loop.stop()

    return closed


def unix_listener(path: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A listener at a path, in the place of what an agent of before may have left there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, kind)
    before = os.umask(0o177)  # never open to others, not even for a moment
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener


def tcp_listener(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted ones inherit both
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.bind((host, int(port)))
    listener.listen(BACKLOG)
    return listener
