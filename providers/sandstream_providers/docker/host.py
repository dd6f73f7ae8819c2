"""Boxes in containers of one engine: making, finding and ending them.

What a box is can be read from the engine at any time. This machine keeps only what the engine must
not know: the environment and the token of the agent. Every step may be done again after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sandstream_providers.box.link import Streams
from sandstream_providers.box.start import agent_config, agent_source, new_token
from sandstream_providers.box_host import BoxHost, HostedBox
from sandstream_providers.docker import container, labels, links, ports
from sandstream_providers.docker.container import JOBS, RUN, STATE, Part, Plan
from sandstream_providers.docker.engine import Engine, remove_container
from sandstream_providers.docker.errors import (
    EngineConflict,
    EngineRefused,
    ForeignContainer,
    NoSuchContainer,
)
from sandstream_providers.docker.facts import EngineFacts, ask, describe
from sandstream_providers.docker.folders import LEASE, PORTS, SOCKET, START, BoxRecord, Folders
from sandstream_providers.docker.images import Images, OnProgress
from sandstream_providers.docker.options import DockerOptions, options_of
from sandstream_providers.docker.seen import Seen, find
from sandstream_providers.docker.shells import ExecShell
from sandstream_providers.interface import BoxGone, BoxInfo, BoxSpec, ProviderError
from sandstream_providers.leases import Leases, Patience
from sandstream_providers.processes import BASE_ENV
from sandstream_providers.removal import remove_tree
from sandstream_providers.shell.channel import Shell, ShellSettings

NAME = "docker"
END_S = 30.0
_PAUSE_S = 0.02
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
        on_progress: OnProgress | None = None,
    ) -> None:
        """Args:
        home: The state directory of this machine.
        engine: Closed together with this host.
        patience: How long a box waits for a process that holds it.
        on_progress: Told about images that are pulled.
        """
        self.engine = engine
        self.folders = Folders(home.absolute())
        self.leases = Leases(self.folders.lease)
        self.powers = frozenset({*_ALL_POWERS, "isolated"})
        self._patience = patience or Patience()
        self._images = Images(engine, self.folders.images, on_progress)
        self._facts: EngineFacts | None = None
        self._shared = True
        self._quota = True
        """Both are believed until the engine refuses."""
        self._links: dict[str, str] = {}
        """By runtime: how its agents are reached, once one was."""

    # --- life -------------------------------------------------------------------------------------

    async def check(self) -> dict[str, str]:
        facts = await self._ready()
        link = self._links.get("", links.UNIX if self._shared else links.EXEC)
        return describe(facts, link)

    async def create(self, spec: BoxSpec) -> HostedBox:
        options = options_of(spec)
        await self._ready()
        async with self.folders.locked(spec.key):
            seen = await find(self.engine, spec.key)
            if seen is None:
                seen = await self._made(spec, options)
            _check_ours(spec, seen)
            record = self.folders.read(spec.key) or BoxRecord(spec=spec)
            if _is_over(seen):
                raise BoxGone(
                    f"sandbox {spec.key} has ended, and with it its files: they were kept in "
                    "memory because of its disk limit"
                )
            try:
                return await self._revived(record, seen)
            except ProviderError as error:
                if not seen.was_started:
                    await self._removed(spec.key)
                raise ProviderError(f"sandbox {spec.key} did not start: {error}") from error

    async def get(self, key: str) -> HostedBox | None:
        await self._ready()
        record = self.folders.read(key)
        if record is None:
            return None
        seen = await self._ours(key)
        if seen is not None and seen.state == "running" and record.token:
            return await self._box(record, seen)
        async with self.folders.locked(key):
            record, seen = self.folders.read(key), await self._ours(key)
            if record is None or seen is None or _is_over(seen):
                return None
            try:
                return await self._revived(record, seen)
            except EngineRefused as error:
                raise ProviderError(f"sandbox {key} did not start again: {error}") from error

    async def stop(self, key: str) -> None:
        """A box with a disk limit may keep its files in memory: they end with it."""
        async with self.folders.locked(key):
            self.leases.drop(key)
            seen = await self._ours(key)
            if seen is not None and seen.state != "stopped":
                await self._ended(key, seen)

    async def pause(self, key: str) -> None:
        await self._set_paused(key, True)

    async def resume(self, key: str) -> None:
        await self._set_paused(key, False)

    async def delete(self, key: str) -> None:
        async with self.folders.locked(key, remove_after=True):
            await self._removed(key)

    async def list(self, owner: str) -> list[BoxInfo]:
        chosen = {"label": [f"{labels.OWNER}={owner}"]}
        listed: list[dict[str, Any]] = await self.engine.call(
            "list containers", lambda api: api.containers(all=True, filters=chosen)
        )
        return [info for info in map(self._info, listed) if info is not None]

    async def connect(self, box: HostedBox) -> Streams:
        return await links.connect(self.engine, box.address)

    async def open_shell(self, box: HostedBox) -> Shell:
        return ExecShell(self.engine, box.key, box.address.partition(":")[2], "")

    async def close(self) -> None:
        for key in self.leases.held():
            self.leases.drop(key)
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

    # --- making -----------------------------------------------------------------------------------

    async def _ready(self) -> EngineFacts:
        if self._facts is None:
            self.folders.prepare()
            facts = await ask(self.engine)
            for path in self.folders.put_aside_before():
                await remove_tree(path)
            self._facts, self.powers = facts, facts.powers
        return self._facts

    async def _made(self, spec: BoxSpec, options: DockerOptions) -> Seen:
        """A container that does not run yet. The record is there before it."""
        image = await self._images.facts(options)
        plan = Plan(
            spec=spec,
            options=options,
            image=image,
            engine=await self._ready(),
            has_agent=bool(image.python) and options.agent is not False,
            shared=self._shared,
            quota=self._quota,
        )
        container.check(plan, self.folders.home, self.engine.url)
        self.folders.write(BoxRecord(spec=spec))
        self.folders.lay_out(spec.key)
        try:
            await self._created(plan)
        except BaseException:
            await self._removed(spec.key)
            raise
        seen = await find(self.engine, spec.key)
        if seen is None:
            raise BoxGone(f"the container of sandbox {spec.key} was removed while it was made")
        return seen

    async def _created(self, plan: Plan) -> None:
        """Tries without what this engine turns out not to have."""
        name = labels.container_name(plan.spec.key)
        doing = f"create the container {name}"
        try:
            await self.engine.call(
                doing, lambda api: container.create(api, plan, self.folders, name)
            )
        except EngineConflict:
            return  # another process was quicker, or it is not ours: the caller looks
        except EngineRefused as error:
            less = self._with_less(plan, str(error).lower())
            if less is None:
                raise
            await self._created(less)

    def _with_less(self, plan: Plan, why: str) -> Plan | None:
        if plan.quota and ("storage-opt" in why or "storage opt" in why or "quota" in why):
            self._quota = False
            return msgspec.structs.replace(plan, quota=False)
        if plan.shared and not plan.spec.grants and ("bind source" in why or "mounts" in why):
            self._shared = False
            return msgspec.structs.replace(plan, shared=False)
        return None

    # --- starting and ending ----------------------------------------------------------------------

    async def _revived(self, record: BoxRecord, seen: Seen) -> HostedBox:
        """The box of a container: as it runs, awake, or started again on its files."""
        key = record.spec.key
        if seen.state == "paused":
            await self._thawed(seen)
        if seen.state != "stopped" and record.token:
            if seen.shared:
                self.folders.close_to_box(key, passable=record.link == links.EXEC)
            return await self._box(record, seen)
        if seen.state != "stopped":  # its agent obeys somebody whose record is gone
            await self._ended(key, seen)
        record = msgspec.structs.replace(record, token=new_token(), link="")
        self.folders.write(record)
        if not seen.was_started:
            await self._put(key, seen, "/", _parts(record.spec, seen))
        if seen.has_agent:
            await self._brief(record, seen)
        self.leases.drop(key)
        self.leases.take(key)
        name = labels.container_name(key)
        await self.engine.call(f"start the container {name}", lambda api: api.start(seen.id))
        if seen.has_agent:
            record = await self._answered(record, seen)
        started = await self._ours(key)
        if started is None:
            raise BoxGone(f"the container of sandbox {key} was removed while it was started")
        return await self._box(record, started, started_now=True)

    async def _brief(self, record: BoxRecord, seen: Seen) -> None:
        """Tell the agent, before it is started, what it must know. Nobody else can read it."""
        spec = record.spec
        config = agent_config(spec, spec.root, {**BASE_ENV, **seen.env})
        config |= {"jobs": JOBS, "listen_unix": f"{RUN}/{SOCKET}", "token": record.token}
        config["memory_bytes"] = None  # the kernel counts
        if seen.shared:
            config["lease"] = f"{RUN}/{LEASE}"
            config |= {"idle_s": self._patience.idle_s, "busy_s": self._patience.busy_s}
            if spec.ports:
                config["take_ports"] = f"{RUN}/{PORTS}"
            self.folders.open_to_box(spec.key, config)
            return
        data = msgspec.json.encode(config)
        part = Part(path=START, data=data, mode=0o600, owner=seen.ids)
        await self._put(spec.key, seen, RUN, [part])

    async def _put(self, key: str, seen: Seen, place: str, parts: Sequence[Part]) -> None:
        await self.engine.call(
            f"prepare the container of sandbox {key}",
            lambda api: api.put_archive(seen.id, place, container.archive(parts)),
        )

    async def _answered(self, record: BoxRecord, seen: Seen) -> BoxRecord:
        key, run = record.spec.key, self.folders.run(record.spec.key)
        runtime = options_of(record.spec).runtime
        known = self._links.get(runtime, "") if seen.shared else links.EXEC
        link = await links.first_contact(self.engine, key, seen, run, record.token, known)
        self._links[runtime] = link
        if seen.shared:
            self.folders.close_to_box(key, passable=link == links.EXEC)
        record = msgspec.structs.replace(record, link=link)
        self.folders.write(record)
        return record

    async def _box(self, record: BoxRecord, seen: Seen, *, started_now: bool = False) -> HostedBox:
        spec = record.spec
        self.hold(spec.key)
        if not seen.has_agent:
            return HostedBox(
                key=spec.key,
                root=spec.root,
                instance=seen.instance,
                kind="shell",
                shell=_shell_settings(spec, seen),
                address=f"shell:{seen.id}",
                ports=seen.published,
                started_now=started_now,
                roots=_roots(spec),
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
            roots=_roots(spec),
        )

    async def _ended(self, key: str, seen: Seen) -> None:
        """Kill all its processes and wait until they are gone."""
        doing = f"end the container of sandbox {key}"
        with contextlib.suppress(EngineConflict, NoSuchContainer):  # it has ended by itself
            await self.engine.call(doing, lambda api: api.kill(seen.id))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + END_S
        while (now := await find(self.engine, key)) is not None and now.state != "stopped":
            if now.state == "paused":
                await self._thawed(now)  # it dies as soon as it is awake
            if loop.time() > deadline:
                raise ProviderError(f"cannot {doing}: it still runs after {END_S:.0f} s")
            await asyncio.sleep(_PAUSE_S)

    async def _removed(self, key: str) -> None:
        self.leases.drop(key)
        seen = await self._ours(key)
        if seen is not None:
            await remove_container(self.engine, seen.id)
            loop = asyncio.get_running_loop()
            deadline = loop.time() + END_S
            while (now := await find(self.engine, key)) is not None and now.id == seen.id:
                if loop.time() > deadline:
                    raise ProviderError(f"the container of sandbox {key} is not removed: {seen.id}")
                await asyncio.sleep(_PAUSE_S)
        aside = self.folders.put_aside(key)
        if aside is not None:
            await remove_tree(aside)

    async def _set_paused(self, key: str, paused: bool) -> None:
        async with self.folders.locked(key):
            seen = await self._ours(key)
            if seen is None or seen.state == "stopped":
                raise BoxGone(f"there is no running sandbox {key}")
            if seen.state == "paused":
                if not paused:
                    await self._thawed(seen)
            elif paused:
                doing = f"pause the container of sandbox {key}"
                await self.engine.call(doing, lambda api: api.pause(seen.id))

    async def _thawed(self, seen: Seen) -> None:
        doing = f"resume the container {seen.name}"
        try:
            await self.engine.call(doing, lambda api: api.unpause(seen.id))
        except EngineRefused as error:
            if "not paused" not in str(error):  # another process was quicker
                raise

    # --- finding ----------------------------------------------------------------------------------

    async def _ours(self, key: str) -> Seen | None:
        """The container of a box; None if there is none, or one that is not ours."""
        seen = await find(self.engine, key)
        return seen if seen and labels.box_key(seen.name, seen.labels) == key else None

    def _info(self, listed: dict[str, Any]) -> BoxInfo | None:
        """A container that only says that it is ours is left alone."""
        found: dict[str, str] = listed.get("Labels") or {}
        keys = [labels.box_key(str(name), found) for name in listed.get("Names") or []]
        key = next(filter(None, keys), None)
        if key is None:
            return None
        state = str(listed.get("State", ""))
        return BoxInfo(
            key=key,
            labels=labels.spec_labels(found),
            state="running" if state == "running" else "paused" if state == "paused" else "stopped",
            created_at=float(listed.get("Created") or 0),
        )


def _check_ours(spec: BoxSpec, seen: Seen) -> None:
    if not labels.is_box_of(spec, seen.name, seen.labels):
        raise ForeignContainer(
            f"the container {seen.name} ({seen.id[:12]}) has the name that sandbox {spec.key} "
            "needs, but it is not that sandbox: rename or remove it (docker rm)",
            container=seen.id,
        )


def _is_over(seen: Seen) -> bool:
    """Its files went with its processes."""
    return seen.in_memory and seen.state == "stopped" and seen.was_started


def _parts(spec: BoxSpec, seen: Seen) -> list[Part]:
    """What a new container needs before it is started."""
    parts = [] if seen.in_memory else [Part(path=spec.root, owner=seen.ids)]
    if seen.shared or not seen.has_agent:
        return [*parts, Part(path=JOBS, mode=0o700, owner=seen.ids)]
    return [
        *parts,
        Part(path=RUN, mode=0o700, owner=seen.ids),
        Part(path=STATE, mode=0o700, owner=seen.ids),
        Part(path=container.AGENT, data=agent_source(), mode=0o444),
    ]


def _shell_settings(spec: BoxSpec, seen: Seen) -> ShellSettings:
    env = {**BASE_ENV, **seen.env, "HOME": spec.root, **spec.env}
    return ShellSettings(records=JOBS, env=env, limits=spec.limits)


def _roots(spec: BoxSpec) -> list[str]:
    return [grant.path for grant in spec.grants if not grant.read_only]


def _is_idle(api: Any, name: str) -> bool:
    shown = api.inspect_container(name)
    state, tmpfs = shown["State"]["Status"], shown["HostConfig"].get("Tmpfs") or {}
    if tmpfs and state == "running":
        return False
    processes = (api.top(name)["Processes"] or []) if state == "running" else []
    return state == "paused" or (state == "running" and len(processes) <= 1)
