"""Each box is an agent process of this machine, without isolation, reached over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from sandstream_providers.box import start
from sandstream_providers.box.link import Streams
from sandstream_providers.box_host import BoxHost, HostedBox
from sandstream_providers.interface import BoxInfo, BoxSpec
from sandstream_providers.processes import (
    ChildFds,
    ProcessMark,
    is_alive,
    send,
    spawn_detached,
    until,
)
from sandstream_providers.registry import ProviderSettings


class Record(msgspec.Struct, kw_only=True):
    """What the toy remembers of a box, in a file."""

    spec: BoxSpec
    created_at: float
    agent: ProcessMark | None = None
    address: str = ""
    token: str = ""


class ToyHost(BoxHost):
    name = "toy"
    powers = frozenset({"pty", "ports", "limits.memory"})

    def __init__(self, home: Path) -> None:
        self._home = home / "toy"

    async def check(self) -> dict[str, str]:
        return {"isolation": "none"}

    async def create(self, spec: BoxSpec) -> HostedBox:
        return await asyncio.to_thread(self._running, spec.key, spec)

    async def get(self, key: str) -> HostedBox | None:
        return await asyncio.to_thread(self._running, key) if self.read(key) else None

    async def stop(self, key: str) -> None:
        record = self.read(key)
        if record is not None:
            send(record.agent, signal.SIGTERM)  # the agent ends all commands
            await until(lambda: not is_alive(record.agent), timeout_s=20)

    async def delete(self, key: str) -> None:
        await self.stop(key)
        await asyncio.to_thread(shutil.rmtree, self._home / key, ignore_errors=True)

    async def list(self, owner: str) -> list[BoxInfo]:
        found = [self.read(path.parent.name) for path in self._home.glob("*/box.json")]
        return [
            BoxInfo(
                key=it.spec.key,
                labels=it.spec.labels,
                state="running" if is_alive(it.agent) else "stopped",
                created_at=it.created_at,
            )
            for it in found
            if it is not None and it.spec.labels.get("owner") == owner
        ]

    async def connect(self, box: HostedBox) -> Streams:
        host, _, port = box.address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    def read(self, key: str) -> Record | None:
        try:
            return msgspec.json.decode((self._home / key / "box.json").read_bytes(), type=Record)
        except FileNotFoundError:
            return None

    def _running(self, key: str, spec: BoxSpec | None = None) -> HostedBox:
        folder = self._home / key
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            record = self.read(key)
            if record is None:
                assert spec is not None
                record = Record(spec=spec, created_at=time.time())
            starts = not is_alive(record.agent)
            if starts:
                _start(record, folder)
                (folder / "box.json").write_bytes(msgspec.json.encode(record))
        return HostedBox(
            key=key,
            root=str(folder / "workspace"),
            instance=str(record.agent),
            address=record.address,
            token=record.token,
            ports={port: ("127.0.0.1", port) for port in record.spec.ports},
            started_now=starts,
        )


def make(settings: ProviderSettings) -> ToyHost:
    return ToyHost(settings.home)


def _start(record: Record, folder: Path) -> None:
    """Start the agent and wait until it says where it listens."""
    (folder / "agent.pyz").write_bytes(start.agent_source())
    log = folder / "log"
    log.write_bytes(b"")
    record.token = start.new_token()
    argv = start.agent_command(
        record.spec,
        agent=str(folder / "agent.pyz"),
        root=str(folder / "workspace"),
        jobs=str(folder / "jobs"),
        tcp="127.0.0.1:0",
        python=sys.executable,
    )
    with ChildFds() as fds:
        record.agent = spawn_detached(argv, {start.TOKEN: record.token}, fds, log)
    while not (said := log.read_bytes()).endswith(b"}\n"):
        if not is_alive(record.agent):
            raise RuntimeError(f"the agent of {record.spec.key} did not start: {said!r}")
        time.sleep(0.005)
    host, port = json.loads(said)["listening"]["tcp"]
    record.address = f"{host}:{port}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
