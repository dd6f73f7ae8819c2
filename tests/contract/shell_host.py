"""Boxes without an agent: directories of this machine, operated by scripts, without isolation.

A box is running as long as its first process is, which only sleeps. The scripts see the programs of
one shell and nothing else; commands see those of the machine, which the tests need.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from sandstream_providers.box.link import Streams
from sandstream_providers.box_host import BoxHost, HostedBox
from sandstream_providers.interface import BoxGone, BoxInfo, BoxSpec, ProviderUnavailable
from sandstream_providers.processes import PATH, ChildFds, ProcessMark, is_alive, spawn_detached
from sandstream_providers.removal import remove_tree
from sandstream_providers.shell.channel import Answer, ShellSettings

MARK = "TOY_SHELL_BOX"
"""In the environment of all processes of a box: its directory."""


class Record(msgspec.Struct, kw_only=True):
    """What the host remembers of a box, in a file."""

    spec: BoxSpec
    created_at: float
    first: ProcessMark | None = None


class ShellHost(BoxHost):
    """``busybox``: scripts run in its shell with its programs; otherwise in dash with coreutils."""

    def __init__(self, home: Path, *, busybox: bool, tools: Path | None = None) -> None:
        """``tools``: programs that scripts find before all others."""
        self.name = "toy-shell" if busybox else "toy-dash"
        self.powers = frozenset({"ports"} if busybox else {"ports", "pty"})
        self._home = home / self.name
        self._busybox = busybox
        self._tools = tools

    async def check(self) -> dict[str, str]:
        self.shell()
        return {"isolation": "none"}

    async def create(self, spec: BoxSpec) -> HostedBox:
        return await asyncio.to_thread(self._running, spec.key, spec)

    async def get(self, key: str) -> HostedBox | None:
        return await asyncio.to_thread(self._running, key) if self.read(key) else None

    async def stop(self, key: str) -> None:
        if self.read(key) is not None:
            await asyncio.to_thread(self.end, key)

    async def delete(self, key: str) -> None:
        await self.stop(key)
        if self.folder(key).exists():
            await remove_tree(self.folder(key))

    async def list(self, owner: str) -> list[BoxInfo]:
        found = [self.read(path.parent.name) for path in self._home.glob("*/box.json")]
        return [
            BoxInfo(
                key=it.spec.key,
                labels=it.spec.labels,
                state="running" if is_alive(it.first) else "stopped",
                created_at=it.created_at,
            )
            for it in found
            if it is not None and it.spec.labels.get("owner") == owner
        ]

    async def connect(self, box: HostedBox) -> Streams:
        raise ConnectionRefusedError(f"box {box.key} has no agent")

    async def open_shell(self, box: HostedBox) -> ToyShell:
        return ToyShell(self, box)

    def read(self, key: str) -> Record | None:
        try:
            return msgspec.json.decode((self.folder(key) / "box.json").read_bytes(), type=Record)
        except FileNotFoundError:
            return None

    def folder(self, key: str) -> Path:
        return self._home / key

    def shell(self) -> tuple[str, str]:
        """The program that runs scripts, and where it finds others."""
        if not self._busybox:
            return "/bin/dash", PATH
        found = shutil.which("busybox")
        if found is None:
            raise ProviderUnavailable("there is no busybox here: install it (make isolation)")
        applets = self._home.parent / "applets"
        if not applets.exists():
            names = subprocess.run([found, "--list"], check=True, capture_output=True, text=True)
            fresh = self._home.parent / f"applets-{os.getpid()}-{id(self)}"
            fresh.mkdir()
            for name in names.stdout.split():
                (fresh / name).symlink_to(found)
            with contextlib.suppress(OSError):  # another process was first
                fresh.rename(applets)
        return str(applets / "sh"), f"{self._tools}:{applets}" if self._tools else str(applets)

    def _running(self, key: str, spec: BoxSpec | None = None) -> HostedBox:
        folder = self.folder(key)
        for name in ("workspace", "records"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            record = self.read(key)
            if record is None:
                assert spec is not None
                record = Record(spec=spec, created_at=time.time())
            starts = not is_alive(record.first)
            if starts:
                with ChildFds() as fds:
                    argv = ["/bin/sleep", "1000000"]
                    record.first = spawn_detached(argv, self.marked(key), fds, folder / "log")
                (folder / "box.json").write_bytes(msgspec.json.encode(record))
        return HostedBox(
            key=key,
            root=str(folder / "workspace"),
            instance=str(record.first),
            kind="shell",
            shell=ShellSettings(
                records=str(folder / "records"),
                env={"PATH": PATH, **record.spec.env, **self.marked(key)},
                limits=record.spec.limits,
            ),
            ports={port: ("127.0.0.1", port) for port in record.spec.ports},
            started_now=starts,
        )

    def marked(self, key: str) -> dict[str, str]:
        return {MARK: str(self.folder(key))}

    def end(self, key: str) -> None:
        """Kill all processes of a box, wherever they are."""
        while pids := _marked(f"{MARK}={self.folder(key)}"):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)


class ToyShell:
    """Each script is a process of its own."""

    def __init__(self, host: ShellHost, box: HostedBox) -> None:
        self._host = host
        self._box = box

    async def run(self, script: str, data: bytes = b"", *, timeout_s: float = 30.0) -> Answer:
        self._check()
        program, path = self._host.shell()
        process = await asyncio.create_subprocess_exec(
            program,
            "-c",
            script,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": path, **self._host.marked(self._box.key)},
            cwd="/",
        )
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate(data)
        assert process.returncode is not None
        if process.returncode < 0:
            self._check()
            raise ConnectionResetError(f"the script was ended by signal {-process.returncode}")
        return Answer(code=process.returncode, stdout=stdout, stderr=stderr)

    async def close(self) -> None:
        """Nothing is kept open."""

    def _check(self) -> None:
        record = self._host.read(self._box.key)
        if record is None or str(record.first) != self._box.instance or not is_alive(record.first):
            raise BoxGone(f"box {self._box.key} does not run")


def _marked(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if os.fsencode(mark) in environment and state not in "ZX":
                found.append(int(folder.name))
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
