"""Starting a container: what its agent must know, the start itself, and the first contact."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import msgspec

from sandstream_providers.box.start import agent_config, new_token
from sandstream_providers.docker import egress, links, preparation
from sandstream_providers.docker.container import JOBS, RUN
from sandstream_providers.docker.end import ours
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.folders import LEASE, PORTS, SOCKET, START, BoxRecord, Folders
from sandstream_providers.docker.options import options_of
from sandstream_providers.docker.seen import Seen
from sandstream_providers.interface import BoxGone, BoxSpec
from sandstream_providers.leases import Leases, Patience
from sandstream_providers.processes import BASE_ENV

_WAITS_S = 5.0
_PAUSE_S = 0.01
_LEAST_AT_ONCE = 4


def turns_for(cpus: int) -> asyncio.Semaphore:
    """For an engine whose machine has so many processors."""
    return asyncio.Semaphore(max(_LEAST_AT_ONCE, 2 * cpus))


class Starter:
    """Starts containers of one engine."""

    def __init__(
        self, engine: Engine, folders: Folders, leases: Leases, patience: Patience
    ) -> None:
        self._engine = engine
        self._folders = folders
        self._leases = leases
        self._patience = patience
        self.turns = asyncio.Semaphore(_LEAST_AT_ONCE)
        """Containers wait for their turn to be started. If all were started at once, each would be
        as slow as all of them together, and would seem not to answer."""
        self.links: dict[str, str] = {}
        """By runtime: how its agents are reached, once one was."""

    async def start(self, record: BoxRecord, seen: Seen) -> tuple[BoxRecord, Seen]:
        """Start a container that stands still, and wait until its agent answers."""
        async with self.turns:
            return await self._started(record, seen)

    async def _started(self, record: BoxRecord, seen: Seen) -> tuple[BoxRecord, Seen]:
        key = record.spec.key
        record = msgspec.structs.replace(record, token=new_token(), link="")
        self._folders.write(record)
        if not seen.was_started and not seen.read_only:
            await self._prepare(record.spec, seen)
        if seen.has_agent:
            await self._brief(record, seen)
        self._leases.take(key)
        if options_of(record.spec).egress:
            await egress.start(self._engine, self._folders, record.spec)
        doing = f"start the container of sandbox {key}"
        await self._engine.call(doing, lambda api: api.start(seen.id))
        if seen.has_agent:
            record = await self.answered(record, seen)
        started = await ours(self._engine, key)
        if started is None:
            raise BoxGone(f"the container of sandbox {key} was removed while it was started")
        return record, started

    async def warm(self, record: BoxRecord, seen: Seen) -> None:
        """Start a container whose agent waits for what it must know."""
        key = record.spec.key
        if not seen.read_only:
            await self._prepare(record.spec, seen)
        self._folders.open_to_box(key, None)
        doing = f"start the container of sandbox {key}"
        async with self.turns:
            await self._engine.call(doing, lambda api: api.start(seen.id))

    async def tell(self, record: BoxRecord, seen: Seen) -> tuple[BoxRecord, Seen]:
        """Send its settings to an agent that waits for a box. From then on it serves this box."""
        key = record.spec.key
        record = msgspec.structs.replace(record, token=new_token(), link="")
        self._folders.write(record)
        self._leases.take(key)
        await self._told(key, self._config(record, seen))
        record = await self.answered(record, seen)
        named = await ours(self._engine, key)
        if named is None:
            raise BoxGone(f"the container of sandbox {key} was removed while it was taken")
        return record, named

    async def _told(self, key: str, config: dict[str, Any]) -> None:
        """An agent that was started a moment ago does not wait yet."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WAITS_S
        while True:
            try:
                await asyncio.to_thread(self._folders.tell, key, config)
                return
            except OSError as error:
                if error.errno != errno.ENXIO or loop.time() > deadline:
                    raise BoxGone(f"no agent waits to be told: {error}") from error
            await asyncio.sleep(_PAUSE_S)

    def close_folder(self, record: BoxRecord, seen: Seen) -> None:
        """From now on commands of the box cannot reach what its agent shares with us."""
        if seen.shared:
            passable = record.link == links.EXEC
            self._folders.close_to_box(record.spec.key, passable=passable)

    async def _prepare(self, spec: BoxSpec, seen: Seen) -> None:
        options = options_of(spec)
        parts = preparation.parts_of(
            spec.root,
            seen.ids,
            has_agent=seen.has_agent,
            shared=seen.shared,
            in_memory=seen.in_memory,
            several_users=options.has_users,
        )

        def prepare(api: Any) -> None:
            preparation.put(api, seen.id, "/", parts)
            if options.has_users:
                preparation.add_accounts(api, seen.id, options, spec.root)

        await self._engine.call(f"prepare the container of sandbox {spec.key}", prepare)

    def _config(self, record: BoxRecord, seen: Seen) -> dict[str, Any]:
        """What the agent must know."""
        spec = record.spec
        config = agent_config(spec, spec.root, {**BASE_ENV, **seen.env})
        config |= {"jobs": JOBS, "listen_unix": f"{RUN}/{SOCKET}", "token": record.token}
        config |= {"memory_bytes": None, "expendable": True}  # the kernel counts
        if seen.shared:
            config["lease"] = f"{RUN}/{LEASE}"
            config |= {"idle_s": self._patience.idle_s, "busy_s": self._patience.busy_s}
            if options_of(spec).egress:
                config |= egress.way_out()
                config["env"] = {**config["env"], **egress.variables(), **spec.env}
            if spec.ports:
                config["take_ports"] = f"{RUN}/{PORTS}"
        return config

    async def _brief(self, record: BoxRecord, seen: Seen) -> None:
        """Write the agent's settings into a file before it starts. Only this user can read it."""
        spec, config = record.spec, self._config(record, seen)
        if seen.shared:
            self._folders.open_to_box(spec.key, config)
            return
        data = msgspec.json.encode(config)
        part = preparation.Part(path=START, data=data, mode=0o600, owner=seen.ids)
        doing = f"prepare the container of sandbox {spec.key}"
        await self._engine.call(doing, lambda api: preparation.put(api, seen.id, RUN, [part]))

    async def answered(self, record: BoxRecord, seen: Seen) -> BoxRecord:
        """Wait for the first answer of an agent, and record how it is reached."""
        key, run = record.spec.key, self._folders.run(record.spec.key)
        runtime = options_of(record.spec).runtime
        known = self.links.get(runtime, "") if seen.shared else links.EXEC
        link = await links.first_contact(self._engine, key, seen, run, record.token, known)
        if seen.shared:
            self.links[runtime] = link
        record = msgspec.structs.replace(record, link=link)
        self.close_folder(record, seen)
        self._folders.write(record)
        return record
