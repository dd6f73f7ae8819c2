"""The memories of a node's sandboxes: written when a sandbox is opened; changes are reported before
it is closed.

A failure of a memory never prevents a sandbox from being opened or closed: it is logged once, and
the sandbox continues with the files that it has.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import SandstreamError
from sandstream_bus.wire.memory_specs import MemoryUse, is_workspace_scope, scope_of
from sandstream_bus.wire.sandboxes import MemoryMount, MemorySynced, SandboxEvent, SandboxMounted
from sandstream_bus.wire.specs import AgentSpec, GraphSpec
from sandstream_providers.interface import Box, Provider, ProviderError

from sandstream_actors.memory.copies.copy import MemoryCopy, Purpose
from sandstream_actors.memory.copies.files import MemoryTrouble
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.live import Live, awake

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long an open or a close waits for a memory."""
_KEPT_SAYINGS = 1000
_KEPT_SYNCED = 10_000

Append = Callable[[SandboxRecord, SandboxEvent], Awaitable[None]]
"""Writes to a sandbox's log."""


def mount_of(agent: AgentSpec, graph: GraphSpec, sandbox: str) -> MemoryMount | None:
    """The place of an agent's memory in its sandbox; also if the memory is only generated.

    Changes there are kept if any of the run's agents that use this sandbox may make them, because
    the author of a change is unknown.
    """
    if agent.memory is None:
        return None
    mount = _mount(agent.memory, sandbox)
    for other in graph.agents.values():
        if other.memory is not None and _share_sandbox(agent, other):
            its = _mount(other.memory, sandbox)
            if its == msgspec.structs.replace(mount, writable=True):
                return its
    return mount


def _share_sandbox(one: AgentSpec, other: AgentSpec) -> bool:
    """A memory without a name yet belongs to the agent's workspace."""
    if one.sandbox is None or other.sandbox is None:
        return False
    return one.sandbox.id != "" and one.sandbox.id == other.sandbox.id


def _mount(use: MemoryUse, sandbox: str) -> MemoryMount:
    return MemoryMount(
        scope=scope_of(use, sandbox),
        memories_dir=posixpath.normpath(use.memories_dir),
        sessions_dir=posixpath.normpath(use.sessions_dir),
        writable=use.live_update,
    )


class WorkspaceMemories:
    """Syncs the memories of sandboxes."""

    def __init__(self, bus: Bus, provider: Provider) -> None:
        self._bus = bus
        self._provider = provider
        self._said: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._synced: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Memories of sandboxes whose directories were there: a file in their place came later."""

    async def opened(self, live: Live, append: Append, added: MemoryMount | None = None) -> None:
        """Write the files of all its memories; ``added``: also add this one."""
        record = live.record
        mounted = ""
        if added is not None and record.memories.get(added.scope) != added:
            for mount in record.replaced_by(added):
                # files that may not be kept must not look like changes of the new memory
                purpose: Purpose = "close" if mount.writable else "refresh"
                await self._sync(record, live.box, mount, purpose)
            event = SandboxMounted(generation=record.generation, memory=added)
            await append(record, event)
            mounted = added.scope
        for mount in [*record.memories.values()]:
            if is_workspace_scope(mount.scope):
                first = mount.scope == mounted or (live.is_new and not record.tree)
            else:
                first = live.is_new and not record.base
            await self._sync(record, live.box, mount, "open", is_new=live.is_new, first=first)
        live.is_new = False

    async def refresh(self, record: SandboxRecord, box: Box, scope: str) -> MemorySynced:
        return await self._sync(record, box, record.memories[scope], "refresh")

    async def closing(self, live: Live) -> None:
        """Report changes, before the last checkpoint."""
        for mount in live.record.memories.values():
            await self._sync(live.record, live.box, mount, "close", is_new=live.is_new)

    async def leaving(self, record: SandboxRecord) -> None:
        """Report changes of a workspace that is closed without a checkpoint."""
        if not record.memories:
            return
        try:
            box = await awake(self._provider, record)
        except ProviderError as error:
            logger.warning(
                "changes to the memories of a closed sandbox are lost: %s",
                error,
                extra={"sandbox": record.sandbox},
            )
            return
        if box is not None:
            for mount in record.memories.values():
                await self._sync(record, box, mount, "discard")

    async def _sync(
        self,
        record: SandboxRecord,
        box: Box,
        mount: MemoryMount,
        purpose: Purpose,
        *,
        is_new: bool = False,
        first: bool = False,
    ) -> MemorySynced:
        facts = {"sandbox": record.sandbox, "memory": mount.scope}

        def say(text: str) -> None:
            if self._is_news(record.sandbox, mount.scope, text):
                logger.warning("a memory: %s", text, extra=facts)

        try:
            async with asyncio.timeout(PATIENCE_S):
                copy = MemoryCopy(self._bus, record, box, mount, say)
                was_there = (record.sandbox, mount.scope) in self._synced
                synced = await copy.sync(purpose, is_new=is_new, first=first, was_there=was_there)
                _remember(self._synced, (record.sandbox, mount.scope), _KEPT_SYNCED)
                return synced
        except (SandstreamError, ProviderError, MemoryTrouble, ValueError, TimeoutError) as error:
            why = str(error) or f"nothing happened for {PATIENCE_S:.0f} s"
            say(f"its files were not written ({why}); the next open tries again")
        except Exception as error:  # a bug here must not cost a workspace
            if self._is_news(record.sandbox, mount.scope, repr(error)):
                logger.exception("the files of a memory cannot be written", extra=facts)
        return MemorySynced(synced=False)

    def _is_news(self, sandbox: str, scope: str, text: str) -> bool:
        key = (sandbox, scope, text)
        if key in self._said:
            return False
        _remember(self._said, key, _KEPT_SAYINGS)
        return True


def _remember(kept: OrderedDict[T, None], key: T, most: int) -> None:
    kept[key] = None
    while len(kept) > most:
        kept.popitem(last=False)
