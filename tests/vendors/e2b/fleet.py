"""All boxes of the team: making them, finding them, and ending them in time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from vendors.e2b.sandbox import Plan, Sandbox
from vendors.e2b.settings import Settings
from vendors.e2b.templates import Template, Templates, new_id

_CLOCK_ERROR_S = 0.05
"""The timers and the times of boxes use different clocks."""


class TooMany(Exception):
    """The team has as many running boxes as it may have."""


class Fleet:
    def __init__(self, home: Path, settings: Settings) -> None:
        self.templates = Templates()
        self._home = home
        self._settings = settings
        self._boxes: dict[str, Sandbox] = {}
        self._starting = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def boxes(self) -> list[Sandbox]:
        return list(self._boxes.values())

    def find(self, box_id: str) -> Sandbox | None:
        return self._boxes.get(box_id)

    async def create(self, plan: Plan) -> Sandbox:
        """Start a new box. Raises :class:`TooMany`."""
        self._reserve()
        try:
            await asyncio.sleep(self._settings.create_seconds)
            box_id = f"i{new_id()}"
            box = Sandbox(box_id, plan, self._home / "boxes" / box_id, self._settings)
            await box.start(lambda: self._in_background(box))
            self._boxes[box_id] = box
            return box
        finally:
            self._starting -= 1

    async def resume(self, box: Sandbox, timeout_s: float, memory: bool = True) -> None:
        """Resume a paused box. Raises :class:`TooMany`."""
        self._reserve()
        try:
            await box.resume(timeout_s, memory)
        finally:
            self._starting -= 1

    async def kill(self, box: Sandbox) -> None:
        async with box.turn:
            if self._boxes.get(box.id) is box:
                await box.kill()
                del self._boxes[box.id]

    async def expire(self, box: Sandbox) -> None:
        """Its time is over: kill it, or pause it if it was created so."""
        if not box.plan.auto_pause:
            await self.kill(box)
            return
        async with box.turn:
            if box.state == "running":
                await box.pause(box.plan.auto_pause_memory)

    async def snapshot(self, box: Sandbox, name: str | None) -> Template:
        """Make a template from the files of a running box."""
        files = self._home / "templates" / new_id()
        await box.snapshot(files)
        return self.templates.add_snapshot(box.id, box.plan.template, files, name)

    async def close(self) -> None:
        await asyncio.gather(*(box.stop() for box in self.boxes), return_exceptions=True)

    def _reserve(self) -> None:
        running = sum(box.state == "running" for box in self._boxes.values())
        if running + self._starting >= self._settings.concurrent_sandboxes:
            raise TooMany
        self._starting += 1

    def _in_background(self, box: Sandbox) -> None:
        task = asyncio.get_running_loop().create_task(self._expire_if_over(box))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _expire_if_over(self, box: Sandbox) -> None:
        if box.ends_at <= time.time() + _CLOCK_ERROR_S:
            await self.expire(box)
