"""How an agent in a container is reached: by its socket in a shared directory, or, where that does
not cross (a remote engine, a runtime with a kernel of its own), by an execution for each
connection. Which of them works is found out by trying.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from sandstream_providers.box.link import Streams, open_link
from sandstream_providers.box.start import relay_command
from sandstream_providers.docker import container
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.errors import EngineConflict, NoSuchContainer
from sandstream_providers.docker.folders import SOCKET, socket_address
from sandstream_providers.docker.seen import Seen, find, log_tail
from sandstream_providers.docker.streams import Execution, connected
from sandstream_providers.interface import BoxGone, ProviderError

UNIX, EXEC = "unix socket", "exec stream"
START_S = 30.0
"""How long an agent may take to answer after its container was started."""
SOCKET_S = 4.0
"""Then the other way is tried: the agent itself is up within a second."""
_LOOK_S = 0.3
_PAUSE_S = 0.01


async def first_contact(
    engine: Engine, key: str, seen: Seen, run: Path, token: str, link: str
) -> str:
    """Wait for the agent of a container that was just started; says how it is reached.

    Args:
        engine: Asked whether the container still runs.
        key: Of the box.
        seen: The container.
        run: The directory of this machine that the box shares.
        token: Of the agent.
        link: The only way to try; empty: find out.

    Raises:
        ProviderError: The container has ended, or nothing answers.
    """
    loop = asyncio.get_running_loop()
    began = looked = loop.time()
    while loop.time() - began < START_S:
        if link != EXEC and await _answers(unix_address(run), engine, token):
            return UNIX
        waited = loop.time() - began
        tries_exec = link == EXEC or (not link and waited > SOCKET_S)
        if tries_exec and await _answers(exec_address(seen), engine, token):
            # on a busy machine the agent may be up only now, and its socket with it
            is_late = link != EXEC and await _answers(unix_address(run), engine, token)
            return UNIX if is_late else EXEC
        if loop.time() - looked > _LOOK_S:
            looked = loop.time()
            now = await find(engine, key)
            if now is None or now.state == "stopped":
                code = f" with {now.exit_code}" if now is not None else ""
                tail = await log_tail(engine, seen.id)
                raise ProviderError(f"its first process ended{code}{tail}")
        await asyncio.sleep(_PAUSE_S if not tries_exec else _LOOK_S)
    tail = await log_tail(engine, seen.id)
    raise ProviderError(f"its agent did not answer within {START_S:.0f} s{tail}")


async def _answers(address: str, engine: Engine, token: str) -> bool:
    try:
        link = await open_link(lambda: connect(engine, address), token)
    except BoxGone:
        return False
    await link.close()
    return True


def unix_address(run: Path) -> str:
    return f"unix:{run / SOCKET}"


def exec_address(seen: Seen) -> str:
    return f"exec:{seen.id}:{seen.agent}:{seen.python}"


async def connect(engine: Engine, address: str) -> Streams:
    """A new connection to the agent at an address of ours. Raises OSError if none listens."""
    kind, _, place = address.partition(":")
    if kind == "unix":
        with socket_address(Path(place)) as path:
            return await asyncio.open_unix_connection(path)
    found, agent, python = place.split(":", 2)
    argv = relay_command(agent=agent, unix=f"{container.RUN}/{SOCKET}", python=python)
    try:
        execution = await engine.call(
            "connect to the agent of a sandbox", lambda api: Execution(api, found, argv)
        )
    except (NoSuchContainer, EngineConflict) as error:
        raise ConnectionRefusedError(str(error)) from error
    return await connected(execution)
