"""A real nats-server for tests: killed with SIGKILL, restarted on the same port and store."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandstream_bus.bus import Bus
from sandstream_bus.embedded.server_binary import find_server_binary
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.topology import Retention
from support.processes.lifeline import ends_with_us

START_S = 15.0


class NatsServer:
    """One server process. Its starter stops it."""

    def __init__(self, directory: Path, *, config: str = "") -> None:
        self._directory = directory
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def options(self, **changes: Any) -> ConnectOptions:
        return ConnectOptions(**({"servers": [self.url]} | changes))

    def start(self) -> None:
        """Start, on the previous port if there was one, and wait for the greeting."""
        ports = self._directory / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir(parents=True)
        config = self._directory / "nats.conf"
        store = json.dumps(str(self._directory / "store"))
        config.write_text(
            f"{self._config}\njetstream {{ store_dir: {store}, max_file: 4GB, max_mem: 256MB }}\n"
        )
        self._process = subprocess.Popen(
            [
                *ends_with_us(),
                str(find_server_binary()),
                *("-a", "127.0.0.1", "-p", str(self.port or -1)),
                *("-c", str(config), "--ports_file_dir", str(ports)),
                *("-l", str(self._directory / "nats.log")),
            ]
        )
        deadline = time.monotonic() + START_S
        while not self._greets(ports):
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self._directory / "nats.log").read_text()
                raise RuntimeError(f"nats-server did not start:\n{log[-2000:]}")
            time.sleep(0.005)

    def _greets(self, ports: Path) -> bool:
        if not self.port:
            found = list(ports.glob("*.ports"))
            try:
                self.port = int(json.loads(found[0].read_text())["nats"][0].rpartition(":")[2])
            except (IndexError, ValueError):  # not written, or not to its end
                return False
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as greeter:
                return greeter.recv(4) == b"INFO"
        except OSError:
            return False

    def set_up(self, prefix: str = "sandstream", **options: Any) -> None:
        """Create the streams like ``sandstream setup``, for programs that only get the URL."""
        with ThreadPoolExecutor(1) as pool:  # the caller may have a loop
            pool.submit(asyncio.run, set_up_streams(self.options(**options), prefix)).result()

    def kill(self) -> None:
        """kill -9"""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """kill -9, then start again on the same port and store."""
        self.kill()
        self.start()

    def suspend(self) -> None:
        """Make it hang without closing its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # returns when it has stopped

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, with_signal: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(with_signal)
            if with_signal is not signal.SIGKILL:
                self._process.send_signal(signal.SIGCONT)
        self._process.wait(timeout=20)
        self._process = None


async def set_up_streams(options: ConnectOptions, prefix: str = "sandstream") -> None:
    """Create missing streams."""
    bus = await Bus.open(options, prefix=prefix, create="missing")
    await bus.close()


@asynccontextmanager
async def open_bus(
    server: NatsServer,
    *,
    prefix: str = "sandstream",
    retention: Retention | None = None,
    **options: Any,
) -> AsyncIterator[Bus]:
    """A bus on the server, closed at the end. Missing streams are created."""
    bus = await Bus.open(
        server.options(**options), prefix=prefix, create="missing", retention=retention
    )
    try:
        yield bus
    finally:
        await bus.close()
