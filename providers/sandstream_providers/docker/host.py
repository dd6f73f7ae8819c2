"""Boxes in containers of one engine: making, finding and ending them.

What a box is can be read from the engine at any time. This machine keeps only what the engine must
not know: the environment and the token of the agent. Every step may be done again after a crash.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sandstream_providers.box.link import Streams
from sandstream_providers.box_host import BoxHost, HostedBox
from sandstream_providers.docker import labels, links, ports
from sandstream_providers.docker.container import JOBS
from sandstream_providers.docker.end import end, end_proxy, freeze, ours, remove, thaw, wake
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.errors import EngineFull, EngineSilent
from sandstream_providers.docker.facts import EngineFacts, ask, describe
from sandstream_providers.docker.folders import PORTS, BoxRecord, Folders
from sandstream_providers.docker.images import Images, remove_old_probes
from sandstream_providers.docker.maker import Maker, check_ours
from sandstream_providers.docker.options import options_of
from sandstream_providers.docker.pool import Pool
from sandstream_providers.docker.seen import Seen, find
from sandstream_providers.docker.shells import ExecShell
from sandstream_providers.docker.starter import Starter, turns_for
from sandstream_providers.interface import BoxGone, BoxInfo, BoxSpec, ProviderError
from sandstream_providers.leases import Leases, Patience
from sandstream_providers.processes import BASE_ENV
from sandstream_providers.removal import remove_tree
from sandstream_providers.shell.channel import Shell, ShellSettings

logger = logging.getLogger(__name__)
NAME = "docker"
_ALL_POWERS = ("pty", "ports", "pause", "users", "limits.cpu", "limits.memory", "limits.disk")


class DockerHost(BoxHost):
    """Boxes of one engine, with files below one home. Several processes may use both at once."""

    name = NAME

    def __init__(
        self,
        home: Path,
        engine: Engine,
        *,
        patience: Patience | None = None,
        agents: bool = True,
    ) -> None:
        """Args:
        home: The state directory of this machine.
        engine: Closed together with this host.
        patience: How long a box waits for a process that holds it.
        agents: False: no box gets our agent, even if its image has Python.
        """
        self._agents = agents
        self.engine = engine
        self.folders = Folders(home.absolute())
        self.leases = Leases(self.folders.lease)
        self.powers = frozenset({*_ALL_POWERS, "isolated"})
        patience = patience or Patience()
        images = Images(engine, self.folders.images)
        self._maker = Maker(engine, self.folders, images, patience)
        self.starter = Starter(engine, self.folders, self.leases, patience)
        self._pool = Pool(engine, self.folders, self._maker, self.starter)
        self._facts: EngineFacts | None = None

    # --- life -------------------------------------------------------------------------------------

    async def check(self) -> dict[str, str]:
        facts = await self._ready()
        usual = links.UNIX if self._maker.shared else links.EXEC
        return describe(facts, self.starter.links.get("", usual))

    async def create(self, spec: BoxSpec) -> HostedBox:
        options = options_of(spec)
        if not self._agents:
            options = msgspec.structs.replace(options, agent=False)
        facts = await self._ready()
        async with self.folders.locked(spec.key):
            seen = await find(self.engine, spec.key)
            if seen is None:
                taken = await self._pool.take(spec, options)
                if taken is not None:
                    self._pool.fill(spec, options, facts)
                    return await self._box(*taken, started_now=True)
                seen = await self._maker.make(spec, options, facts)
                self._pool.fill(spec, options, facts)
            check_ours(spec, seen)
            record = self.folders.read(spec.key) or BoxRecord(spec=spec)
            if _is_over(seen):
                raise BoxGone(
                    f"sandbox {spec.key} has ended, and with it its files: they were kept in "
                    "memory because of its disk limit"
                )
            try:
                return await self._revived(record, seen)
            except EngineSilent:
                raise  # whether it runs is unknown: the same may be asked again
            except ProviderError as error:
                if not seen.was_started:
                    await self._removed(spec.key)
                raise _with(f"sandbox {spec.key} did not start", error) from error

    async def get(self, key: str) -> HostedBox | None:
        await self._ready()
        if self.folders.read(key) is None:
            return None
        seen = await ours(self.engine, key)
        record = self.folders.read(key)  # after the look: so it has the token of what runs
        if record and seen and seen.state == "running" and _is_complete(record, seen):
            return await self._box(record, seen)
        async with self.folders.locked(key):
            record, seen = self.folders.read(key), await ours(self.engine, key)
            if record is None or seen is None or _is_over(seen):
                return None
            try:
                return await self._revived(record, seen)
            except EngineSilent:
                raise
            except ProviderError as error:
                raise _with(f"sandbox {key} did not start again", error) from error

    async def stop(self, key: str) -> None:
        """A box with a disk limit may keep its files in memory: they end with it."""
        async with self.folders.locked(key):
            self.leases.drop(key)
            seen = await ours(self.engine, key)
            if seen is not None and seen.state != "stopped":
                await end(self.engine, key, seen)
            record = self.folders.read(key)
            if record is not None and options_of(record.spec).egress:
                await end_proxy(self.engine, key)

    async def pause(self, key: str) -> None:
        async with self.folders.locked(key):
            await freeze(self.engine, await self._awake_or_paused(key))

    async def resume(self, key: str) -> None:
        async with self.folders.locked(key):
            await thaw(self.engine, await self._awake_or_paused(key))

    async def delete(self, key: str) -> None:
        async with self.folders.locked(key, remove_after=True):
            await self._removed(key)

    async def list(self, owner: str) -> list[BoxInfo]:
        chosen = {"label": [f"{labels.OWNER}={owner}"]}
        listed: list[dict[str, Any]] = await self.engine.call(
            "list containers", lambda api: api.containers(all=True, filters=chosen)
        )
        names = [str(name).lstrip("/") for it in listed for name in it.get("Names") or []]
        infos = [
            info for info in map(self._info, _without_companions(listed, names)) if info is not None
        ]
        return [*infos, *self._without_container(owner, {info.key for info in infos})]

    async def connect(self, box: HostedBox) -> Streams:
        return await links.connect(self.engine, box.address)

    async def open_shell(self, box: HostedBox) -> Shell:
        return ExecShell(self.engine, box.key, box.address.partition(":")[2], "")

    async def close(self) -> None:
        for key in self.leases.held():
            self.leases.drop(key)
        await self._pool.close()
        await self.engine.close()

    # --- optional powers --------------------------------------------------------------------------

    def hold(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            self.leases.take(key)

    def idle(self) -> Iterator[str]:
        """A paused box counts as idle, since it could not end by itself later. A box whose files
        are in memory is left to its lease.
        """
        for key in self.leases.held():
            if self.leases.is_sole(key):
                look = functools.partial(_is_idle, name=labels.container_name(key))
                if self.engine.quick("see what runs", look):
                    yield key

    # --- inside -----------------------------------------------------------------------------------

    async def _ready(self) -> EngineFacts:
        if self._facts is None:
            self.folders.prepare()
            facts = await ask(self.engine)
            await remove_old_probes(self.engine)
            for path in self.folders.put_aside_before():
                await remove_tree(path)
            # a forwarder of ports is a part of the agent
            self.powers = facts.powers if self._agents else facts.powers - {"ports"}
            if self._facts is None:  # another task may have been quicker
                self.starter.turns = turns_for(facts.cpus)
            self._facts = facts
        return self._facts

    def _without_container(self, owner: str, listed: Container[str]) -> Iterator[BoxInfo]:
        """Boxes of which only files on this machine are left: their maker died before the container
        was there, or the process that removed them died right after.
        """
        for key in self.folders.boxes():
            record = self.folders.read(key) if key not in listed else None
            if record is not None and record.spec.labels.get("owner") == owner:
                made_at = self.folders.made_at(key)
                yield BoxInfo(
                    key=key, labels=record.spec.labels, state="stopped", created_at=made_at
                )

    async def _revived(self, record: BoxRecord, seen: Seen) -> HostedBox:
        """The box of a container: as it runs, awake, or started again on its files."""
        key = record.spec.key
        if seen.state == "paused":
            await wake(self.engine, seen)
        if seen.state != "stopped":
            adopted = await self._adopted(record, seen)
            if adopted is not None:
                return adopted
            await end(self.engine, key, seen)
        self.leases.drop(key)
        record, started = await self.starter.start(record, seen)
        return await self._box(record, started, started_now=True)

    async def _adopted(self, record: BoxRecord, seen: Seen) -> HostedBox | None:
        """The box of a container that runs. None: its token is lost, or its agent was never told
        what it must know, because the process that started it died.
        """
        if not record.token:
            return None
        if not _is_complete(record, seen):
            try:
                record = await self.starter.answered(record, seen)
            except EngineSilent:
                raise
            except ProviderError as error:
                logger.warning(
                    "a container that runs does not answer and is started again",
                    extra={"box": record.spec.key, "reason": str(error)},
                )
                return None
        self.starter.close_folder(record, seen)
        return await self._box(record, seen)

    async def _box(self, record: BoxRecord, seen: Seen, *, started_now: bool = False) -> HostedBox:
        spec = record.spec
        self.hold(spec.key)
        roots = [grant.path for grant in spec.grants if not grant.read_only]
        if not seen.has_agent:
            env = {**BASE_ENV, **seen.env, "HOME": spec.root, **spec.env}
            return HostedBox(
                key=spec.key,
                root=spec.root,
                instance=seen.instance,
                kind="shell",
                shell=ShellSettings(records=JOBS, env=env, limits=spec.limits),
                address=f"shell:{seen.id}",
                ports=seen.published,
                started_now=started_now,
                roots=roots,
            )
        run = self.folders.run(spec.key)
        by_socket = record.link != links.EXEC
        places = seen.published
        if by_socket and spec.ports:
            places = await ports.hand_over(run / PORTS, record.token, spec.ports)
        return HostedBox(
            key=spec.key,
            root=spec.root,
            instance=seen.instance,
            address=links.unix_address(run) if by_socket else links.exec_address(seen),
            ports=places,
            token=record.token,
            started_now=started_now,
            roots=roots,
        )

    def _info(self, listed: dict[str, Any]) -> BoxInfo | None:
        """A container that only says that it is ours is left alone."""
        found: dict[str, str] = listed.get("Labels") or {}
        keys = [labels.box_key(str(name), found) for name in listed.get("Names") or []]
        key = next(filter(None, keys), None)
        if key is None:
            return None
        record = self.folders.read(key) if labels.POOL in found else None
        state = str(listed.get("State", ""))
        return BoxInfo(
            key=key,
            labels=record.spec.labels if record else labels.spec_labels(found),
            state="running" if state == "running" else "paused" if state == "paused" else "stopped",
            created_at=float(listed.get("Created") or 0),
        )

    async def _removed(self, key: str) -> None:
        self.leases.drop(key)
        await remove(self.engine, self.folders, key)

    async def _awake_or_paused(self, key: str) -> Seen:
        seen = await ours(self.engine, key)
        if seen is None or seen.state == "stopped":
            raise BoxGone(f"there is no running sandbox {key}")
        return seen


def _with(text: str, error: ProviderError) -> ProviderError:
    """The error with another text, of a kind that callers know: full disk, or any other error."""
    kind = EngineFull if isinstance(error, EngineFull) else ProviderError
    return kind(f"{text}: {error}")


def _without_companions(
    listed: Sequence[dict[str, Any]], names: Container[str]
) -> Iterator[dict[str, Any]]:
    """A companion of a box counts as a box only if that is gone: then it must be removed."""
    for it in listed:
        main = (it.get("Labels") or {}).get(labels.COMPANION)
        if main is None or labels.container_name(main) not in names:
            yield it


def _is_complete(record: BoxRecord, seen: Seen) -> bool:
    """Its agent has answered once, so the record says how it is reached."""
    return bool(record.token) and (bool(record.link) or not seen.has_agent)


def _is_over(seen: Seen) -> bool:
    """Its files went with its processes."""
    return seen.in_memory and seen.state == "stopped" and seen.was_started


def _is_idle(api: Any, name: str) -> bool:
    shown = api.inspect_container(name)
    state, tmpfs = shown["State"]["Status"], shown["HostConfig"].get("Tmpfs") or {}
    if tmpfs and state == "running":
        return False
    processes = (api.top(name)["Processes"] or []) if state == "running" else []
    return state == "paused" or (state == "running" and len(processes) <= 1)
