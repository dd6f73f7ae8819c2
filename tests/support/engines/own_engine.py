"""A Docker engine of one test alone, which may kill, stop and restart it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support import engine
from support.waiting import until

_LIVE_RESTORE = "--live-restore"
_UP_S = 120.0


class OwnEngine:
    """Has the images of the tests. Without ``live_restore`` its containers end when it restarts."""

    def __init__(self, *, live_restore: bool) -> None:
        self.live_restore = live_restore
        # short, because of its socket
        self._home = Path(tempfile.mkdtemp(prefix="sandstream-engine-", dir="/tmp"))
        self.url = f"unix://{self._home}/docker.sock"

    async def __aenter__(self) -> Self:
        try:
            await self.make()
        except BaseException:
            await self.end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end()

    async def make(self) -> None:
        """For whoever does not use it as a context."""
        await self.up()
        await self._script("base_image.sh")

    async def end(self) -> None:
        await self._script("down.sh")

    @property
    def socket(self) -> Path:
        return self._home / "docker.sock"

    @property
    def pid(self) -> int:
        return int((self._home / "pid").read_text())

    async def up(self) -> None:
        """Start it, or restart it with the containers and images that it had."""
        flags = [_LIVE_RESTORE] if self.live_restore else []
        await self._script("up.sh", "--alone", "--", *flags)

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not _lives(pid), what=f"the engine {pid} is dead")

    def suspend(self) -> None:
        """SIGSTOP: whoever calls it waits."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def containers(self) -> list[str]:
        """All of them, of whatever label and state: ``docker ps -a``."""
        found: list[dict[str, Any]] = await asyncio.to_thread(
            engine.ask, self.url, "/containers/json?all=1"
        )
        return [f"{' '.join(it['Names'])} ({it['Status']}) {it['Labels']}" for it in found]

    async def _script(self, name: str, *arguments: str) -> None:
        environment = {**os.environ, "ENGINE_HOME": str(self._home), "DOCKER_HOST": self.url}
        with tempfile.TemporaryFile() as said:
            done = await asyncio.to_thread(
                subprocess.run,
                [str(engine.SCRIPTS / name), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                timeout=_UP_S,
                check=False,
            )
            said.seek(0)
            why = said.read().decode(errors="replace")[-2000:]
        if done.returncode != 0:
            raise engine.NoEngine(f"tests/engine/{name} says: {why}")


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
