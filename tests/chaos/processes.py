"""Processes of the system under test: each in a group of its own, ended by its own id."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
_CRASHED = re.compile(r"^crash point \S+ at (\d+)$", re.MULTILINE)


class Program:
    """One running program of ``programs/``."""

    def __init__(self, inner: asyncio.subprocess.Process, stderr: Path) -> None:
        self._inner = inner
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
        with stderr.open("wb") as errors:
            inner = await asyncio.create_subprocess_exec(
                sys.executable,
                str(PROGRAMS / f"{name}.py"),
                *arguments,
                env={**env, **changes},
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        return cls(inner, stderr)

    @property
    def pid(self) -> int:
        return self._inner.pid

    @property
    def is_running(self) -> bool:
        return self._inner.returncode is None

    async def line(self, within_s: float = 30.0) -> str:
        """Its next line of output; empty if it ended."""
        assert self._inner.stdout is not None
        async with asyncio.timeout(within_s):
            return (await self._inner.stdout.readline()).decode().strip()

    async def ready(self) -> None:
        if (said := await self.line()) != "ready":
            raise AssertionError(f"not ready ({said!r}): {self.errors()}")

    async def wait(self, within_s: float) -> int:
        """Its exit code, -9 if it was killed."""
        async with asyncio.timeout(within_s):
            return await self._inner.wait()

    def errors(self) -> str:
        return self.stderr.read_text()[-4000:]

    def crashed_ns(self) -> int | None:
        """When it reached its crash point, by its own word."""
        found = _CRASHED.search(self.stderr.read_text())
        return int(found.group(1)) if found else None

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.is_running:
            self.killed_ns = time.time_ns()
            os.kill(self.pid, signal.SIGKILL)
        await self._inner.wait()
        self._inner._transport.close()  # type: ignore[attr-defined]  # else: unclosed transport
