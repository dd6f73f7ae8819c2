"""One box: its machine, its time to live, and how it is paused, resumed and killed."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from vendors.box_files import BoxFiles
from vendors.e2b.process_table import ProcessTable
from vendors.e2b.settings import Settings
from vendors.e2b.templates import Template
from vendors.exchange import Exchange
from vendors.machine import Machine

State = Literal["running", "pausing", "paused", "killing"]
PauseMode = Literal["full", "filesystem"]


@dataclass
class Plan:
    """What was asked for when the box was created."""

    template: Template
    timeout_s: float
    metadata: dict[str, str] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    auto_pause: bool = False
    auto_pause_memory: bool = True
    auto_resume: bool = False
    secure: bool = True
    allow_internet_access: bool | None = None
    network: dict[str, Any] | None = None
    base_id: str | None = None
    """The template that the vendor names instead: a fork says what its original was made from."""

    @property
    def template_id(self) -> str:
        return self.base_id or self.template.id

    @property
    def public_traffic(self) -> bool:
        return (self.network or {}).get("allowPublicTraffic") is not False


class Sandbox:
    """A box from its creation to its end. :class:`Fleet` keeps them."""

    def __init__(self, box_id: str, plan: Plan, directory: Path, settings: Settings) -> None:
        self.id = box_id
        self.plan = plan
        self.token = secrets.token_hex(32) if plan.secure else None
        self.traffic_token = None if plan.public_traffic else secrets.token_hex(32)
        self.state: State = "running"
        self.pause_mode: PauseMode | None = None
        self.created_at = time.time()
        self.started_at = self.created_at
        self.ends_at = self.created_at + plan.timeout_s
        self.lost_share = 0.0
        """The share of its files that the next resume loses."""
        self.turn = asyncio.Lock()
        """Held while its state changes."""
        self.open: set[Exchange] = set()
        """Requests that its daemon is working on."""
        self._directory = directory
        self._settings = settings
        self._machine: Machine | None = None
        self._processes: ProcessTable | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._when_over: Callable[[], None] = lambda: None

    @property
    def clock_ahead_s(self) -> float:
        """How wrong the vendor's clock is."""
        return self._settings.clock_ahead_s

    @property
    def machine(self) -> Machine:
        assert self._machine is not None
        return self._machine

    @property
    def processes(self) -> ProcessTable:
        assert self._processes is not None
        return self._processes

    async def start(self, when_over: Callable[[], None]) -> None:
        """Boot it. ``when_over`` is called when its time is over."""
        self._when_over = when_over
        if self.plan.template.files is not None and not self._directory.exists():
            await asyncio.to_thread(_copy, self.plan.template.files, self._directory)
        await self._boot()
        self._set_timer()

    async def _boot(self) -> None:
        self._machine = await Machine.start(
            self._directory,
            python=self.plan.template.python,
            sudo=self._settings.sudo,
            hostname="e2b.local",
        )
        environment = {
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": self.id,
            "E2B_TEMPLATE_ID": self.plan.template.id,
            **self.plan.environment,
        }
        self._processes = ProcessTable(self._machine, environment, self._settings)

    def keep_until(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, self.ends_at - time.time()), self._when_over)

    async def pause(self, memory: bool) -> None:
        """Freeze it with all its processes, or keep its files only. Its connections end."""
        self.state = "pausing"
        self._stop_timer()
        self.cut()
        if memory:
            self.processes.hold()
            await self.machine.freeze()
        else:
            await self.machine.stop()
        self.pause_mode = "full" if memory else "filesystem"
        self.ends_at = time.time()
        self.state = "paused"

    async def resume(self, timeout_s: float, memory: bool) -> None:
        """Go on where it was paused, or boot from its files."""
        if self.lost_share:
            await asyncio.to_thread(self.machine.files.lose, self.lost_share)
            self.lost_share = 0.0
        if memory and self.pause_mode == "full":
            await self.machine.thaw()
            self.processes.go_on()
        else:
            await self.machine.stop()
            await self._boot()
        self.state = "running"
        self.pause_mode = None
        self.started_at = time.time()
        self.keep_until(self.started_at + timeout_s)

    async def snapshot(self, directory: Path) -> None:
        """Copy its files; it stands still meanwhile."""
        await self.machine.freeze()
        try:
            await asyncio.to_thread(self.machine.files.copy_to, directory)
        finally:
            await self.machine.thaw()

    async def kill(self) -> None:
        """End it with its files."""
        self.state = "killing"
        self._stop_timer()
        self.cut()
        await self.machine.remove()

    async def stop(self) -> None:
        """The server ends: end its processes; its files stay."""
        self._stop_timer()
        await self.machine.stop()

    def cut(self) -> None:
        """Close every connection to its daemon."""
        for exchange in tuple(self.open):
            if self._settings.stream_end == "reset":
                exchange.close()
        self.open.clear()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _copy(source: Path, directory: Path) -> None:
    BoxFiles(source, home="/", user="user").copy_to(directory)


def stamp(seconds: float) -> str:
    """A time as the vendor writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
