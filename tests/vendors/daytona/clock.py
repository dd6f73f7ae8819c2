"""What happens to boxes by itself: automatic stop, pause and deletion, and the time to live."""

from __future__ import annotations

import asyncio
import contextlib
import time

from vendors.daytona.fleet import Fleet
from vendors.daytona.refusals import Refusal
from vendors.daytona.sandbox import Sandbox

TICK_S = 0.5
LONGEST_STOP_MINUTES = 30 * 24 * 60
"""The automatic archive interval that 0 stands for."""


class Clock:
    """Looks at every box now and then."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for box in list(self._fleet.boxes.values()):
                with contextlib.suppress(Refusal):  # its owner was faster
                    await self._look(box)

    async def expire(self, box: Sandbox) -> None:
        """The next automatic change of the box happens now.

        Raises:
            ValueError: none is due for this box, ever.
        """
        if box.state == "started" and (box.auto_stop_interval or box.auto_pause_interval):
            await self._idle(box)
        elif box.destroy_at is not None or (
            box.state in ("stopped", "paused") and box.auto_delete_interval >= 0
        ):
            await self._fleet.destroy(box)
        else:
            raise ValueError(f"nothing is due for box {box.id} in state {box.state}")

    async def _look(self, box: Sandbox) -> None:
        now, minute_s = time.time(), self._fleet.settings.minute_s
        if box.changing:
            return
        if box.destroy_at is not None and now >= box.destroy_at:
            await self._fleet.destroy(box)
        elif box.state == "started":
            interval = box.auto_pause_interval or box.auto_stop_interval
            if interval and now - box.last_activity >= interval * minute_s:
                await self._idle(box)
        elif box.state in ("stopped", "paused") and box.stopped_at is not None:
            stopped_s = now - box.stopped_at
            if box.auto_delete_interval >= 0 and stopped_s >= box.auto_delete_interval * minute_s:
                await self._fleet.destroy(box)
            elif box.state == "stopped" and stopped_s >= minute_s * (
                box.auto_archive_interval or LONGEST_STOP_MINUTES
            ):
                await self._fleet.archive(box)

    async def _idle(self, box: Sandbox) -> None:
        if box.auto_pause_interval and box.pausable:
            await self._fleet.pause(box)
        else:
            await self._fleet.stop(box)
