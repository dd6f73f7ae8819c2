"""No orphans: compares what the provider lists with what the log says, and lets go of the rest.

A box is kept while the log says that it is its sandbox's current one. Superseded, closed and
unknown ones are removed after a grace, which is longer than any creation takes. A run that ended
without closing its sandbox has it closed here; one that has been idle is paused.
"""

from __future__ import annotations

import asyncio
import logging
import time

from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError
from sandstream_bus.log import Conflict
from sandstream_bus.messages import CancelRequested
from sandstream_bus.sandboxes import SandboxMovedOn
from sandstream_bus.subjects import RunId
from sandstream_providers.interface import BoxInfo, Provider, ProviderError

from sandstream_actors.harness.ends import cancelled
from sandstream_actors.run_state import RunState
from sandstream_actors.sandbox.failures import Elsewhere, Refused
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.news import IDLE
from sandstream_actors.sandbox.record import SandboxRecord

logger = logging.getLogger(__name__)

GRACE_S = 600.0
_FIRST_S = 5.0
"""The first look comes early: callers' processes may be too short-lived for a second one."""


class Reaper:
    """Looks around every now and then."""

    def __init__(
        self,
        bus: Bus,
        lifecycle: Lifecycle,
        provider: Provider,
        *,
        every_s: float,
        grace_s: float = GRACE_S,
    ) -> None:
        self._bus = bus
        self._lifecycle = lifecycle
        self._provider = provider
        self._every_s = every_s
        self._grace_s = grace_s

    async def run(self) -> None:
        await asyncio.sleep(min(_FIRST_S, self._every_s))
        while True:
            try:
                await self.sweep()
            except (BusError, ProviderError) as error:
                logger.warning("the reaper could not look around", extra={"why": str(error)})
            await asyncio.sleep(self._every_s)

    async def sweep(self) -> list[str]:
        """One look; the keys of the boxes that were removed."""
        removed = []
        for info in await self._provider.list_owned(self._lifecycle.owner):
            try:
                if await self._is_orphan(info):
                    await self._provider.delete(info.key)
                    removed.append(info.key)
                    logger.info("an orphaned box was removed", extra={"key": info.key})
            except (Refused, Elsewhere, SandboxMovedOn) as error:
                logger.info("a box is left for later", extra={"key": info.key, "why": str(error)})
            except BusError:
                raise
            except Exception:  # one bad box must not keep the others
                logger.exception("a box cannot be looked after", extra={"key": info.key})
        for sandbox in self._lifecycle.idle(time.monotonic()):
            try:
                await self._lifecycle.pause(sandbox, IDLE)
            except (Refused, Elsewhere) as error:
                logger.info("not paused", extra={"sandbox": sandbox, "why": str(error)})
        return removed

    async def _is_orphan(self, info: BoxInfo) -> bool:
        record = await self._lifecycle.record(info.labels.get("sandbox", ""))
        if record.key == info.key and (record.is_live or record.state == "intended"):
            if await self._lifecycle.is_ours(record):
                await self._close_if_run_ended(record)
            return False
        return time.time() - info.created_at > self._grace_s

    async def _close_if_run_ended(self, record: SandboxRecord) -> None:
        if not record.spec.run:
            return
        run = RunId(record.spec.run)
        events = await self._bus.log.read(run, skip_unknown=True)
        state = RunState.of(run, events)
        if state.done is not None or not events or await self._end_if_abandoned(state):
            await self._lifecycle.close(
                record.sandbox,
                checkpoint=bool(events),
                delete=False,
                reason="its run has ended",
            )

    async def _end_if_abandoned(self, state: RunState) -> bool:
        if not await is_abandoned(self._bus, state):
            return False
        state.cancel = CancelRequested(reason="its caller is gone")
        try:
            await self._bus.log.append(
                state.run,
                self._bus.subjects.done(state.run),
                cancelled(state).done,
                after=state.last_seq,
                msg_id=f"{state.run}:abandoned",
            )
        except Conflict:
            return False
        return True


async def is_abandoned(bus: Bus, state: RunState) -> bool:
    """Is it the run of a process that is gone, which nobody can continue?"""
    if state.started is None or state.started.key is not None or state.pool != state.host:
        return False
    if not state.host.startswith("p-"):
        return False  # a deployed agent's: its worker may come back
    consumer = f"tools-{state.host}"
    for _ in range(2):  # after a restart of the server its clients are away for a moment
        if await bus.presence.is_served(consumer):
            return False
        await asyncio.sleep(1.0)
    return True
