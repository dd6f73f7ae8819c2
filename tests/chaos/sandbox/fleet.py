"""A deployed system with sandboxes: a fleet whose agents work in boxes on one or two nodes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Any

from chaos.fleet import Fleet
from chaos.processes import Program
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.actor import installation_of
from sandstream_bus.wire.sandboxes import SandboxSpec
from sandstream_bus.wire.subjects import sandbox_of
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.waiting import eventually

from sandstream.sandbox import Manifest
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from sandstream.sandbox.session.link import BusLink
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.snapshot import BusSnapshotSpec

HARNESS, SANDBOX = "harness", "sandbox"
END, TURN = "smith-end", "smith-turn"
"""The two agents, by when their sandboxes are saved; each has its own workers."""


async def remove_boxes(home: Path) -> None:
    """Remove everything that is left below a home, including processes."""
    provider = LocalProvider(home)
    try:
        for folder in sorted((home / "sandboxes").glob("[!.]*")):
            await provider.delete(folder.name)
    finally:
        await provider.close()


class SandboxFleet(Fleet):
    """The replicas are of the kinds above; sandbox actors are on the node ``a`` by default. What
    depends on the provider of the boxes can be replaced by a subclass.
    """

    provider = "local"

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.replicas = {HARNESS: [], END: [], TURN: [], SANDBOX: []}

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(program.kill() for program in self._programs))
        try:
            for home in sorted(self.directory.glob("node-*")):
                await self._remove_boxes(home)
        finally:
            await super().__aexit__(kind, error, trace)

    def env(self) -> dict[str, str]:
        return super().env() | {"CHAOS_PROVIDER": self.provider}

    async def _remove_boxes(self, home: Path) -> None:
        await remove_boxes(home)

    async def replica(
        self, kind: str, *, node: str = "a", grace_s: float = 0.0, **crash: Any
    ) -> Program:
        """``grace_s``: the time after which a sandbox actor removes unneeded boxes."""
        if kind == HARNESS:
            return await super().replica(kind, **crash)
        if kind == SANDBOX:
            program = await self.program("sandbox_actor", node, str(grace_s), **crash)
        else:
            program = await self.program("smith", kind.removeprefix("smith-"), **crash)
        if await program.line() != "ready":
            await program.wait(5)
            if program.crashed_ns() is None:
                raise AssertionError(f"{kind} did not start: {program.errors()}")
        self.replicas[kind] = [one for one in self.replicas[kind] if one.is_running]
        self.replicas[kind].append(program)
        return program

    # --- nodes and boxes -----------------------------------------------------------------------

    def home(self, node: str = "a") -> Path:
        return self.directory / f"node-{node}"

    async def boxes(self, node: str = "a") -> list[str]:
        """The keys of the boxes that are on a node."""
        provider = LocalProvider(self.home(node))
        try:
            owned = await provider.list_owned(await installation_of(self.client.bus))
        finally:
            await provider.close()
        return [info.key for info in owned]

    async def no_boxes(self, node: str = "a") -> None:
        """Wait until the reaper has removed unneeded boxes."""

        async def none_left() -> bool:
            return not await self.boxes(node)

        await eventually(none_left, within_s=20, what=f"no boxes are left on the node {node}")

    async def provider_problems(self) -> list[str]:
        """What the provider's own records say against the actors since the last call."""
        return []

    # --- sandboxes -----------------------------------------------------------------------------

    async def order(self, key: str, text: str, *, agent: str = END) -> None:
        await self.client.submit(agent, text, key=key)

    async def record(self, key: str, agent: str = END) -> SandboxRecord:
        """The state of a run's sandbox, from the log."""
        return await self.record_of(sandbox_of(key, agent))

    async def record_of(self, sandbox: str) -> SandboxRecord:
        return SandboxRecord.of(sandbox, await self.client.bus.sandboxes.read(sandbox))

    async def saved(self, record: SandboxRecord, path: str) -> str:
        """A file of a sandbox's last checkpoint; empty if it does not exist."""
        store = WorkspaceStore(self.client.bus)
        if not record.tree or await store.lookup(record.tree, path) is None:
            return ""
        parts = [part async for part in store.read_file(record.tree, path)]
        return b"".join(parts).decode()

    def session(self, manifest: Manifest | None = None, *, tree: str = "") -> SandboxSession:
        """A new session whose sandbox is on any node; ``tree``: the checkpoint to start from."""
        client = UnixLocalSandboxClient()
        snapshot = BusSnapshotSpec(tree=tree)
        session = client.session_of(client.new_state(manifest=manifest, snapshot=snapshot))
        session.remote.link = BusLink(self.client.bus, SandboxFleet.provider)
        return session

    def spec(self, **fields: Any) -> SandboxSpec:
        """A sandbox of this fleet's provider, for requests without a session."""
        return SandboxSpec(provider=self.provider, **fields)

    # --- what goes on in a sandbox -------------------------------------------------------------

    def workspace(self, record: SandboxRecord, node: str = "a") -> Path:
        """Its files, seen from outside."""
        return self.home(node) / "sandboxes" / record.key / "workspace"

    async def has_file(self, record: SandboxRecord, path: str, node: str = "a") -> bool:
        """Whether it is in the workspace, seen from outside."""
        return (self.workspace(record, node) / path).exists()

    async def until_begun(
        self, key: str, number: int, *, agent: str = END, node: str = "a"
    ) -> None:
        """Wait until a slow command has begun."""

        async def has_begun() -> bool:
            return await self.has_file(await self.record(key, agent), f"begun-{number}", node)

        await eventually(has_begun, within_s=30, what=f"command {number} of {key} has begun")

    def kill_box(self, record: SandboxRecord, node: str = "a") -> None:
        """kill -9 of its first process and of the one outside; all others end with them."""
        facts = json.loads((self.home(node) / "sandboxes" / record.key / "box.json").read_text())
        for which in ("outer", "inner"):
            os.kill(facts[which]["pid"], signal.SIGKILL)
