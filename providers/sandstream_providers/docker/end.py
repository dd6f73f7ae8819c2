"""Finding the container of a box, and ending it. No state: every process may do it at any time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

from sandstream_providers.docker.container import keeper_key, proxy_key
from sandstream_providers.docker.engine import Engine, remove_container
from sandstream_providers.docker.errors import EngineConflict, EngineRefused, NoSuchContainer
from sandstream_providers.docker.folders import Folders
from sandstream_providers.docker.labels import box_key
from sandstream_providers.docker.seen import Seen, find
from sandstream_providers.interface import BoxGone, ProviderError
from sandstream_providers.removal import remove_tree

END_S = 30.0
_PAUSE_S = 0.02
_BUSY = ("unable to freeze", "waiting for the cgroup to freeze")
"""What it says if the kernel has not stopped all processes in time, with cgroup v1 and v2."""
_DYING = "did not receive an exit event"
"""What it says on a busy machine of a container that it has killed."""
_STILL = ("already paused", "cannot pause a paused")
"""What the engine and its runtime say of a container that is paused already."""
_AWAKE = "cannot resume a running"
"""What the runtime says of a container that needs no waking."""
_BELIEVED_AWAKE = "not paused"
"""The message of the engine."""
_DEAD = "not running"
"""The message of both about a container that has ended; the engine may not know of that yet."""


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
            with contextlib.suppress(BoxGone):
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
    """Pause a container. The kernel may not stop all processes in time: on a busy machine, or while
    one waits for a file system that does not answer. Then it is tried again.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_S
    while await _paused(engine, seen) == "busy":
        if loop.time() > deadline:
            raise ProviderError(
                f"cannot pause the container {seen.name}: the kernel has not stopped all of its "
                f"processes within {END_S:.0f} s"
            )
        await asyncio.sleep(_PAUSE_S)


async def wake(engine: Engine, seen: Seen) -> None:
    """Let a paused container go on. No effect on one that the engine believes to be awake."""
    await _woken(engine, seen)


async def thaw(engine: Engine, seen: Seen) -> None:
    """Let a container go on that may be paused, even if the engine believes that it runs.

    The engine learns of pauses and resumptions from its runtime too, and that news can be late: a
    resumption of a moment ago makes it say "running" of a container that was paused since. Only a
    second pause tells: the runtime refuses it if the container is paused, and otherwise it is
    undone at once.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_S
    while await _woken(engine, seen) == "believed":
        match await _paused(engine, seen):
            case "busy":
                return  # it runs: the kernel could not stop it
            case "now":
                continue  # it was awake, as the engine said: undo this pause
            case "before":
                pass  # the engine has not heard of it yet
        if loop.time() > deadline:
            raise ProviderError(
                f"the container {seen.name} is paused, and its engine says that it is not. Restart "
                "the engine"
            )
        await asyncio.sleep(_PAUSE_S)
    while await _seems_paused(engine, seen) and loop.time() < deadline:
        # It runs. The news of the last pause has reached the engine late: that of this resumption
        # follows, and until then lists would show the box as paused.
        await asyncio.sleep(_PAUSE_S)


async def _seems_paused(engine: Engine, seen: Seen) -> bool:
    """What the engine believes."""
    doing = f"look at the container {seen.name}"
    shown = await engine.call(doing, lambda api: api.inspect_container(seen.id))
    return bool(shown["State"]["Paused"])


async def _paused(engine: Engine, seen: Seen) -> Literal["now", "before", "busy"]:
    """Pause it: whether that was done now or before, or the kernel cannot stop it yet."""
    doing = f"pause the container {seen.name}"
    try:
        await engine.call(doing, lambda api: api.pause(seen.id))
    except EngineRefused as error:
        text = str(error)
        if any(it in text for it in _STILL):
            return "before"
        if any(it in text for it in _BUSY):
            return "busy"
        if _DEAD in text:
            raise BoxGone(f"the container {seen.name} has ended") from error
        raise
    return "now"


async def _woken(engine: Engine, seen: Seen) -> Literal["now", "before", "believed"]:
    """Let it go on: whether that was done now or before, or the engine only believes so."""
    doing = f"resume the container {seen.name}"
    try:
        await engine.call(doing, lambda api: api.unpause(seen.id))
    except EngineRefused as error:
        text = str(error)
        if _AWAKE in text:
            return "before"
        if _BELIEVED_AWAKE in text:
            return "believed"
        if _DEAD in text:
            raise BoxGone(f"the container {seen.name} has ended") from error
        raise
    return "now"


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
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_S
    while True:
        try:
            await remove_container(engine, seen.id)
            break
        except EngineRefused as error:
            if _DYING not in str(error) or loop.time() > deadline:
                raise
        await asyncio.sleep(_PAUSE_S)
    while (now := await find(engine, key)) is not None and now.id == seen.id:
        if loop.time() > deadline:
            raise ProviderError(f"the container of sandbox {key} is not removed: {seen.id}")
        await asyncio.sleep(_PAUSE_S)
