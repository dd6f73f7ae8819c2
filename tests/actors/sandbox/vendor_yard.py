"""Boxes as a vendor has them, without a vendor: every process reaches them, they have ids of their
own, a pause ends their processes, and files may be missing after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
from contract.toy.sandstream_toy.host import ToyHost
from sandstream_actors.sandbox.actor import SandboxActor, installation_of
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_bus.bus import Bus
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.box_host import HostedBox
from sandstream_providers.interface import (
    BoxGone,
    BoxInfo,
    BoxSpec,
    ExecSpec,
    PortAddress,
    ProviderError,
)
from sandstream_providers.registry import ProviderSettings
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer

SHARED = "shared"
OLD, NEW = "own-shared_old", "own-shared_new"


class VendorHost(ToyHost):
    """The boxes of one account. What the vendor does by itself is said with files."""

    powers = ToyHost.powers | {"pause"}
    verifies_wake = True

    def __init__(self, home: Path, name: str = "vendor") -> None:
        super().__init__(home)
        self.name = name
        self.specs: list[BoxSpec] = []
        self.may_pause = asyncio.Event()
        """Pauses wait for it."""
        self.may_pause.set()
        self.refusal: ProviderError | None = None
        """The answer to all pauses."""

    def folder(self, key: str) -> Path:
        return self._home / key

    def workspace(self, key: str) -> Path:
        return self.folder(key) / "workspace"

    def lose(self, key: str, *paths: str) -> None:
        """These files will be missing when the box is woken."""
        (self.folder(key) / "lost.json").write_text(json.dumps(paths))

    def is_paused(self, key: str) -> bool:
        return (self.folder(key) / "paused").exists()

    async def create(self, spec: BoxSpec) -> HostedBox:
        self.specs.append(spec)
        return _with_id(await super().create(spec))

    async def get(self, key: str) -> HostedBox | None:
        found = await super().get(key)
        return None if found is None else _with_id(found)

    async def pause(self, key: str) -> None:
        await self.may_pause.wait()
        if self.refusal is not None:
            raise self.refusal
        if self.read(key) is None:
            raise BoxGone(f"there is no box {key}")
        await self.stop(key)
        (self.folder(key) / "paused").touch()

    async def resume(self, key: str) -> None:
        if self.read(key) is None:
            raise BoxGone(f"there is no box {key}")
        lost = self.folder(key) / "lost.json"
        if lost.exists():
            for path in json.loads(lost.read_text()):
                (self.workspace(key) / path).unlink()
            lost.unlink()
        (self.folder(key) / "paused").unlink(missing_ok=True)

    async def list(self, owner: str) -> list[BoxInfo]:
        return [
            msgspec.structs.replace(it, state="paused") if self.is_paused(it.key) else it
            for it in await super().list(owner)
        ]

    async def address(self, key: str, port: int) -> PortAddress:
        return PortAddress(f"{port}-{vendor_id(key)}.example.org", 443, tls=True, query="token=t")

    def billed(self) -> Sequence[str]:
        """Of all boxes that cost something."""
        return sorted(path.parent.name for path in self._home.glob("*/box.json"))


def vendor_id(key: str) -> str:
    return f"v-{key.removeprefix('ss-')}"


def _with_id(box: HostedBox) -> HostedBox:
    return msgspec.structs.replace(box, vendor_id=vendor_id(box.key))


def make(settings: ProviderSettings) -> VendorHost:
    return VendorHost(settings.home)


class VendorYard:
    """One account at the vendor, with any number of processes that use it."""

    def __init__(
        self, server: NatsServer, home: Path, stack: contextlib.AsyncExitStack, name: str
    ) -> None:
        self._server = server
        self._home = home
        self._stack = stack
        self._name = name
        self.host = VendorHost(home, name)
        """For looks at the boxes; each process has its own."""

    async def bus(self) -> Bus:
        bus = await Bus.open(self._server.options(), create="missing")
        self._stack.push_async_callback(bus.close)
        return bus

    async def lifecycle(self, node: str = SHARED) -> tuple[Lifecycle, VendorHost]:
        """The sandboxes as one process sees them."""
        bus, host = await self.bus(), VendorHost(self._home, self._name)
        provider = AgentProvider(host)
        self._stack.push_async_callback(provider.close)
        made = Lifecycle(
            bus,
            provider,
            WorkspaceStore(bus),
            node=node,
            owner=await installation_of(bus),
            owns_boxes=False,
        )
        await made.start()
        self._stack.push_async_callback(made.stop)
        return made, host

    async def actor(self, node: str = SHARED) -> SandboxActor:
        """A replica that looks around only when it is told to."""
        provider = AgentProvider(VendorHost(self._home, self._name))
        actor = SandboxActor(
            await self.bus(),
            provider,
            node=node,
            reap_every_s=3600,
            watch_every_s=3600,
            owns_boxes=False,
        )
        await actor.start()
        self._stack.push_async_callback(actor.stop, 0.0)
        return actor


@contextlib.asynccontextmanager
async def vendor_yard(
    server: NatsServer, home: Path, name: str = "vendor"
) -> AsyncIterator[VendorYard]:
    """Nothing of it is left afterwards."""
    async with contextlib.AsyncExitStack() as stack:
        it = VendorYard(server, home, stack, name)
        stack.push_async_callback(_clear, it.host)
        yield it


async def _clear(host: VendorHost) -> None:
    for key in host.billed():
        await host.delete(key)


async def said(lifecycle: Lifecycle, sandbox: str, script: str) -> str:
    """What a script in the sandbox says."""
    live = await lifecycle.live(sandbox)
    spec = ExecSpec(argv=["sh", "-c", script], cwd=live.box.root)
    done = await live.box.run(f"op-{script}-{live.record.last_seq}".replace(" ", "_"), spec)
    return (done.stdout + done.stderr).decode().strip()
