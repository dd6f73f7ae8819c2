"""A real agent in a directory of the test, without a sandbox around it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from sandstream_providers.box.client import AgentBox
from sandstream_providers.box.package import agent_source
from sandstream_providers.interface import ExecSpec, Output, ResolveRule

BASE_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


class AgentProcess:
    """Keeps what an agent needs to be started, and started again."""

    def __init__(self, home: Path, **config: Any) -> None:
        self.home = home
        self.root = home / "workspace"
        self.jobs = home / "jobs"
        self.prefix: list[str] = config.pop("prefix", [])
        self.python: str = config.pop("python", sys.executable)
        self.stop_with: int = config.pop("stop_with", signal.SIGTERM)
        self.ports: list[int] = config.pop("ports", [])
        self.config = config
        self.process: subprocess.Popen[bytes] | None = None
        self.host_ports: dict[int, tuple[str, int]] = {}
        self.boxes: list[AgentBox] = []
        for folder in (self.root, self.jobs):
            folder.mkdir(exist_ok=True)
        self.file = home / "agent.pyz"
        self.file.write_bytes(agent_source())
        self.socket_path = home / "agent.sock"

    @property
    def rule(self) -> ResolveRule:
        return ResolveRule(roots=[str(self.root)])

    def start(self) -> None:
        self.socket_path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        here = os.open(".", os.O_RDONLY)
        os.chdir(self.home)  # the address of a socket must be short
        listener.bind("agent.sock")
        os.fchdir(here)
        os.close(here)
        listener.listen(64)
        jobs = os.open(self.jobs, os.O_DIRECTORY)
        fds = [listener.fileno(), jobs]
        ports = {}
        listeners = []
        for port in self.ports:
            outer = socket.create_server(("127.0.0.1", 0))
            listeners.append(outer)
            ports[str(port)] = outer.fileno()
            fds.append(outer.fileno())
            self.host_ports[port] = outer.getsockname()
        config = {
            "listen_fd": listener.fileno(),
            "jobs_fd": jobs,
            "ports": ports,
            "root": str(self.root),
            "env": BASE_ENV,
            "output_bytes": 1024 * 1024,
            "memory_bytes": None,
            "wall_s": None,
            "death_fd": None,
            **self.config,
        }
        fds += [config["death_fd"]] if config["death_fd"] is not None else []
        command = [*self.prefix, self.python, "-I", "-S", str(self.file), json.dumps(config)]
        self.process = subprocess.Popen(command, pass_fds=fds)
        os.close(jobs)
        for one in [listener, *listeners]:
            one.close()

    def box(self) -> AgentBox:
        """A client of its own connection."""

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            fd = os.open(self.home, os.O_PATH)
            try:
                return await asyncio.open_unix_connection(f"/proc/self/fd/{fd}/agent.sock")
            finally:
                os.close(fd)

        box = AgentBox("box-1", str(self.root), connect, self.host_ports)
        self.boxes.append(box)
        return box

    def kill(self) -> None:
        """As a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.stop_with)
            self.process.wait()


def unprivileged(home: Path, *limits: str) -> dict[str, Any]:
    """How to start an agent as an ordinary user, who has nothing else to run. Needs root."""
    user = 60_000 + os.getpid() % 5_000
    for folder in (home / "workspace", home / "jobs"):
        folder.mkdir()
        os.chown(folder, user, user)
    for parent in (home, *home.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return {"prefix": ["prlimit", *limits, *drop], "python": "/usr/bin/python3"}


@contextlib.asynccontextmanager
async def running_agent(home: Path, **config: Any) -> AsyncIterator[AgentProcess]:
    agent = AgentProcess(home, **config)
    agent.start()
    try:
        yield agent
    finally:
        for box in agent.boxes:
            await box.close()
        agent.stop()


def shell(script: str, **more: Any) -> ExecSpec:
    return ExecSpec(argv=["sh", "-c", script], cwd="/", **more)


async def answer(ask: Callable[[], Awaitable[Output]], expected: bytes) -> Output:
    """Ask the same again until it is answered with this output, however slow the machine is."""
    while True:
        output = await ask()
        if output.stdout == expected:
            return output
        assert expected.startswith(output.stdout)
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
