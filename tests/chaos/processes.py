"""Processes of the system under test: each in its own process group, ended by its own id.

They are forked from a warm interpreter (``support.processes.warm_python``), because tests start
hundreds.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from support.processes import warm_python
from support.processes.warm_server import Order

PROGRAMS = Path(__file__).parent / "programs"
GONE_WITHIN_S = 30.0
_CRASHED = re.compile(r"^crash point \S+ at (\d+)$", re.MULTILINE)


class Program:
    """One running program of ``programs/``."""

    def __init__(self, inner: warm_python.WarmProcess, stderr: Path) -> None:
        self._inner = inner
        self._stdout = asyncio.StreamReader()
        self._transport: asyncio.BaseTransport | None = None
        self.stderr = stderr
        self.killed_ns: int | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        *arguments: str,
        env: Mapping[str, str],
        stderr: Path,
        crash_at: str | None = None,
        victim: int | None = None,
    ) -> Program:
        changes = {"SANDSTREAM_CRASH_AT": crash_at} if crash_at else {}
        if victim is not None:
            changes["SANDSTREAM_CRASH_PID"] = str(victim)
        order = Order(
            str(PROGRAMS / f"{name}.py"),
            list(arguments),
            env={**env, **changes},
            directory=str(PROGRAMS),
            own_session=True,
        )
        reads, writes = os.pipe()
        with stderr.open("wb") as errors:
            streams = None, writes, errors.fileno()
            inner = await asyncio.to_thread(warm_python.start, order, *streams)
        os.close(writes)
        program = cls(inner, stderr)
        await program._listen(reads)
        return program

    async def _listen(self, reads: int) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._stdout), os.fdopen(reads, "rb")
        )

    @property
    def pid(self) -> int:
        return self._inner.pid

    @property
    def is_running(self) -> bool:
        return self._inner.poll() is None

    async def line(self, within_s: float = 30.0) -> str:
        """Its next line of output; empty if it ended."""
        async with asyncio.timeout(within_s):
            return (await self._stdout.readline()).decode().strip()

    async def ready(self) -> None:
        if (said := await self.line()) != "ready":
            raise AssertionError(f"not ready ({said!r}): {self.errors()}")

    async def wait(self, within_s: float) -> int:
        """Its exit code, -9 if it was killed."""
        async with asyncio.timeout(within_s):
            while (code := self._inner.poll()) is None:
                await asyncio.sleep(0.01)
            return code

    def errors(self) -> str:
        return self.stderr.read_text()[-4000:]

    def crashed_ns(self) -> int | None:
        """When it reached its crash point, as it reported."""
        found = _CRASHED.search(self.stderr.read_text())
        return int(found.group(1)) if found else None

    async def suspend(self, within_s: float = 10.0) -> None:
        """SIGSTOP, and wait until it has stopped: it keeps its connections and does nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        await self.suspended(within_s)

    async def suspended(self, within_s: float) -> None:
        """Wait until it stands still, as at a crash point that is armed with ``stop``."""
        async with asyncio.timeout(within_s):
            while not self.is_suspended():
                await asyncio.sleep(0.005)

    def is_suspended(self) -> bool:
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it ends while it is read
            return False
        return status.rpartition(")")[2].split()[0] == "T"

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.is_running:
            self.killed_ns = time.time_ns()
            os.kill(self.pid, signal.SIGKILL)
        await self.wait(GONE_WITHIN_S)
        self._inner.close()
        if self._transport is not None:
            self._transport.close()
