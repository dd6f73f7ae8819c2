"""A Docker engine of one test alone, which may kill, stop and restart it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.engines import engine
from support.waiting import until

_LIVE_RESTORE = "--live-restore"


class OwnEngine:
    """In a network of its own, with the images of the tests. Its data are gone afterwards."""

    def __init__(
        self,
        *,
        live_restore: bool,
        hides: Path | None = None,
        disk_mb: int | None = None,
        containerd_images: bool = False,
    ) -> None:
        """Args:
        live_restore: Containers go on while the engine restarts; else they end. May be changed
            before a restart.
        hides: A directory whose files the engine does not see.
        disk_mb: The size of the disk for images, containers and volumes.
        containerd_images: containerd keeps the images, as in new installations of Docker 29.
        """
        self.live_restore = live_restore
        self._more = {
            "ENGINE_HIDES": str(hides or ""),
            "ENGINE_DISK_MB": str(disk_mb or ""),
            "ENGINE_CONTAINERD": "yes" if containerd_images else "",
        }
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
        """For callers that do not use it as a context."""
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
        """SIGSTOP: its callers wait."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def fill_disk(self) -> None:
        """Until not a byte is free. For an engine with a disk of its own."""
        with self._filler().open("ab", buffering=0) as file:
            for size in (1024 * 1024, 4096):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def free_disk(self) -> None:
        self._filler().unlink(missing_ok=True)

    def _filler(self) -> Path:
        return Path((self._home / "data-root").read_text().strip()) / "filler"

    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")

    async def containers(self) -> list[str]:
        """All of them, of any label and state: ``docker ps -a``."""
        found: list[dict[str, Any]] = await asyncio.to_thread(
            engine.ask, self.url, "/containers/json?all=1"
        )
        return [f"{' '.join(it['Names'])} ({it['Status']}) {it['Labels']}" for it in found]

    async def _script(self, name: str, *arguments: str) -> None:
        places = {"ENGINE_HOME": str(self._home), "DOCKER_HOST": self.url, **self._more}
        await asyncio.to_thread(engine.run_script, name, *arguments, **places)


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
