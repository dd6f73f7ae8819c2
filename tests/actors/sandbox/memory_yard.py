"""Sandboxes with memories on a real server with real boxes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
from actors.sandbox.yard import NODE, Yard, yard
from sandstream_actors.memory.context import Means
from sandstream_actors.memory.copies.marker import Laid, parse_marker
from sandstream_actors.memory.edits import edit
from sandstream_actors.memory.scope.files import change, revised, with_files
from sandstream_actors.sandbox.actor import installation_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_bus.bus import Bus
from sandstream_bus.nats.direct import Stored, stale_many
from sandstream_bus.wire.memories import EditRequested, MemoryState, RevisionKind
from sandstream_bus.wire.sandboxes import MemoryMount, SandboxSpec
from sandstream_providers.interface import ExecSpec
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer

SCOPE = "user-42"
HANDBOOK, SUMMARY = "memories/MEMORY.md", "memories/memory_summary.md"
RAW, SESSION = "memories/raw_memories/r1.md", "sessions/r1.jsonl"
MARKER = "memories/.memory.json"
ALL = {HANDBOOK: "a\nb\nc\n", SUMMARY: "short\n", RAW: "raw\n", SESSION: "{}\n"}


async def _nowhere() -> tuple[str, str]:
    raise AssertionError("nothing is consolidated here")


class Place:
    """The sandboxes of one node, without an actor around them."""

    def __init__(self, yard: Yard, bus: Bus, lifecycle: Lifecycle) -> None:
        self.yard = yard
        self.bus = bus
        self.lifecycle = lifecycle

    async def open(
        self, sandbox: str, mount: MemoryMount | None = None, spec: SandboxSpec | None = None
    ) -> Path:
        """As the open call of a run does it; its workspace, seen from outside."""
        spec = spec or SandboxSpec()
        if mount is not None:
            spec = msgspec.structs.replace(spec, memories=[mount])
        await self.lifecycle.open(sandbox, spec, mount)
        return await self.workspace(sandbox)

    async def workspace(self, sandbox: str) -> Path:
        return self.yard.box(await self.lifecycle.record(sandbox)) / "workspace"

    async def close(self, sandbox: str, *, checkpoint: bool = True) -> None:
        await self.lifecycle.close(sandbox, checkpoint=checkpoint, delete=not checkpoint)

    async def shell(self, sandbox: str, script: str) -> None:
        """Do something in its workspace, as its agent could."""
        live = await self.lifecycle.live(sandbox)
        spec = ExecSpec(argv=["sh", "-ec", script], cwd=live.box.root)
        output = await live.box.run(uuid.uuid4().hex, spec)
        assert output.exit_code == 0, output.stderr

    async def edits(self, scope: str = SCOPE) -> list[EditRequested]:
        """What was told of this memory."""
        events = [await self.bus.codec.memory_event(it.data) for it in await self._stored(scope)]
        return [it for it in events if isinstance(it, EditRequested)]

    async def _stored(self, scope: str) -> list[Stored]:
        subject = self.bus.subjects.memory_edit(scope)
        return await stale_many(self.bus.connection, self.bus.topology.log, subject, after=0)

    async def take_over(self, number: int = -1) -> MemoryState:
        """What was told becomes part of the memory, as the memory actor does it."""
        stored = (await self._stored(SCOPE))[number]
        means = Means(self.bus, WorkspaceStore(self.bus), _nowhere, pool="", watch_s=15.0)
        await edit(means, SCOPE, (await self.edits())[number], stored.sequence)
        return (await self.bus.memories.read(SCOPE)).state

    async def told(self, scope: str = SCOPE) -> list[dict[str, str | None]]:
        return [
            {it.path: None if it.data is None else it.data.decode() for it in edit.edits}
            for edit in await self.edits(scope)
        ]


async def remember(
    bus: Bus,
    files: Mapping[str, str | None],
    *,
    scope: str = SCOPE,
    kind: RevisionKind = "merge",
    by: str = "test",
    note: str = "",
) -> MemoryState:
    """Change a memory, as the memory actor does."""

    async def decide(state: MemoryState) -> MemoryState:
        changes = {path: None if it is None else it.encode() for path, it in files.items()}
        tree = await with_files(bus, scope, state.tree, changes)
        return await revised(bus, state, tree, kind, by=by, note=note)

    return await change(bus, scope, decide)


def files_in(workspace: Path) -> dict[str, str]:
    """All files of the memory but the marker."""
    return {
        str(path.relative_to(workspace)): path.read_text()
        for folder in ("memories", "sessions")
        for path in sorted((workspace / folder).rglob("*"))
        if path.is_file() and path.name != ".memory.json"
    }


def marker_in(workspace: Path) -> Laid | None:
    return parse_marker((workspace / MARKER).read_bytes())


@contextlib.asynccontextmanager
async def place(server: NatsServer, home: Path, node: str = NODE) -> AsyncIterator[Place]:
    async with yard(server, home) as it:
        bus = await it.bus()
        provider = LocalProvider(home)
        owner = await installation_of(bus)
        lifecycle = Lifecycle(bus, provider, WorkspaceStore(bus), node=node, owner=owner)
        try:
            yield Place(it, bus, lifecycle)
        finally:
            await lifecycle.stop()
            await provider.close()
