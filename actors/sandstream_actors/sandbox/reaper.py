"""Removes orphans: compares the provider's boxes with the log, and removes those that are not
needed.

A box is kept while the log names it as its sandbox's current box and the sandbox is still needed
(``owners``). Superseded, closed and unknown boxes are removed after a grace period, which is longer
than any creation takes. The reaper also closes the sandboxes of runs that ended without closing
them and of programs that are gone, and pauses idle sandboxes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Container
from datetime import datetime

from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError, MessageError
from sandstream_bus.logs.runs import Conflict
from sandstream_bus.logs.sandboxes import SandboxMovedOn
from sandstream_bus.wire.messages import CancelRequested
from sandstream_providers.interface import BoxInfo, Leasing, Provider, ProviderError
from sandstream_workspaces.errors import CheckpointFailed

from sandstream_actors.run.ends import cancelled
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.run.state import RunState
from sandstream_actors.sandbox.failures import Elsewhere, Refused
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.news import IDLE
from sandstream_actors.sandbox.owners import owner_of

logger = logging.getLogger(__name__)

GRACE_S = 600.0
_FIRST_S = 5.0
"""The first check comes early: callers' processes may be too short-lived for a second one."""


class Reaper:
    """Checks the boxes periodically."""

    def __init__(
        self,
        bus: Bus,
        lifecycle: Lifecycle,
        provider: Provider,
        *,
        every_s: float,
        grace_s: float = GRACE_S,
        is_patient: bool = True,
    ) -> None:
        """Args:
        bus: Has the log.
        lifecycle: Closes and pauses sandboxes.
        provider: Whose boxes are checked.
        every_s: The time between two checks.
        grace_s: Boxes that the log does not name are removed when they are older.
        is_patient: A vendor's box whose program is gone is closed at the second check that finds
            it so: until then the program may come back for it. False: at the first.
        """
        self._bus = bus
        self._lifecycle = lifecycle
        self._provider = provider
        self._every_s = every_s
        self._grace_s = grace_s
        self._is_patient = is_patient
        self._told: set[str] = set()
        self._left: set[str] = set()
        """Running boxes of a vendor whose program was gone at the last check."""
        self._left_before: set[str] = set()

    async def run(self) -> None:
        await asyncio.sleep(min(_FIRST_S, self._every_s))
        while True:
            try:
                await self.sweep()
            except (BusError, ProviderError) as error:
                logger.warning("the reaper cannot list the boxes", extra={"why": str(error)})
            await asyncio.sleep(self._every_s)

    async def sweep(self, only: Container[str] | None = None) -> list[str]:
        """Check once; return the keys of removed boxes. ``only``: check only these sandboxes."""
        removed = []
        self._left_before, self._left = self._left, set()
        for info in await self._provider.list_owned(self._lifecycle.owner):
            if only is not None and info.labels.get("sandbox", "") not in only:
                continue
            try:
                if await self._is_orphan(info):
                    await self._provider.delete(info.key)
                    removed.append(info.key)
                    logger.info("an orphaned box was removed", extra={"key": info.key})
            except (Refused, Elsewhere, SandboxMovedOn) as error:
                logger.info("a box is left for later", extra={"key": info.key, "why": str(error)})
            except BusError:
                raise
            except MessageError as error:  # the sandbox's log has an unreadable message
                extra = {"key": info.key, "why": str(error)}
                logger.warning("a box cannot be checked", extra=extra)
            except Exception:  # one bad box must not block the others
                logger.exception("a box cannot be checked", extra={"key": info.key})
        for sandbox in self._lifecycle.idle(time.monotonic()):
            try:
                await self._lifecycle.pause(sandbox, IDLE)
            except (Refused, Elsewhere, SandboxMovedOn, ProviderError, CheckpointFailed) as error:
                logger.info("not paused", extra={"sandbox": sandbox, "why": str(error)})
        return removed

    async def _is_orphan(self, info: BoxInfo) -> bool:
        record = await self._lifecycle.record(info.labels.get("sandbox", ""))
        if record.key == info.key and record.may_have_box:
            if await self._lifecycle.is_ours(record):
                await self._look_after(record, info)
            return False
        if record.state == "unknown" and self._is_of_lost_log(info):
            return False
        return time.time() - info.created_at > self._grace_s

    def _is_of_lost_log(self, info: BoxInfo) -> bool:
        """Was it created before the log was set back? Then it may be the only trace of the lost
        part, and people decide about it.
        """
        change = self._bus.guard.change
        if change is None or info.created_at > datetime.fromisoformat(change.at).timestamp():
            return False
        if info.key not in self._told:
            self._told.add(info.key)
            logger.warning(
                "box %s of sandbox %s belongs to a lost part of the log and is kept",
                info.key,
                info.labels.get("sandbox", ""),
            )
        return True

    async def _look_after(self, record: SandboxRecord, info: BoxInfo) -> None:
        """Close it if its owner is gone. Otherwise hold it: it must not end by itself while an
        actor of its node lives.
        """
        is_running = info.state == "running"
        owns_boxes = self._lifecycle.owns_boxes
        owner = await owner_of(self._bus, record, ends_soon=is_running and owns_boxes)
        if (
            owner.is_gone
            and is_running
            and not owns_boxes
            and not self._is_left_again(info, record)
        ):
            return
        if not owner.is_gone:
            is_frozen = info.state == "paused" and not record.is_kept
            if record.node != self._lifecycle.node and is_frozen and owns_boxes:
                await self._provider.stop(info.key)  # it is frozen, so it cannot end by itself
            elif record.node == self._lifecycle.node and isinstance(self._provider, Leasing):
                self._provider.hold(info.key)
            return
        if owner.abandoned is not None and not await self._end(owner.abandoned):
            return
        await self._lifecycle.close(
            record.sandbox, checkpoint=owner.can_save, delete=False, reason=owner.why
        )

    def _is_left_again(self, info: BoxInfo, record: SandboxRecord) -> bool:
        """May it be closed now? Its program may have crashed and be about to come back."""
        self._left.add(info.key)
        return bool(record.spec.run) or not self._is_patient or info.key in self._left_before

    async def _end(self, state: RunState) -> bool:
        """End a run that cannot be continued, unless the run has new events."""
        state.cancel = state.cancel or CancelRequested(reason="its caller is gone")
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
