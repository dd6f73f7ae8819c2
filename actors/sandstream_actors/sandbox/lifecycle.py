"""From a record in the log to a live box and back: create, find, recover, checkpoint, close.

The log is written first (intent) and last (ready, stopped), so that every existing box can be found
from it. A box whose actor died is found again; one that is gone is restored from its last
checkpoint; a box that cannot be restored is reported as lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import BusError
from sandstream_bus.logs.sandboxes import SandboxMovedOn, machine_of
from sandstream_bus.nats.subscription import CoreMessage, Subscription
from sandstream_bus.wire.sandboxes import (
    Checkpointed,
    MemoryMount,
    MemorySynced,
    Opened,
    SandboxCheckpointed,
    SandboxDeleted,
    SandboxEvent,
    SandboxIntended,
    SandboxLost,
    SandboxPaused,
    SandboxReady,
    SandboxSpec,
    SandboxStopped,
)
from sandstream_providers.interface import Box, BoxGone, Provider, ProviderError
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.failures import Elsewhere, LetGo, Refused, failure_of, unsaved
from sandstream_actors.sandbox.initial_files import fill
from sandstream_actors.sandbox.live import Live, awake, restored_notice
from sandstream_actors.sandbox.memory_sync import WorkspaceMemories
from sandstream_actors.sandbox.news import IDLE, read_news
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


class Lifecycle:
    """The sandboxes of one node."""

    def __init__(
        self,
        bus: Bus,
        provider: Provider,
        store: WorkspaceStore,
        *,
        node: str,
        owner: str,
        sources: Sources | None = None,
    ) -> None:
        self._bus = bus
        self._provider = provider
        self._store = store
        self.node = node
        self.owner = owner
        self.sources = sources or Sources()
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._removals = Removals(provider)
        self._memories = WorkspaceMemories(bus, provider)
        self._in_use: Counter[str] = Counter()
        self._listening: Subscription | None = None

    async def start(self) -> None:
        """Subscribe to changes that other replicas of the node make to sandboxes known here."""
        self._listening = await self._bus.connection.subscribe(
            self._bus.subjects.sandbox_state("*"), self._on_news
        )

    def _on_news(self, message: CoreMessage) -> None:
        sandbox = self._bus.subjects.parse_sandbox(message.subject).sandbox
        if sandbox not in self._live and sandbox not in self._in_use:
            return
        news = read_news(message.data)
        if news.leaves_box(self.node):
            return
        self.forget(sandbox)
        if news.is_idle_pause and sandbox in self._in_use:
            # the replica that paused it did not know that it is in use here
            self._removals.go_on(self._wake(sandbox))

    async def _wake(self, sandbox: str) -> None:
        try:
            async with self._lock(sandbox):
                record = await self.record(sandbox)
                if record.state == "paused":
                    await self._find(record)
        except (Refused, Elsewhere, ProviderError) as error:  # the next operation reports the error
            logger.info("a sandbox cannot be woken", extra={"sandbox": sandbox, "why": str(error)})

    # --- finding -------------------------------------------------------------------------------

    async def live(self, sandbox: str, *, run: str = "", asked_at: int = 0) -> Live:
        """The sandbox, ready for an operation: woken, found again or restored as needed.

        Raises :class:`Elsewhere`, :class:`Refused`, or :class:`LetGo` if the requesting run has
        closed its sandbox since ``asked_at``.
        """
        found = self._known(sandbox)
        if found is None:
            async with self._lock(sandbox):
                found = self._known(sandbox)
                if found is None:
                    record = await self.record(sandbox)
                    if record.was_let_go_by(run, asked_at):
                        raise LetGo(record.tree)
                    found = await self._find(record)
                    if found.is_new:
                        await self._memories.opened(found, self._append)
        found.used_at = time.monotonic()
        self._live.move_to_end(sandbox)
        return found

    def _known(self, sandbox: str) -> Live | None:
        """The sandbox, if it is known without reading the log."""
        found = self._live.get(sandbox)
        if found is None or found.is_new or found.record.state == "paused":
            return None
        return found if found.epoch == self._bus.connection.reconnects else None

    async def box_of(self, sandbox: str) -> Box | None:
        """Its box if there is one here now; creates and recovers nothing."""
        known = self._live.get(sandbox)
        if known is not None:
            return known.box
        record = await self.record(sandbox)
        if not record.is_live or record.node != self.node:
            return None
        return await self._provider.get(record.key)

    async def was_closed(self, sandbox: str) -> bool:
        """Was its box closed on request? Then no work is repeated in a new one."""
        return (await self.record(sandbox)).state in ("stopped", "deleted")

    async def record(self, sandbox: str) -> SandboxRecord:
        return SandboxRecord.of(sandbox, await self._bus.sandboxes.read(sandbox))

    @contextlib.contextmanager
    def using(self, sandbox: str) -> Iterator[None]:
        """While an operation runs in it, it is not idle."""
        self._in_use[sandbox] += 1
        try:
            yield
        finally:
            self._in_use[sandbox] -= 1
            if not self._in_use[sandbox]:
                del self._in_use[sandbox]
            known = self._live.get(sandbox)
            if known is not None:
                known.used_at = time.monotonic()

    def forget(self, sandbox: str) -> None:
        """Forget it, so that the next operation reads its log again."""
        self._live.pop(sandbox, None)

    def forget_all(self) -> None:
        self._live.clear()

    async def open(
        self, sandbox: str, spec: SandboxSpec | None, memory: MemoryMount | None = None
    ) -> Opened:
        """Create the sandbox unless it exists; ``memory``: add this memory to it."""
        async with self._lock(sandbox):
            record = await self.record(sandbox)
            created = record.is_to_be_made(spec)
            if created:
                if spec is None:
                    raise Refused("workspace_start_error", f"there is no sandbox {sandbox}")
                live = await self._make(record, spec, record.renewed_notice)
            else:
                live = await self._find(record)
            await self._memories.opened(live, self._append, memory)
            live.used_at = time.monotonic()
            return live.opened(self._provider.name, created=created)

    async def sync_memory(self, sandbox: str, scope: str) -> MemorySynced:
        """Update one memory of an awake box; creates and wakes nothing."""
        async with self._lock(sandbox):
            record = await self.record(sandbox)
            known = self._live.get(sandbox)  # the log does not say when a paused one was woken
            state = known.record.state if known is not None and record.is_live else record.state
            if state != "ready" or scope not in record.memories:
                return MemorySynced(synced=False)
            if record.node != self.node and await self.is_served(record.node):
                raise Elsewhere(record.node)
            box = await self._provider.get(record.key) if record.node == self.node else None
            if box is None:
                return MemorySynced(synced=False)
            return await self._memories.refresh(record, box, scope)

    async def _find(self, record: SandboxRecord) -> Live:
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
        if record.node != self.node and self._is_neighbours(record):
            await self._inherit(record)
        if record.node != self.node:
            return await self._recover(record, f"its node {record.node} is gone")
        if record.state == "lost":
            return await self._recover(record, record.reason)
        box = await awake(self._provider, record)
        if box is None:
            return await self._recover(record, "its box is gone")
        if record.state == "paused":
            record.state = "ready"
        return self._keep(record, box)

    def _is_neighbours(self, record: SandboxRecord) -> bool:
        """Does it have a box of another process of this machine, with running processes?"""
        return record.may_have_box and machine_of(record.node) == machine_of(self.node)

    async def is_ours(self, record: SandboxRecord) -> bool:
        """Does it belong to this process, or has its process on this machine ended?"""
        if record.node == self.node:
            return True
        return self._is_neighbours(record) and not await self.is_served(record.node)

    async def _inherit(self, record: SandboxRecord) -> None:
        if record.state == "paused":
            with contextlib.suppress(BoxGone):  # its leftovers are found next
                await self._provider.resume(record.key)
        ready = SandboxReady(
            generation=record.generation,
            node=self.node,
            key=record.key,
            root=record.root,
            restored=record.base,
        )
        await self._append(record, ready)

    async def _recover(self, record: SandboxRecord, reason: str) -> Live:
        """Continue from the last checkpoint, or report that there is none."""
        restorable = bool(record.tree)
        if record.state != "lost":
            lost = SandboxLost(generation=record.generation, reason=reason, restorable=restorable)
            await self._append(record, lost)
        self.forget(record.sandbox)
        facts = {"sandbox": record.sandbox, "reason": reason, "restorable": restorable}
        logger.warning("a sandbox was lost", extra=facts)
        if record.state == "lost" and not restorable:
            raise Refused(
                "workspace_lost",
                f"the workspace of sandbox {record.sandbox} is lost: {reason}, and it had no "
                "checkpoint",
                reason=reason,
            )
        return await self._make(record, record.spec, restored_notice(reason))

    # --- making --------------------------------------------------------------------------------

    async def _make(self, record: SandboxRecord, spec: SandboxSpec, notice: str) -> Live:
        """Create a box for the sandbox, from its last checkpoint or its plan. Repeated as a whole
        after a crash: the box is found by its key, and emptied first.
        """
        began = time.monotonic()
        checked = await check_spec(spec, self.sources)
        env = environment_of(spec)
        if not (record.state == "intended" and record.node == self.node):
            generation = record.generation + 1
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
            box = await self._provider.create(box_spec_of(record, self.owner))
            crashpoint("sandbox.after_create")
            op, reused = await first_use(self._bus, record, box)
            notice = notice or reused
            await fill(record, box, checked, self._provider, self._store, op=op)
        except Exception as error:
            if not isinstance(error, BusError) or failure_of(error, "open") is not None:
                await self._give_up(record, error)
            raise
        ready = SandboxReady(
            generation=record.generation,
            node=self.node,
            key=record.key,
            root=box.root,
            restored=record.base,
            duration_ms=round((time.monotonic() - began) * 1000),
        )
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
        self._live[record.sandbox] = live
        while len(self._live) > _KEPT_LIVE:
            self._live.popitem(last=False)
        return live

    # --- ending --------------------------------------------------------------------------------

    async def checkpoint(
        self, live: Live, *, exclude: Sequence[str] = (), reason: str = ""
    ) -> Checkpointed:
        """Store the changes; the log names the snapshot."""
        async with self._lock(live.record.sandbox):
            return await self._checkpoint(live, exclude, reason)

    async def _checkpoint(self, live: Live, exclude: Sequence[str], reason: str) -> Checkpointed:
        record = live.record
        began = time.monotonic()
        left_out = sorted({*record.spec.plan.exclude, *exclude})
        crashpoint("sandbox.before_snapshot")
        snapshot = await self._store.checkpoint(live.box, base=record.base, exclude=left_out)
        crashpoint("sandbox.after_snapshot")
        if snapshot.tree != record.tree or not record.checkpointed:
            event = SandboxCheckpointed(
                generation=record.generation,
                tree=snapshot.tree,
                files=snapshot.files,
                size_bytes=snapshot.size_bytes,
                new_bytes=snapshot.new_bytes,
                exclude=left_out,
                reason=reason,
                duration_ms=round((time.monotonic() - began) * 1000),
            )
            await self._append(record, event)
            crashpoint("sandbox.after_checkpoint")
        return Checkpointed(
            tree=snapshot.tree,
            files=snapshot.files,
            size_bytes=snapshot.size_bytes,
            new_bytes=snapshot.new_bytes,
        )

    async def close(
        self,
        sandbox: str,
        *,
        checkpoint: bool,
        delete: bool,
        exclude: Sequence[str] = (),
        reason: str = "",
        asked_at: int | None = None,
    ) -> Checkpointed:
        """End the box, after a checkpoint if requested. Has no effect on a closed sandbox, or on
        one that was reopened since (``asked_at``: the request's sequence in the log).
        """
        async with self._lock(sandbox):
            record = await self.record(sandbox)
            result = Checkpointed(tree=record.tree)
            if record.is_newer_than(asked_at):
                return result
            if record.state == "unknown":
                raise Refused("workspace_stop_error", f"there is no sandbox {sandbox}")
            is_open = record.state not in ("stopped", "deleted")
            is_others = is_open and record.node != self.node
            if is_others and await self.is_served(record.node):
                raise Elsewhere(record.node)
            if is_others and not self._is_neighbours(record):
                if checkpoint and not delete:
                    await self._close_lost(record)
            elif record.is_live and checkpoint:
                live = await self._find(record)
                await live.box.kill_all()
                await self._memories.closing(live)
                result = await self._checkpoint(live, exclude, reason)
                record = live.record
            elif record.is_live:
                await self._memories.leaving(record)
            if delete and record.state != "deleted":
                end = SandboxDeleted(generation=record.generation, reason=reason)
                await self._append(record, end)
            elif record.state not in ("stopped", "deleted"):
                await self._append(
                    record, SandboxStopped(generation=record.generation, reason=reason)
                )
            crashpoint("sandbox.before_delete")
            self.forget(sandbox)
            self._removals.remove(record.key)
            return result

    async def _close_lost(self, record: SandboxRecord) -> None:
        """The changes on a dead node cannot be saved; the caller that closes it must know."""
        if record.state == "intended":
            return  # it was empty
        reason = f"its node {record.node} is gone"
        if record.state != "lost":
            restorable = bool(record.tree)
            lost = SandboxLost(generation=record.generation, reason=reason, restorable=restorable)
            await self._append(record, lost)
        raise unsaved(record.sandbox, reason)

    async def pause(self, sandbox: str, reason: str = "") -> None:
        async with self._lock(sandbox):
            live = await self._find(await self.record(sandbox))
            if reason == IDLE and sandbox in self._in_use:
                return
            await self._provider.pause(live.record.key)
            paused = SandboxPaused(generation=live.record.generation, reason=reason)
            try:
                await self._append(live.record, paused)
            except SandboxMovedOn:  # another replica uses it, and would not notice
                await self._provider.resume(live.record.key)
                raise

    def idle(self, now: float) -> list[str]:
        """Sandboxes whose idle time is over."""
        found = [sandbox for sandbox, live in self._live.items() if live.is_idle(now)]
        return [sandbox for sandbox in found if sandbox not in self._in_use]

    async def stop(self) -> None:
        """Finish background work. Boxes continue, except for closed ones."""
        if self._listening is not None:
            await self._listening.close()
        await self._removals.finish()
        self._live.clear()

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
