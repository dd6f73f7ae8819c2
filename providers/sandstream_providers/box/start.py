"""How a host starts the agent in a box, and reaches it.

The host writes :func:`agent_source` into a file of the box and runs :func:`agent_command` there.
The agent wants Python 3.8 or newer and nothing else. With ``unix`` and ``tcp`` it prints one line
of JSON, ``{"listening": {"tcp": ["127.0.0.1", 40123]}}``, when it can be reached.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from sandstream_providers.box.agent.network.transports import TOKEN as TOKEN
from sandstream_providers.box.link import Streams
from sandstream_providers.box.package import agent_source as agent_source
from sandstream_providers.interface import BoxSpec
from sandstream_providers.processes import BASE_ENV

_MB = 1024 * 1024
_children: list[subprocess.Popen[bytes]] = []
"""Processes that may have ended: the next call collects them."""


def new_token() -> str:
    """What the agent's peer must know. The agent reads it from the variable ``TOKEN``."""
    return secrets.token_urlsafe(32)


def agent_config(
    spec: BoxSpec, root: str, base_env: Mapping[str, str] = BASE_ENV
) -> dict[str, Any]:
    """What the agent must know of the box, whichever way it is reached."""
    limits = spec.limits
    return {
        "root": root,
        "env": {**base_env, "HOME": root, **spec.env},
        "output_bytes": limits.output_mb * _MB,
        "memory_bytes": None if limits.memory_mb is None else limits.memory_mb * _MB,
        "wall_s": limits.wall_s,
    }


def agent_command(
    spec: BoxSpec,
    *,
    agent: str,
    root: str,
    jobs: str,
    unix: str = "",
    tcp: str = "",
    streams: bool = False,
    python: str = "python3",
) -> list[str]:
    """The command line that starts the agent.

    Args:
        spec: The box; its environment and limits are the agent's business.
        agent: The file with :func:`agent_source`.
        root: The workspace. The agent makes it if it does not exist.
        jobs: A directory for the agent's records. It must outlive the agent.
        unix: Listen on a socket at this path. Set a token where commands can reach the path.
        tcp: Listen on this ``host:port``; port 0 lets the system choose. Needs a token.
        streams: Serve standard input and output.
        python: The interpreter in the box.
    """
    config = agent_config(spec, root) | {"jobs": jobs, "listen_streams": streams}
    config |= {"listen_unix": unix, "listen_tcp": tcp}
    return [python, "-I", "-S", agent, json.dumps(config)]


def start_file_command(*, agent: str, file: str, python: str = "python3") -> list[str]:
    """The command line that starts the agent with the settings in a file, as JSON.

    Besides those of :func:`agent_config` the file may have ``token``, ``lease`` (the path of the
    lease), ``take_ports`` (the path of a socket for listeners) and ``way_out`` (a port of the box,
    and the path of a proxy's socket). The agent removes the file.
    """
    return [python, "-I", "-S", agent, "from", file]


def proxy_command(config: str, *, agent: str, python: str = "python3") -> list[str]:
    """The command line of a proxy for a box without a network; ``config`` is JSON with ``hosts``,
    ``listen`` (the path of its socket), ``lease``, ``idle_s`` and ``busy_s``.
    """
    return [python, "-I", "-S", agent, "proxy", config]


def relay_command(*, agent: str, unix: str, python: str = "python3") -> list[str]:
    """The command line that connects its standard input and output to an agent's unix socket.

    Args:
        agent: The file with :func:`agent_source`.
        unix: The path of the agent's socket.
        python: The interpreter in the box.
    """
    return [python, "-I", "-S", agent, "relay", unix]


async def exec_streams(*argv: str) -> Streams:
    """The output and input of a new process of this machine, such as ``docker exec -i``.

    The process must end when its input ends. It is not waited for.

    Args:
        argv: The program and its arguments.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        _children[:] = [child for child in _children if child.poll() is None]
        fd = theirs.fileno()
        child = subprocess.Popen(argv, stdin=fd, stdout=fd)  # noqa: ASYNC220 - it only spawns
        _children.append(child)
    return await asyncio.open_connection(sock=ours)
