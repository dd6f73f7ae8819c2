"""A deployed system with sandboxes: a fleet whose agents work in boxes on one or two nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType

from chaos.fleet import Fleet
from chaos.processes import Program
from sandstream_actors.sandbox.actor import installation_of
from sandstream_actors.sandbox.record import SandboxRecord
from sandstream_bus.subjects import sandbox_of
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.waiting import eventually

from sandstream.sandbox import Manifest
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from sandstream.sandbox.session.link import BusLink
from sandstream.sandbox.session.sandbox_session import SandboxSession

HARNESS, SANDBOX = "harness", "sandbox"
END, TURN = "smith-end", "smith-turn"
"""The two agents, by when their sandboxes are saved; each has workers of its own."""


class SandboxFleet(Fleet):
    """Replicas are of the kinds above; those of the sandbox actor are on the node ``a``, unless
    said otherwise.
    """

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
            if hasattr(self, "client"):
                for home in self.homes():
                    await self.remove_boxes(home)
        finally:
            await super().__aexit__(kind, error, trace)

    async def replica(self, kind: str, *, node: str = "a", **crash: object) -> Program:
        if kind == HARNESS:
            return await super().replica(kind, **crash)
        if kind == SANDBOX:
            program = await self.program("sandbox_actor", node, **crash)
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

    def homes(self) -> list[Path]:
        return sorted(self.directory.glob("node-*"))

    async def boxes(self, node: str = "a") -> list[str]:
        """The keys of the boxes that are on a node."""
        return await self._boxes(self.home(node))

    async def _boxes(self, home: Path) -> list[str]:
        provider = LocalProvider(home)
        try:
            owned = await provider.list_owned(await installation_of(self.client.bus))
        finally:
            await provider.close()
        return [info.key for info in owned]

    async def no_boxes(self, node: str = "a") -> None:
        """Wait until the reaper has removed what nobody needs."""

        async def none_left() -> bool:
            return not await self._boxes(self.home(node))

        await eventually(none_left, within_s=20, what=f"no boxes are left on the node {node}")

    async def remove_boxes(self, home: Path) -> None:
        provider = LocalProvider(home)
        try:
            for key in await self._boxes(home):
                await provider.delete(key)
        finally:
            await provider.close()

    # --- sandboxes -----------------------------------------------------------------------------

    async def order(self, key: str, text: str, *, agent: str = END) -> None:
        await self.client.submit(agent, text, key=key)

    async def record(self, key: str, agent: str = END) -> SandboxRecord:
        """What the log says of the sandbox of a run."""
        return await self.record_of(sandbox_of(key, agent))

    async def record_of(self, sandbox: str) -> SandboxRecord:
        return SandboxRecord.of(sandbox, await self.client.bus.sandboxes.read(sandbox))

    async def saved(self, record: SandboxRecord, path: str) -> str:
        """A file of a sandbox's last checkpoint; empty if it is not there."""
        store = WorkspaceStore(self.client.bus)
        if not record.tree or await store.lookup(record.tree, path) is None:
            return ""
        parts = [part async for part in store.read_file(record.tree, path)]
        return b"".join(parts).decode()

    def session(self, manifest: Manifest | None = None) -> SandboxSession:
        """A new session whose sandbox is on whichever node takes it."""
        client = UnixLocalSandboxClient()
        session = client.session_of(client.new_state(manifest=manifest or Manifest()))
        session.remote.link = BusLink(self.client.bus, "local")
        return session
