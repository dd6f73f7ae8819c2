"""Boxes on this machine: making, finding and ending them below one home directory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from sandstream_providers.box.link import Streams
from sandstream_providers.box_host import BoxHost, HostedBox
from sandstream_providers.git.room import CloneRoom
from sandstream_providers.interface import BoxGone, BoxInfo, BoxSpec, ProviderError
from sandstream_providers.leases import Leases, Patience
from sandstream_providers.local import freezer, launch, sockets
from sandstream_providers.local.clone_cage import clone_cage
from sandstream_providers.local.machine import (
    Isolation,
    Machine,
    box_uid,
    describe,
    powers_of,
    probe,
)
from sandstream_providers.local.records import BoxRecord, Layout
from sandstream_providers.removal import remove_tree

NAME = "local"
_LOG_TAIL = 2000


class LocalHost(BoxHost):
    """Boxes below one home directory. Several processes may use the same home at once.

    ``isolation="none"`` runs commands as this user, with all its rights, in a directory.
    """

    name = NAME

    def __init__(
        self,
        home: Path,
        *,
        isolation: Isolation = "required",
        patience: Patience | None = None,
    ) -> None:
        layout = Layout(home.absolute())
        self.leases = Leases(layout.lease)
        self.machine: Machine | None = None
        """What the machine offers, once it was tried."""
        self.powers = powers_of(isolation, None)
        self._layout = layout
        self._patience = patience or Patience()
        self._isolation: Isolation = isolation

    async def check(self) -> dict[str, str]:
        return describe(await self._probed())

    async def create(self, spec: BoxSpec) -> HostedBox:
        machine = await self._probed()
        async with self._layout.locked(spec.key):
            record = self._layout.read(spec.key)
            if record is not None:
                return await self._revived(machine, record)
            record = self._new(machine, spec)
            try:
                return await self._started(machine, record)
            except Exception as error:
                message = f"sandbox {spec.key} did not start: {error}{self.log_tail(spec.key)}"
                await self._remove(spec.key)
                raise ProviderError(message) from error

    async def get(self, key: str) -> HostedBox | None:
        machine = await self._probed()
        if self._layout.read(key) is None:
            return None
        async with self._layout.locked(key):
            record = self._layout.read(key)
            if record is None:
                return None
            record = await launch.settled(self._layout, record)
            if record.in_memory and not launch.is_running(self._layout, record):
                return None
            return await self._revived(machine, record)

    async def stop(self, key: str) -> None:
        """A box with a disk limit keeps its files in memory: they end with it."""
        if self._layout.read(key) is None:
            return
        async with self._layout.locked(key):
            record = self._layout.read(key)
            if record is not None:
                self.leases.drop(key)
                await launch.end(self._layout, record)
                self._layout.write(msgspec.structs.replace(record, state="stopped"))

    async def pause(self, key: str) -> None:
        await self._set_paused(key, True)

    async def resume(self, key: str) -> None:
        await self._set_paused(key, False)

    async def delete(self, key: str) -> None:
        async with self._layout.locked(key, remove_after=True):
            await self._remove(key)

    async def list(self, owner: str) -> list[BoxInfo]:
        found = []
        for key in self._layout.all_keys():
            record = self._layout.read(key)
            if record is None or record.spec.labels.get("owner") != owner:
                continue
            running = launch.is_running(self._layout, record)
            found.append(
                BoxInfo(
                    key=key,
                    labels=record.spec.labels,
                    state=record.state if running else "stopped",
                    created_at=record.created_at,
                )
            )
        return found

    async def connect(self, box: HostedBox) -> Streams:
        return await sockets.connect(Path(box.address))

    async def close(self) -> None:
        for key in self.leases.held():
            self.leases.drop(key)

    # --- optional powers --------------------------------------------------------------------------

    def is_running(self, key: str) -> bool:
        record = self._layout.read(key)
        return record is not None and launch.is_running(self._layout, record)

    def log_tail(self, key: str) -> str:
        try:
            said = self._layout.log(key).read_bytes()
        except FileNotFoundError:
            return ""
        return f"; it said: {said.decode(errors='replace').strip()[-_LOG_TAIL:]}" if said else ""

    def hold(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            self.leases.take(key)

    def idle(self) -> Iterator[str]:
        """A paused box counts as idle, since it could not end by itself later. A box whose files
        are in memory is left to its lease.
        """
        for key in self.leases.held():
            record = self._layout.read(key)
            if record is None or record.in_memory or not self.leases.is_sole(key):
                continue
            if record.state == "paused" or not launch.has_work(self._layout, record):
                yield key

    @contextlib.asynccontextmanager
    async def clone_room(self, key: str) -> AsyncIterator[CloneRoom]:
        record = self._layout.read(key)
        if record is None:
            raise BoxGone(f"there is no sandbox {key}")
        async with clone_cage(await self._probed(), self._layout, record) as room:
            yield room

    # --- inside -----------------------------------------------------------------------------------

    async def _probed(self) -> Machine:
        if self.machine is None:
            self._layout.prepare()
            machine = await probe(self._isolation)
            for path in self._layout.put_aside_before():
                await remove_tree(path)
            self.machine, self.powers = machine, powers_of(self._isolation, machine)
        return self.machine

    def _new(self, machine: Machine, spec: BoxSpec) -> BoxRecord:
        """The box's directories and its record; nothing runs yet."""
        workspace, uid = self._layout.workspace(spec.key), box_uid(machine, spec.key)
        self._layout.folder(spec.key).mkdir(mode=0o700, exist_ok=True)
        for path, mode in ((workspace, 0o755), (self._layout.jobs(spec.key), 0o700)):
            path.mkdir(mode=mode, exist_ok=True)
            if uid is not None:
                os.chown(path, uid, uid)
        isolated = machine.bubblewrap is not None
        return BoxRecord(
            spec=spec,
            created_at=time.time(),
            mode="bubblewrap" if isolated else "none",
            root=spec.root if isolated else str(workspace),
            uid=uid,
        )

    async def _revived(self, machine: Machine, record: BoxRecord) -> HostedBox:
        """The box of a record: as it runs, awake, or started again on its files."""
        record = await launch.settled(self._layout, record)
        if not launch.is_running(self._layout, record):
            if record.in_memory and record.outer is not None:
                raise BoxGone(
                    f"sandbox {record.spec.key} has ended, and with it its files: they were kept "
                    "in memory because of its disk limit"
                )
            await launch.end(self._layout, record)
            try:
                return await self._started(machine, record)
            except ProviderError as error:
                tail = self.log_tail(record.spec.key)
                raise ProviderError(
                    f"sandbox {record.spec.key} did not start again: {error}{tail}"
                ) from error
        if record.state == "paused":
            record = await self._thawed(record)
        return self._box(record)

    async def _started(self, machine: Machine, record: BoxRecord) -> HostedBox:
        home = hashlib.sha256(os.fsencode(self._layout.home)).hexdigest()[:8]
        group = f"{record.spec.key}-{home}"
        self.leases.take(record.spec.key)
        record = await launch.launch(machine, self._layout, record, group, self._patience)
        return self._box(record, started_now=True)

    def _box(self, record: BoxRecord, *, started_now: bool = False) -> HostedBox:
        spec = record.spec
        try:
            self.leases.take(spec.key)
        except FileNotFoundError as error:
            home = self._layout.home
            raise BoxGone(f"sandbox {spec.key} was removed from below {home}") from error
        return HostedBox(
            key=spec.key,
            root=record.root,
            instance=str(record.outer),
            address=record.socket,
            ports={port: ("127.0.0.1", host_port) for port, host_port in record.ports.items()},
            started_now=started_now,
            roots=[grant.path for grant in spec.grants if not grant.read_only],
        )

    async def _remove(self, key: str) -> None:
        record = self._layout.read(key)
        self.leases.drop(key)
        if record is not None:
            await launch.end(self._layout, record)
            await asyncio.to_thread(_remove_socket, record)
        aside = self._layout.put_aside(key)
        if aside is not None:
            await remove_tree(aside)

    async def _set_paused(self, key: str, paused: bool) -> None:
        async with self._layout.locked(key):
            record = self._layout.read(key)
            if record is not None:
                record = await launch.settled(self._layout, record)
            if record is None or not launch.is_running(self._layout, record):
                raise BoxGone(f"there is no running sandbox {key}")
            if not paused:
                await self._thawed(record)
            elif record.state != "paused":
                await freezer.freeze(self._layout, record)
                self._layout.write(msgspec.structs.replace(record, state="paused"))

    async def _thawed(self, record: BoxRecord) -> BoxRecord:
        await freezer.thaw(self._layout, record)
        record = msgspec.structs.replace(record, state="running")
        self._layout.write(record)
        return record


def _remove_socket(record: BoxRecord) -> None:
    if record.socket:
        Path(record.socket).unlink(missing_ok=True)
