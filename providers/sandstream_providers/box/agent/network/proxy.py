"""``agent proxy JSON``: the only way out for a box that has no network itself.

It runs beside the box, where there is a network, and listens on a unix socket that the box sees. It
speaks HTTP as proxies do: CONNECT for encrypted connections, whole addresses for plain ones. Hosts
that are not on its list are refused. A name on the list that leads to an address that is not public
is refused too: else the owner of the name would reach the machines around the engine. An address
that is on the list itself is meant.
"""

from __future__ import annotations

import json
import os
import socket

from sandstream_providers.box.agent import lease
from sandstream_providers.box.agent.loop import READ, Loop
from sandstream_providers.box.agent.network.ports import Pipe
from sandstream_providers.box.agent.network.transports import Listener, unix_listener
from sandstream_providers.box.agent.workers import Workers

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


HEAD_BYTES = 16 * 1024
CONNECT_S = 20.0
USUAL_PORTS = (80, 443)
END = b"\r\n\r\n"


class Denied(Exception):
    """What the peer is told."""


def proxy(text: str) -> None:
    """Serve until the box's lease is over."""
    config: dict[str, Any] = json.loads(text)
    config["lease_fd"] = os.open(config["lease"], os.O_RDONLY | os.O_CLOEXEC)
    loop = Loop()
    gate = Gate(loop, config["hosts"])
    Listener(loop, unix_listener(config["listen"]), gate.accept)
    os.chmod(config["listen"], 0o666)
    lease.watch(loop, config, lambda: False)
    loop.catch_signals(lambda: None)
    loop.run()
    os._exit(0)


class Gate:
    """Lets connections to hosts of a list through."""

    def __init__(self, loop: Loop, hosts: list[str]) -> None:
        self._loop = loop
        self._hosts = [_entry(host) for host in hosts]
        self._workers = Workers()

    def accept(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        head = bytearray()
        self._loop.watch(sock.fileno(), READ, lambda _events: self._read(sock, head))

    def _read(self, sock: socket.socket, head: bytearray) -> None:
        try:
            data = sock.recv(HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        head += data
        if data and END not in head and len(head) < HEAD_BYTES:
            return
        self._loop.unwatch(sock.fileno())
        if END not in head:
            sock.close()
            return
        self._workers.do(lambda: self._open(sock, bytes(head)))

    def _open(self, sock: socket.socket, head: bytes) -> None:
        """In a worker: finding a name and connecting may take long."""
        sock.setblocking(True)
        sock.settimeout(CONNECT_S)
        try:
            host, port, first, answer = _request(head)
            there = self._connected(host, port)
        except (Denied, OSError) as error:
            status = "403 Forbidden" if isinstance(error, Denied) else "502 Bad Gateway"
            _refuse(sock, status, str(error))
            return
        try:
            there.sendall(first)
            sock.sendall(answer)
        except OSError:
            there.close()
            sock.close()
            return
        there.setblocking(False)
        sock.setblocking(False)
        self._loop.post(lambda: _join(self._loop, sock, there))

    def _connected(self, host: str, port: int) -> socket.socket:
        from ipaddress import ip_address

        if not any(_fits(entry, host, port) for entry in self._hosts):
            raise Denied(f"this sandbox may not reach {host}:{port}")
        is_literal = any(entry[0] == host for entry in self._hosts) and _is_address(host)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            if not is_literal and not ip_address(str(address[0]).partition("%")[0]).is_global:
                continue
            there = socket.socket(family, kind, protocol)
            there.settimeout(CONNECT_S)
            try:
                there.connect(address)
            except OSError:
                there.close()
                continue
            return there
        raise Denied(f"{host}:{port} has no public address that can be reached")


def _join(loop: Loop, sock: socket.socket, there: socket.socket) -> None:
    Pipe(loop, sock, there, lambda: None)


def _entry(text: str) -> tuple[str, tuple[int, ...]]:
    """A host with the ports that are allowed: the usual ones, unless it names one."""
    host, colon, port = text.lower().rpartition(":")
    if colon and port.isdigit() and "]" not in port and host.count(":") == 0:
        return host, (int(port),)
    return text.lower().strip("[]"), USUAL_PORTS


def _fits(entry: tuple[str, tuple[int, ...]], host: str, port: int) -> bool:
    name, ports = entry
    if port not in ports:
        return False
    return host == name or (name.startswith("*.") and host.endswith(name[1:]))


def _is_address(host: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _request(head: bytes) -> tuple[str, int, bytes, bytes]:
    """The host, the port, what to send there first, and what to answer first."""
    from urllib.parse import urlsplit

    lines, _, body = head.partition(END)
    first, *fields = lines.split(b"\r\n")
    words = first.decode("latin-1").split(" ")
    if len(words) != 3:
        raise Denied("this is a proxy for HTTP")
    method, target, version = words
    try:
        if method == "CONNECT":
            place = urlsplit(f"//{target}")
            return _host(place.hostname), place.port or 443, body, b"HTTP/1.1 200 OK" + END
        place = urlsplit(target)
        port = place.port or 80
    except ValueError:
        raise Denied(f"not an address: {target[:200]}") from None
    if place.scheme != "http":
        raise Denied("this proxy wants whole addresses: http://host/path")
    path = (place.path or "/") + (f"?{place.query}" if place.query else "")
    kept = [it for it in fields if not it.lower().startswith((b"proxy-", b"connection:"))]
    start = f"{method} {path} {version}".encode("latin-1")
    lines = b"\r\n".join([start, *kept, b"Connection: close"])
    return _host(place.hostname), port, lines + END + body, b""


def _host(name: str | None) -> str:
    if not name:
        raise Denied("the address has no host")
    return name.lower().rstrip(".")


def _refuse(sock: socket.socket, status: str, text: str) -> None:
    said = (text + "\n").encode("utf-8", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(said)}\r\nConnection: close"
    try:
        sock.sendall(head.encode() + END + said)
    except OSError:
        pass  # it has gone
    finally:
        sock.close()
