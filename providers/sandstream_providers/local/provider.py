"""The provider of sandboxes on this machine: making, finding and ending boxes below one home."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path

import msgspec

from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import Box, BoxGone, BoxInfo, BoxSpec, ProviderError
from sandstream_providers.local import freezing, git, launch
from sandstream_providers.local.host import Host, Isolation, box_uid, describe, powers_of, probe
from sandstream_providers.local.records import BoxRecord, Layout
from sandstream_providers.local.removal import remove_tree

_ANSWER_S = 30.0
_LOOK_S = 0.1
_LOG_TAIL = 2000


class LocalProvider:
    """Boxes below one home directory. Several processes may use the same home at once.

    ``isolation="none"`` runs commands as this user, with all its rights, in a directory.
    """

    name = "local"

    def __init__(self, home: Path, *, isolation: Isolation = "required") -> None:
        self._layout = Layout(home.absolute())
        self._isolation: Isolation = isolation
        self._host: Host | None = None
        self._boxes: dict[str, tuple[BoxRecord, AgentBox]] = {}
        self.powers = powers_of(isolation, None)

    async def check(self) -> dict[str, str]:
        return describe(await self._probed())

    async def create(self, spec: BoxSpec) -> Box:
        host = await self._probed()
        async with self._layout.locked(spec.key):
            record = self._layout.read(spec.key)
            if record is not None:
                return await self._revived(host, record)
            record = self._new(host, spec)
            try:
                return await self._started(host, record)
            except Exception as error:
                message = f"sandbox {spec.key} did not start: {error}{self._log_tail(spec.key)}"
                await self._remove(spec.key)
                raise ProviderError(message) from error

    async def get(self, key: str) -> Box | None:
        host = await self._probed()
        if self._layout.read(key) is None:
            return None
        async with self._layout.locked(key):
            record = self._layout.read(key)
            if record is None:
                return None
            record = await launch.settled(self._layout, record)
            if record.in_memory and not launch.is_running(self._layout, record):
                return None
            return await self._revived(host, record)

    async def stop(self, key: str) -> None:
        """A box with a disk limit keeps its files in memory: they end with it."""
        if self._layout.read(key) is None:
            return
        async with self._layout.locked(key):
            record = self._layout.read(key)
            if record is not None:
                await self._let_go(key)
                await launch.end(self._layout, record)
                self._layout.write(msgspec.structs.replace(record, state="stopped"))

    async def pause(self, key: str) -> None:
        await self._set_paused(key, True)

    async def resume(self, key: str) -> None:
        await self._set_paused(key, False)

    async def delete(self, key: str) -> None:
        async with self._layout.locked(key, remove_after=True):
            await self._remove(key)

    async def list_owned(self, owner: str) -> list[BoxInfo]:
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

    async def fetch_git(self, box: Box, url: str, ref: str, target: str) -> None:
        record = self._layout.read(box.key)
        if record is None:
            raise BoxGone(f"there is no sandbox {box.key}")
        await git.fetch(await self._probed(), self._layout, record, box, url, ref, target)

    async def close(self) -> None:
        for key in list(self._boxes):
            await self._let_go(key)

    async def _probed(self) -> Host:
        if self._host is None:
            self._layout.prepare()
            host = await probe(self._isolation)
            for path in self._layout.put_aside_before():
                await remove_tree(path)
            self._host, self.powers = host, powers_of(self._isolation, host)
        return self._host

    def _new(self, host: Host, spec: BoxSpec) -> BoxRecord:
        """The box's directories and its record; nothing runs yet."""
        workspace, uid = self._layout.workspace(spec.key), box_uid(host, spec.key)
        self._layout.folder(spec.key).mkdir(mode=0o700, exist_ok=True)
        for path, mode in ((workspace, 0o755), (self._layout.jobs(spec.key), 0o700)):
            path.mkdir(mode=mode, exist_ok=True)
            if uid is not None:
                os.chown(path, uid, uid)
        isolated = host.bubblewrap is not None
        return BoxRecord(
            spec=spec,
            created_at=time.time(),
            mode="bubblewrap" if isolated else "none",
            root=spec.root if isolated else str(workspace),
            uid=uid,
        )

    async def _revived(self, host: Host, record: BoxRecord) -> Box:
        """The box of a record: as it runs, awake, or started again on its files."""
        record = await launch.settled(self._layout, record)
        if not launch.is_running(self._layout, record):
            if record.in_memory and record.outer is not None:
                raise BoxGone(
                    f"sandbox {record.spec.key} has ended, and with it its files: they were kept "
                    "in memory because of its disk limit"
                )
            await self._let_go(record.spec.key)
            await launch.end(self._layout, record)
            try:
                return await self._started(host, record)
            except ProviderError as error:
                tail = self._log_tail(record.spec.key)
                raise ProviderError(
                    f"sandbox {record.spec.key} did not start again: {error}{tail}"
                ) from error
        if record.state == "paused":
            record = await self._thawed(record)
        return self._box(record)

    async def _started(self, host: Host, record: BoxRecord) -> Box:
        key = record.spec.key
        home = hashlib.sha256(os.fsencode(self._layout.home)).hexdigest()[:8]
        record = await launch.launch(host, self._layout, record, f"{key}-{home}")
        box = self._box(record)
        answer = asyncio.ensure_future(box.sessions())
        try:
            await self._answered(record, answer)
        except BaseException:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
            raise
        return box

    async def _answered(self, record: BoxRecord, answer: asyncio.Future[int]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ANSWER_S
        while not answer.done():
            await asyncio.wait([answer], timeout=_LOOK_S)
            if answer.done():
                break
            if not launch.is_running(self._layout, record):
                raise ProviderError("its first process ended")
            if loop.time() > deadline:
                raise ProviderError(f"its agent did not answer within {_ANSWER_S:.0f} s")
        await answer

    def _box(self, record: BoxRecord) -> AgentBox:
        key = record.spec.key
        known = self._boxes.get(key)
        if known is not None and known[0].outer == record.outer:
            return known[1]
        box = AgentBox(
            key,
            record.root,
            lambda: asyncio.open_unix_connection(record.socket),
            {port: ("127.0.0.1", host_port) for port, host_port in record.ports.items()},
        )
        self._boxes[key] = (record, box)
        return box

    async def _let_go(self, key: str) -> None:
        known = self._boxes.pop(key, None)
        if known is not None:
            await known[1].close()

    async def _remove(self, key: str) -> None:
        record = self._layout.read(key)
        await self._let_go(key)
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
                await freezing.freeze(self._layout, record)
                self._layout.write(msgspec.structs.replace(record, state="paused"))

    async def _thawed(self, record: BoxRecord) -> BoxRecord:
        await freezing.thaw(self._layout, record)
        record = msgspec.structs.replace(record, state="running")
        self._layout.write(record)
        return record

    def _log_tail(self, key: str) -> str:
        try:
            said = self._layout.log(key).read_bytes()
        except FileNotFoundError:
            return ""
        return f"; it said: {said.decode(errors='replace').strip()[-_LOG_TAIL:]}" if said else ""


def _remove_socket(record: BoxRecord) -> None:
    if record.socket:
        Path(record.socket).unlink(missing_ok=True)
