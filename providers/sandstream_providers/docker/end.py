"""Finding the container of a box, and ending it. No state: every process may do it at any time."""

from __future__ import annotations

import asyncio
import contextlib

from sandstream_providers.docker.container import keeper_key, proxy_key
from sandstream_providers.docker.engine import Engine, remove_container
from sandstream_providers.docker.errors import EngineConflict, EngineRefused, NoSuchContainer
from sandstream_providers.docker.folders import Folders
from sandstream_providers.docker.labels import box_key
from sandstream_providers.docker.seen import Seen, find
from sandstream_providers.interface import ProviderError
from sandstream_providers.removal import remove_tree

END_S = 30.0
_PAUSE_S = 0.02
_BUSY = "unable to freeze"
_AWAKE = ("not paused", "cannot resume a running process")
"""What an engine says of a container that needs no waking."""


async def ours(engine: Engine, key: str) -> Seen | None:
    """The container of a box; None if there is none, or one that is not ours."""
    seen = await find(engine, key)
    return seen if seen and box_key(seen.name, seen.labels) == key else None


async def end(engine: Engine, key: str, seen: Seen) -> None:
    """Kill all processes of a box and wait until they are gone."""
    doing = f"end the container of sandbox {key}"
    with contextlib.suppress(EngineConflict, NoSuchContainer):  # it has ended by itself
        await engine.call(doing, lambda api: api.kill(seen.id))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_S
    while (now := await find(engine, key)) is not None and now.state != "stopped":
        if now.state == "paused":
            await wake(engine, now)  # it dies as soon as it is awake
        if loop.time() > deadline:
            raise ProviderError(f"cannot {doing}: it still runs after {END_S:.0f} s")
        await asyncio.sleep(_PAUSE_S)


async def end_proxy(engine: Engine, key: str) -> None:
    """The proxy beside a box ends with it; it would end by itself later."""
    seen = await ours(engine, proxy_key(key))
    if seen is not None and seen.state != "stopped":
        await end(engine, proxy_key(key), seen)


async def freeze(engine: Engine, seen: Seen) -> None:
    """Pause a container. On a busy machine the kernel may not freeze all processes in time; then
    the engine lets them go on, and it is tried again.
    """
    doing = f"pause the container {seen.name}"
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_S
    while True:
        try:
            await engine.call(doing, lambda api: api.pause(seen.id))
            return
        except EngineRefused as error:
            if "already paused" in str(error):
                return
            if _BUSY not in str(error) or loop.time() > deadline:
                raise
        await asyncio.sleep(_PAUSE_S)


async def wake(engine: Engine, seen: Seen) -> None:
    """Let a paused container go on."""
    doing = f"resume the container {seen.name}"
    try:
        await engine.call(doing, lambda api: api.unpause(seen.id))
    except EngineRefused as error:
        # another process was quicker; or the engine says for a moment that a container is paused
        # which is not any more, as it hears of a pause after the end of the pause
        if not any(it in str(error) for it in _AWAKE):
            raise


async def remove(engine: Engine, folders: Folders, key: str) -> None:
    """Remove the containers of a box and its files on this machine."""
    for name in (key, keeper_key(key), proxy_key(key)):
        seen = await ours(engine, name)
        if seen is not None:
            await _remove(engine, name, seen)
    aside = folders.put_aside(key)
    if aside is not None:
        await remove_tree(aside)


async def _remove(engine: Engine, key: str, seen: Seen) -> None:
    """Another process may be removing it, so wait until it is gone."""
    await remove_container(engine, seen.id)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_S
    while (now := await find(engine, key)) is not None and now.id == seen.id:
        if loop.time() > deadline:
            raise ProviderError(f"the container of sandbox {key} is not removed: {seen.id}")
        await asyncio.sleep(_PAUSE_S)
