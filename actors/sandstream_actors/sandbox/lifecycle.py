"""What happens to sandboxes: they are opened, used, saved, paused and closed.

Every step is in the log, and ``boxes`` finds the box of a sandbox from there.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.sandboxes import SandboxMovedOn
from sandstream_bus.nats.subscription import CoreMessage, Subscription
from sandstream_bus.wire.sandboxes import (
    Checkpointed,
    MemoryMount,
    MemorySynced,
    Opened,
    SandboxDeleted,
    SandboxLost,
    SandboxPaused,
    SandboxSpec,
    SandboxStopped,
)
from sandstream_providers.interface import Box, Provider, ProviderError
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.boxes import SandboxBoxes
from sandstream_actors.sandbox.checkpoints import take_checkpoint
from sandstream_actors.sandbox.failures import Elsewhere, LetGo, Refused, unsaved
from sandstream_actors.sandbox.live import Live
from sandstream_actors.sandbox.memory_sync import WorkspaceMemories
from sandstream_actors.sandbox.news import IDLE, read_news
from sandstream_actors.sandbox.sources import Sources

logger = logging.getLogger(__name__)


class Lifecycle(SandboxBoxes):
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
        owns_boxes: bool = True,
    ) -> None:
        super().__init__(
            bus, provider, store, node=node, owner=owner, sources=sources, owns_boxes=owns_boxes
        )
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
        """Wake it, or give up its pause: the log shows both to the replica that pauses it."""
        while True:
            try:
                async with self._lock(sandbox):
                    record = await self.record(sandbox)
                    if record.state == "paused":
                        await self._find(record)
                    elif record.state == "ready" and self._verifies_wake:
                        await self._append(record, self._ready(record, None))
                return
            except SandboxMovedOn:
                continue
            except (Refused, Elsewhere, ProviderError) as error:  # the next operation reports it
                facts = {"sandbox": sandbox, "why": str(error)}
                logger.info("a sandbox cannot be woken", extra=facts)
                return

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
        return (await self.record(sandbox)).is_closed

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

    async def open(
        self,
        sandbox: str,
        spec: SandboxSpec | None,
        memory: MemoryMount | None = None,
        *,
        run: str | None = None,
        anew: bool = False,
    ) -> Opened:
        """Create the sandbox unless it exists; ``memory``: add this memory to it. ``run``: it
        belongs to this run from now on, or (empty) to a session. ``anew``: if it is lost and has no
        checkpoint, create it again.
        """
        async with self._lock(sandbox):
            record = await self.record(sandbox)
            created = record.is_to_be_made(spec)
            if created:
                if spec is None:
                    raise Refused("workspace_start_error", f"there is no sandbox {sandbox}")
                live = await self._make(record, spec, record.renewed_notice)
            else:
                live = await self._handed_over(record, run, anew=anew)
            await self._memories.opened(live, self._append, memory)
            live.used_at = time.monotonic()
            return live.opened(self._provider.name, created=created)

    async def _handed_over(self, record: SandboxRecord, run: str | None, *, anew: bool) -> Live:
        """The sandbox, for its new owner: otherwise it would be closed as that of an ended run."""
        if run is None or record.spec.run == run:
            return await self._find(record, anew=anew)
        generation = record.generation
        record.spec = msgspec.structs.replace(record.spec, run=run)
        live = await self._find(record, anew=anew)
        if live.record.generation == generation:  # else the log has the new specification
            await self._append(live.record, self._ready(live.record, live.box, run=run))
        return live

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

    # --- ending --------------------------------------------------------------------------------

    async def checkpoint(
        self, live: Live, *, exclude: Sequence[str] = (), reason: str = ""
    ) -> Checkpointed:
        """Store the changes; the log names the snapshot."""
        async with self._lock(live.record.sandbox):
            return await self._checkpoint(live, exclude, reason)

    async def _checkpoint(self, live: Live, exclude: Sequence[str], reason: str) -> Checkpointed:
        taken = await take_checkpoint(self._store, live.record, live.box, exclude, reason)
        if taken.event is not None:
            await self._append(live.record, taken.event)
            crashpoint("sandbox.after_checkpoint")
        return taken.result

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
        """End the box, after a checkpoint if requested; pause and keep it if its spec says so. Has
        no effect on a closed sandbox, or on one that was reopened since (``asked_at``: the
        request's sequence in the log).
        """
        async with self._lock(sandbox):
            record = await self.record(sandbox)
            result = Checkpointed(tree=record.tree)
            is_done = record.is_kept and checkpoint and not delete
            if record.is_newer_than(asked_at) or is_done:
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
                record = live.record
                if self._is_kept_paused(record) and not delete:
                    kept = await self._paused(live, reason, exclude, kept=True)
                    if kept is not None:
                        return kept
                result = await self._checkpoint(live, exclude, reason)
            elif record.is_live and not record.is_kept:
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

    def _is_kept_paused(self, record: SandboxRecord) -> bool:
        """Does its box stay, paused? That of a session does at vendors, where a pause is free."""
        return record.spec.keep_paused or (bool(record.spec.session) and self._verifies_wake)

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
            record = await self.record(sandbox)
            if reason == IDLE and (record.state != "ready" or sandbox in self._in_use):
                return
            live = await self._find(record)
            if reason == IDLE and sandbox in self._in_use:
                return
            await self._paused(live, reason)

    async def _paused(
        self, live: Live, reason: str, exclude: Sequence[str] = (), *, kept: bool = False
    ) -> Checkpointed | None:
        """Freeze the box, after a checkpoint if it may lose files or is kept. None: it is in use,
        or a box that was to be kept cannot be frozen.
        """
        record, key = live.record, live.record.key
        saved = Checkpointed(tree=record.tree)
        paused = SandboxPaused(generation=record.generation, reason=reason)
        if self._verifies_wake:
            # a replica that uses it from now on writes so to the log, and this pause is given up
            await self._append(record, paused)
            self.forget(record.sandbox)
        if self._verifies_wake or kept:
            saved = await self._checkpoint(live, exclude, reason)
        in_use = record.sandbox in self._in_use
        if in_use and reason == IDLE:
            await self._stay(live)
            return None
        crashpoint("sandbox.before_pause")
        try:
            await self._provider.pause(key)
        except ProviderError as error:
            if kept and not error.retryable:
                logger.warning("a box is not kept: %s", error, extra={"sandbox": record.sandbox})
                return None
            await self._stay(live)
            raise
        crashpoint("sandbox.after_pause")
        is_saved = self._verifies_wake and not in_use
        try:
            await self._append(record, msgspec.structs.replace(paused, saved=is_saved, kept=kept))
        except SandboxMovedOn:  # another replica uses it, and would not notice
            await self._provider.resume(key)
            raise
        return saved

    async def _stay(self, live: Live) -> None:
        """The box was not paused after all."""
        if live.record.state == "paused":
            await self._append(live.record, self._ready(live.record, live.box))
        self._keep(live.record, live.box)

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
