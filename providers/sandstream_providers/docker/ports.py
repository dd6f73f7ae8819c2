"""Ports of a box with its own network: its agent accepts connections on this machine's loopback.

A listener is made here and passed to the agent, which keeps it as long as the box runs. No other
process is needed for it, and the box gets no network by it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from sandstream_providers.docker.folders import socket_address
from sandstream_providers.interface import BoxGone, PortUnavailable

Places = dict[int, tuple[str, int]]
_ANSWER_S = 10.0
_ANSWER_BYTES = 64 * 1024
_BACKLOG = 128


async def hand_over(path: Path, token: str, ports: Sequence[int]) -> Places:
    """Where each port can be reached. Listeners that the agent has already are not made again."""
    places = await asyncio.to_thread(_ask, path, token, (), ())
    missing = [port for port in ports if port not in places]
    if missing:
        with ExitStack() as stack:
            made = [stack.enter_context(_listener()) for _ in missing]
            places = await asyncio.to_thread(_ask, path, token, missing, made)
    return {port: places[port] for port in ports if port in places}


def _ask(
    path: Path, token: str, ports: Sequence[int], listeners: Sequence[socket.socket]
) -> Places:
    message = json.dumps({"token": token, "ports": list(ports)}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.settimeout(_ANSWER_S)
        try:
            with socket_address(path) as address:
                link.connect(address)
            if listeners:
                socket.send_fds(link, [message], [it.fileno() for it in listeners])
            else:
                link.send(message)
            answer = json.loads(link.recv(_ANSWER_BYTES) or b"{}")
        except OSError as error:
            raise BoxGone(f"the sandbox's agent does not take ports: {error}") from error
    if "ports" not in answer:
        raise PortUnavailable(f"the sandbox's agent refused the ports: {answer.get('error')}")
    return {int(port): (str(host), int(at)) for port, (host, at) in answer["ports"].items()}


def _listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
