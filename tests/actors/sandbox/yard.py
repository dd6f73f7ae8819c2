"""Sandbox actors on a real server with real boxes, for tests of what goes wrong between them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_actors.sandbox.policy import Policy
from sandstream_bus.bus import Bus
from sandstream_providers.addresses import Resolve, resolve_host
from sandstream_providers.local.provider import LocalProvider
from support.nats_server import NatsServer

from sandstream.sandbox import Manifest
from sandstream.sandbox.sandboxes.unix_local import (
    UnixLocalSandboxClient,
    UnixLocalSandboxClientOptions,
)
from sandstream.sandbox.session.link import BusLink
from sandstream.sandbox.session.sandbox_session import SandboxSession

NODE = "here"


class Yard:
    """One home with any number of actors; each has a connection of its own."""

    def __init__(self, server: NatsServer, home: Path, stack: contextlib.AsyncExitStack) -> None:
        self._server = server
        self.home = home
        self._stack = stack

    async def bus(self) -> Bus:
        bus = await Bus.open(self._server.options(), create="missing")
        self._stack.push_async_callback(bus.close)
        return bus

    async def actor(
        self,
        *,
        node: str = NODE,
        home: Path | None = None,
        policy: Policy | None = None,
        resolve: Resolve = resolve_host,
    ) -> SandboxActor:
        """A replica that looks around only when it is told to."""
        provider = LocalProvider(home or self.home, resolve=resolve)
        actor = SandboxActor(
            await self.bus(),
            provider,
            node=node,
            reap_every_s=3600,
            watch_every_s=3600,
            policy=policy,
            resolve=resolve,
        )
        await actor.start()
        self._stack.push_async_callback(actor.stop, 0.0)
        return actor

    async def session(
        self,
        bus: Bus | None = None,
        *,
        node: str = "",
        manifest: Manifest | None = None,
        **options: Any,
    ) -> SandboxSession:
        client = UnixLocalSandboxClient()
        chosen = UnixLocalSandboxClientOptions(**options)
        state = client.new_state(manifest=manifest or Manifest(), options=chosen)
        session = client.session_of(state, chosen)
        session.remote.link = BusLink(bus or await self.bus(), "local", node)
        return session

    def box(self, record: SandboxRecord) -> Path:
        """Where a box lies on this machine."""
        return self.home / "sandboxes" / record.key

    def kill_box(self, record: SandboxRecord) -> None:
        """kill -9 of its first process and of the one outside; all others end with them."""
        facts = json.loads((self.box(record) / "box.json").read_text())
        for which in ("outer", "inner"):
            os.kill(facts[which]["pid"], signal.SIGKILL)


@contextlib.asynccontextmanager
async def yard(server: NatsServer, home: Path) -> AsyncIterator[Yard]:
    """Nothing of it is left afterwards."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            yield Yard(server, home, stack)
    finally:
        provider = LocalProvider(home)
        for folder in sorted((home / "sandboxes").glob("[!.]*")):
            await provider.delete(folder.name)
        await provider.close()
