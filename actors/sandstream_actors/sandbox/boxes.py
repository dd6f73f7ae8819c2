"""From a record in the log to a live box: find it, wake it, recover it, make it.

The log is written first (intent) and last (ready), so that every existing box can be found from it.
A box whose actor died is found again; one that is gone is restored from its last checkpoint; a box
that cannot be restored is reported as lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from weakref import WeakValueDictionary

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import BusError
from sandstream_bus.logs.sandboxes import SandboxMovedOn, machine_of
from sandstream_bus.wire.sandboxes import (
    SandboxEvent,
    SandboxIntended,
    SandboxLost,
    SandboxReady,
    SandboxSpec,
    SandboxStopped,
)
from sandstream_providers.interface import Box, BoxGone, Provider, Recalls
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.checkpoints import loss_of
from sandstream_actors.sandbox.failures import Elsewhere, Refused, failure_of
from sandstream_actors.sandbox.initial_files import fill
from sandstream_actors.sandbox.live import (
    Live,
    awake,
    remade_notice,
    restored_notice,
    vendor_id_of,
)
from sandstream_actors.sandbox.removals import Removals
from sandstream_actors.sandbox.sources import Sources
from sandstream_actors.sandbox.specs import (
    box_key,
    box_spec_of,
    check_spec,
    environment_of,
    rule_of,
)
from sandstream_actors.sandbox.stored_request import first_use

logger = logging.getLogger(__name__)

_KEPT_LIVE = 1000


class SandboxBoxes:
    """The boxes of one node's sandboxes. Callers hold the lock of the sandbox."""

    def __init__(
        self,
        bus: Bus,
        provider: Provider,
        store: WorkspaceStore,
        *,
        node: str,
        owner: str,
        sources: Sources | None = None,
        owns_boxes: bool = True,
    ) -> None:
        """``owns_boxes``: only the node that made a box can reach it. False: every node can."""
        self._bus = bus
        self._provider = provider
        self._store = store
        self.node = node
        self.owner = owner
        self.owns_boxes = owns_boxes
        self.sources = sources or Sources()
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._removals = Removals(provider)

    async def record(self, sandbox: str) -> SandboxRecord:
        """The record of a sandbox, from its log. Tells a provider that keeps no records itself."""
        record = SandboxRecord.of(sandbox, await self._bus.sandboxes.read(sandbox))
        is_ours = record.may_have_box and record.provider == self._provider.name
        if is_ours and isinstance(self._provider, Recalls):
            self._provider.recall(box_spec_of(record, self.owner), record.box_id)
        return record

    def forget(self, sandbox: str) -> None:
        """Forget it, so that the next operation reads its log again."""
        self._live.pop(sandbox, None)

    def forget_all(self) -> None:
        self._live.clear()

    # --- finding -------------------------------------------------------------------------------

    async def _find(self, record: SandboxRecord, *, anew: bool = False) -> Live:
        """The box of a sandbox that the log knows."""
        sandbox = record.sandbox
        if record.state == "unknown":
            raise Refused("workspace_start_error", f"there is no sandbox {sandbox}")
        if record.state == "deleted":
            raise Refused("workspace_lost", f"sandbox {sandbox} was deleted", reason="deleted")
        if record.provider != self._provider.name:
            raise Refused(
                "workspace_start_error",
                f"sandbox {sandbox} is of the provider {record.provider!r}, "
                f"not of {self._provider.name!r}",
            )
        if record.state == "stopped":
            return await self._make(record, record.spec, "")
        if record.node != self.node and await self.is_served(record.node):
            raise Elsewhere(record.node)
        if record.state == "intended":
            return await self._make(record, record.spec, "")  # its creator died on the way
        if record.node != self.node and not self._is_neighbours(record):
            return await self._recover(record, f"its node {record.node} is gone", anew=anew)
        if record.state == "lost":
            return await self._recover(record, record.reason, anew=anew)
        if record.node != self.node and not record.is_saved:
            await self._inherit(record)
        box = await awake(self._provider, record)
        if box is None:
            return await self._recover(record, "its box is gone", anew=anew)
        if record.is_saved and (loss := await loss_of(self._store, record, box)):
            reason = f"{loss} after its box was woken"
            return await self._recover(record, reason, anew=anew, removes_box=True)
        if record.state == "paused":
            if self._verifies_wake or record.is_kept:
                await self._append(record, self._ready(record, box))
            record.woke()
        return self._keep(record, box)

    def _is_neighbours(self, record: SandboxRecord) -> bool:
        """Does it have a box that another process made and this process can reach?"""
        is_near = not self.owns_boxes or machine_of(record.node) == machine_of(self.node)
        return record.may_have_box and is_near

    async def is_ours(self, record: SandboxRecord) -> bool:
        """Does it belong to this process, or has its process on this machine ended?"""
        if record.node == self.node:
            return True
        return self._is_neighbours(record) and not await self.is_served(record.node)

    async def _inherit(self, record: SandboxRecord) -> None:
        if record.state == "paused":
            with contextlib.suppress(BoxGone):  # its leftovers are found next
                await self._provider.resume(record.key)
        await self._append(record, self._ready(record, None, restored=record.base))

    def _ready(
        self,
        record: SandboxRecord,
        box: Box | None,
        *,
        restored: str = "",
        duration_ms: int = 0,
        run: str | None = None,
    ) -> SandboxReady:
        return SandboxReady(
            generation=record.generation,
            node=self.node,
            key=record.key,
            root=record.root if box is None else box.root,
            restored=restored,
            duration_ms=duration_ms,
            box_id=vendor_id_of(box) or record.box_id,
            run=run,
        )

    async def _recover(
        self, record: SandboxRecord, reason: str, *, anew: bool = False, removes_box: bool = False
    ) -> Live:
        """Continue from the last checkpoint. Without one, begin again (``anew``) or report it.
        ``removes_box``: there is a box, which is not used any more.
        """
        restorable = bool(record.tree)
        if record.state != "lost":
            lost = SandboxLost(generation=record.generation, reason=reason, restorable=restorable)
            await self._append(record, lost)
        self.forget(record.sandbox)
        if removes_box:
            self._removals.remove(record.key)
        facts = {"sandbox": record.sandbox, "reason": reason, "restorable": restorable}
        logger.warning("a sandbox was lost: %s", reason, extra=facts)
        if not restorable and not anew:
            raise Refused(
                "workspace_lost",
                f"the workspace of sandbox {record.sandbox} is lost: {reason}, and it had no "
                "checkpoint",
                reason=reason,
            )
        notice = restored_notice(reason) if restorable else remade_notice(reason)
        return await self._make(record, record.spec, notice)

    # --- making --------------------------------------------------------------------------------

    async def _make(self, record: SandboxRecord, spec: SandboxSpec, notice: str) -> Live:
        """Create a box for the sandbox, from its last checkpoint or its plan. Repeated as a whole
        after a crash: the box is found by its key, and emptied first.
        """
        began = time.monotonic()
        checked = await check_spec(spec, self.sources)
        env = environment_of(spec)
        is_reached = record.node == self.node or not self.owns_boxes
        is_begun = record.state == "intended" and is_reached
        if not is_begun or record.node != self.node:
            generation = record.generation + (0 if is_begun else 1)
            intended = SandboxIntended(
                spec=spec,
                generation=generation,
                provider=self._provider.name,
                node=self.node,
                key=box_key(self.owner, record.sandbox, generation),
            )
            crashpoint("sandbox.before_intent")
            await self._append(record, intended)
        crashpoint("sandbox.after_intent")
        try:
            box_spec = box_spec_of(record, self.owner, may_exist=is_begun)
            box = await self._provider.create(box_spec)
            crashpoint("sandbox.after_create")
            op, reused = await first_use(self._bus, record, box)
            notice = notice or reused
            await fill(record, box, checked, self._provider, self._store, op=op)
        except Exception as error:
            if not isinstance(error, BusError) or failure_of(error, "open") is not None:
                await self._give_up(record, error)
            raise
        duration_ms = round((time.monotonic() - began) * 1000)
        ready = self._ready(record, box, restored=record.base, duration_ms=duration_ms)
        crashpoint("sandbox.before_ready")
        await self._append(record, ready)
        crashpoint("sandbox.after_ready")
        live = self._keep(record, box, env)
        live.notice = notice
        live.is_new = True
        return live

    async def _give_up(self, record: SandboxRecord, error: Exception) -> None:
        """Delete a box that could not be filled; the record gives the reason."""
        await self._provider.delete(record.key)
        stopped = SandboxStopped(generation=record.generation, reason=str(error))
        await self._append(record, stopped)

    def _keep(self, record: SandboxRecord, box: Box, env: dict[str, str] | None = None) -> Live:
        known = self._live.get(record.sandbox)
        live = Live(
            record=record,
            box=box,
            rule=rule_of(record, box.root),
            env=environment_of(record.spec) if env is None else env,
            epoch=self._bus.connection.reconnects,
        )
        if known is not None and known.record.key == record.key:
            live.notice, live.is_new = known.notice, known.is_new
        record.root = box.root
        record.box_id = vendor_id_of(box) or record.box_id
        self._live[record.sandbox] = live
        while len(self._live) > _KEPT_LIVE:
            self._live.popitem(last=False)
        return live

    # --- parts ---------------------------------------------------------------------------------

    def _lock(self, sandbox: str) -> asyncio.Lock:
        """One task at a time creates, saves or closes a sandbox. Removed when unused."""
        return self._locks.setdefault(sandbox, asyncio.Lock())

    async def _append(self, record: SandboxRecord, event: SandboxEvent) -> None:
        try:
            sequence = await self._bus.sandboxes.append(
                record.sandbox, event, after=record.last_seq
            )
        except SandboxMovedOn:
            self.forget(record.sandbox)
            raise
        record.apply(sequence, event)

    async def is_served(self, node: str) -> bool:
        consumer = f"sandbox-{self._provider.name}-{node}"
        if await self._bus.presence.is_served(consumer):
            return True
        # after a restart of the server its clients are disconnected for a moment
        await asyncio.sleep(0.5)
        return await self._bus.presence.is_served(consumer)

    @property
    def _verifies_wake(self) -> bool:
        """May a box lose files while it is paused?"""
        return bool(getattr(self._provider, "verifies_wake", False))
