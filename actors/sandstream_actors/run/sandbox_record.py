"""A sandbox's state as a fold over its log. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

import msgspec
from sandstream_bus.logs.sandboxes import SandboxLogEvent
from sandstream_bus.wire.sandboxes import (
    MemoryMount,
    SandboxCheckpointed,
    SandboxDeleted,
    SandboxEvent,
    SandboxIntended,
    SandboxLost,
    SandboxMounted,
    SandboxPaused,
    SandboxReady,
    SandboxSpec,
    SandboxStopped,
)

State = Literal["unknown", "intended", "ready", "paused", "stopped", "lost", "deleted"]


class SandboxRecord:
    """The state of one sandbox according to its log."""

    def __init__(self, sandbox: str) -> None:
        self.sandbox = sandbox
        self.last_seq = 0
        self.changed_at = ""
        self.state: State = "unknown"
        self.spec = SandboxSpec()
        self.generation = 0
        self.intended_at = 0
        """The sequence of the last intent to create a box."""
        self.provider = ""
        self.node = ""
        self.key = ""
        self.root = ""
        self.box_id = ""
        """The vendor's own id of the box."""
        self.is_saved = False
        """While it is paused: the last checkpoint has the workspace as it was paused."""
        self.is_kept = False
        """It was closed, and its paused box is kept for a later session."""
        self.tree = ""
        """The last checkpoint."""
        self.excluded: list[str] = []
        """Paths that the last checkpoint leaves out."""
        self.checkpoints = 0
        self.checkpointed = False
        """A checkpoint was made in this generation."""
        self.memories: dict[str, MemoryMount] = {}
        """The memories with files in it, by scope."""
        self.reason = ""
        self.ended_at = 0
        """The sequence at which the previous box was closed or lost: an earlier request may have
        run there.
        """

        self.closed_at = 0
        """The sequence of the last requested close: earlier requests were about the closed box."""

    @classmethod
    def of(cls, sandbox: str, events: Iterable[SandboxLogEvent]) -> SandboxRecord:
        record = cls(sandbox)
        for event in events:
            record.apply(event.sequence, event.event, event.time)
        return record

    @property
    def is_live(self) -> bool:
        """There should be a box."""
        return self.state in ("ready", "paused")

    @property
    def may_have_box(self) -> bool:
        """A box exists, or its creation has begun."""
        return self.is_live or self.state == "intended"

    @property
    def is_closed(self) -> bool:
        """Its last user has closed it; its box may be kept."""
        return self.state in ("stopped", "deleted") or self.is_kept

    def is_to_be_made(self, spec: SandboxSpec | None) -> bool:
        """Must a box be created: it never existed, or it was deleted and may be renewed?"""
        may_renew = spec is not None and spec.renew
        return self.state == "unknown" or (may_renew and self.state == "deleted")

    @property
    def renewed_notice(self) -> str:
        """A notice for the user of a renewed sandbox."""
        if self.state != "deleted":
            return ""
        return (
            "The sandbox was deleted when the run failed, and is created again for the retry. "
            "Files that commands had created are gone."
        )

    def is_newer_than(self, asked_at: int | None) -> bool:
        """Was the box opened after the close that was requested at this sequence? Then the request
        does not concern it.
        """
        is_open = self.state != "unknown" and not self.is_closed
        return is_open and asked_at is not None and asked_at < self.closed_at

    def was_let_go_by(self, run: str, asked_at: int) -> bool:
        """Was it closed after its run requested this operation? Then another replica has done the
        operation: a run waits for all its requests before it closes its sandbox.
        """
        return self.is_closed and bool(run) and self.spec.run == run and asked_at < self.closed_at

    @property
    def base(self) -> str:
        """The start of a new box: the last checkpoint, or the snapshot in its spec."""
        return self.tree or self.spec.base

    def replaced_by(self, mount: MemoryMount) -> list[MemoryMount]:
        """Memories that conflict with this one: the same scope, or the same directories."""
        found = self.memories.values()
        return [it for it in found if it.scope == mount.scope or _share_folder(it, mount)]

    def apply(self, sequence: int, event: SandboxEvent, time: str = "") -> None:
        self.last_seq = sequence
        self.changed_at = time or self.changed_at
        match event:
            case SandboxIntended():
                self.spec = event.spec
                for mount in event.spec.memories:
                    self.memories.setdefault(mount.scope, mount)
                self.generation = event.generation
                self.intended_at = sequence
                self.provider = event.provider
                self.node = event.node
                self.key = event.key
                self.box_id = ""
                self.checkpointed = False
                self._enter("intended")
            case SandboxMounted():
                for mount in self.replaced_by(event.memory):
                    del self.memories[mount.scope]
                self.memories[event.memory.scope] = event.memory
            case SandboxReady():
                self.node = event.node
                self.root = event.root
                self.box_id = event.box_id
                if event.run is not None:
                    self.spec = msgspec.structs.replace(self.spec, run=event.run)
                self._enter("ready")
            case SandboxCheckpointed():
                self.tree = event.tree
                self.excluded = event.exclude
                self.checkpoints += 1
                self.checkpointed = True
                if self.state == "paused":
                    self._enter("ready")
            case SandboxPaused():
                self._enter("paused")
                self.is_saved, self.is_kept = event.saved, event.kept
                if event.kept:
                    self.closed_at = sequence
            case SandboxStopped():
                self._enter("stopped")
                self.ended_at = self.closed_at = sequence
                self.reason = event.reason
            case SandboxLost():
                self._enter("lost")
                self.ended_at = sequence
                self.reason = event.reason
            case SandboxDeleted():
                self._enter("deleted")
                self.closed_at = sequence
                self.reason = event.reason
            case _:
                assert_never(event)

    def woke(self) -> None:
        """Its paused box was woken; the log may not say so."""
        self._enter("ready")

    def _enter(self, state: State) -> None:
        self.state = state
        self.is_saved = self.is_kept = False


def _share_folder(one: MemoryMount, other: MemoryMount) -> bool:
    return any(
        f"{folder}/".startswith(f"{rival}/") or f"{rival}/".startswith(f"{folder}/")
        for folder in (one.memories_dir, one.sessions_dir)
        for rival in (other.memories_dir, other.sessions_dir)
    )
