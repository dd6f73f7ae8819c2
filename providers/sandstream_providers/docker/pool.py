"""Containers that are started before they are needed, for users who want new boxes quickly.

A member has all that a box has but its name and its settings: its agent waits for these at a named
pipe. To become a box it is renamed and told. The labels of a container cannot be changed, so the
record on this machine has those of the box; a free member is found by its own, and
removed like any unknown box. A miss is no error: the box is started as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import uuid
from collections import deque

import msgspec

from sandstream_providers.docker.end import ours, remove
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.errors import EngineConflict
from sandstream_providers.docker.facts import EngineFacts
from sandstream_providers.docker.folders import BoxRecord, Folders
from sandstream_providers.docker.labels import container_name
from sandstream_providers.docker.maker import Maker
from sandstream_providers.docker.options import DockerOptions
from sandstream_providers.docker.seen import Seen
from sandstream_providers.docker.starter import Starter
from sandstream_providers.interface import BoxSpec, ProviderError

logger = logging.getLogger(__name__)


class Pool:
    """The members that this process has made."""

    def __init__(self, engine: Engine, folders: Folders, maker: Maker, starter: Starter) -> None:
        self._engine = engine
        self._folders = folders
        self._maker = maker
        self._starter = starter
        self._ready: dict[str, deque[str]] = {}
        """Keys of members, by the shape of their boxes."""
        self._filling: dict[str, asyncio.Task[None]] = {}

    async def take(self, spec: BoxSpec, options: DockerOptions) -> tuple[BoxRecord, Seen] | None:
        """Make a box of a member. None: there is none that can be one."""
        ready = self._ready.get(_shape(spec, options))
        while ready:
            member = ready.popleft()
            try:
                return await self._taken(member, spec)
            except ProviderError as error:
                logger.info("a waiting container is not used", extra={"why": str(error)})
                await remove(self._engine, self._folders, member)
        return None

    async def _taken(self, member: str, spec: BoxSpec) -> tuple[BoxRecord, Seen]:
        seen = await ours(self._engine, member)
        if seen is None or seen.state != "running":
            raise ProviderError(f"the container {container_name(member)} has ended")
        name = container_name(spec.key)
        self._folders.adopt(member, spec.key)
        doing = f"rename the container {container_name(member)} to {name}"
        try:
            await self._engine.call(doing, lambda api: api.rename(seen.id, name))
        except EngineConflict:
            self._folders.adopt(spec.key, member)
            raise
        return await self._starter.tell(BoxRecord(spec=spec), seen)

    def fill(self, spec: BoxSpec, options: DockerOptions, engine: EngineFacts) -> None:
        """Begin to make what is missing, in the background."""
        shape = _shape(spec, options)
        task = self._filling.get(shape)
        if options.pool and not options.egress and (task is None or task.done()):
            work = self._fill(shape, spec, options, engine)
            self._filling[shape] = asyncio.create_task(work)

    async def _fill(
        self, shape: str, spec: BoxSpec, options: DockerOptions, engine: EngineFacts
    ) -> None:
        ready = self._ready.setdefault(shape, deque())
        owner = {"owner": spec.labels.get("owner", "")}
        while len(ready) < options.pool:
            key = f"pool-{uuid.uuid4().hex[:16]}"
            member = msgspec.structs.replace(spec, key=key, labels=owner, env={}, ports=[])
            try:
                seen = await self._maker.make(member, options, engine, pool=True)
                if not seen.has_agent or not seen.shared:
                    await remove(self._engine, self._folders, key)
                    return  # only an agent can wait to be told
                await self._starter.warm(BoxRecord(spec=member), seen)
            except ProviderError as error:
                logger.warning("the pool is not filled", extra={"why": str(error)})
                await remove(self._engine, self._folders, key)
                return
            except asyncio.CancelledError:
                await remove(self._engine, self._folders, key)
                raise
            ready.append(key)

    async def close(self) -> None:
        """Remove the free members."""
        for task in self._filling.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for ready in self._ready.values():
            while ready:
                await remove(self._engine, self._folders, ready.popleft())


def _shape(spec: BoxSpec, options: DockerOptions) -> str:
    """What two boxes must have in common for a member to be either."""
    alike = msgspec.structs.replace(
        spec,
        key="",
        labels={"owner": spec.labels.get("owner", "")},
        env={},
        ports=[],
        options=msgspec.to_builtins(msgspec.structs.replace(options, pool=0)),
    )
    return hashlib.sha256(msgspec.json.encode(alike)).hexdigest()
