"""How session objects reach the actor that has their sandbox."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, TypeVar

import msgspec
from sandstream_actors.sandbox.record import SandboxRecord
from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError
from sandstream_bus.sandbox_messages import Exec, Kill, SandboxAction, SandboxRequest
from sandstream_bus.sandboxes import NoSandboxActor, new_op
from sandstream_workspaces.store import WorkspaceStore

from sandstream.sandbox.errors import ProviderUnavailableError, error_from_failure
from sandstream.trace_parent import trace_headers

logger = logging.getLogger(__name__)
T = TypeVar("T")


class SandboxLink(Protocol):
    """Where the bus is, and which node new sandboxes belong to."""

    provider: str

    async def bus(self) -> Bus: ...

    async def store(self) -> WorkspaceStore: ...

    async def node(self) -> str:
        """The node that must have new sandboxes; empty: any."""
        ...


class BusLink:
    """A bus that is open already, and whichever nodes serve it."""

    def __init__(
        self,
        bus: Bus,
        provider: str = "local",
        node: str = "",
        store: WorkspaceStore | None = None,
    ) -> None:
        self.provider = provider
        self._bus = bus
        self._node = node
        self._store = store or WorkspaceStore(bus)

    async def bus(self) -> Bus:
        return self._bus

    async def store(self) -> WorkspaceStore:
        return self._store

    async def node(self) -> str:
        return self._node


class Remote:
    """One sandbox, asked by message."""

    def __init__(self, link: SandboxLink, sandbox: str, *, run: str = "") -> None:
        self.link = link
        self.sandbox = sandbox
        self.run = run
        self.node = ""
        """The node that has it, as far as we know."""

    async def ask(self, action: SandboxAction, kind: type[T] | None = None) -> T:
        """Send one operation and wait for its result. Failures are raised as what they are."""
        bus = await self.link.bus()
        if not self.node:
            self.node = await self._find_node(bus)
        request = SandboxRequest(op=new_op(), action=action, run=self.run)
        try:
            reply = await bus.sandboxes.request(
                self.sandbox,
                request,
                provider=self.link.provider,
                node=self.node,
                headers=trace_headers(),
            )
        except asyncio.CancelledError:
            if isinstance(action, Exec):
                await self._stop(bus, request.op)
            raise
        except NoSandboxActor as error:
            self.node = ""  # look again
            raise ProviderUnavailableError(
                provider=self.link.provider, reason=str(error), cause=error
            ) from error
        if reply.error is not None:
            raise error_from_failure(reply.error)
        if kind is None:
            nothing: Any = None
            return nothing  # type: ignore[no-any-return]
        return msgspec.json.decode(reply.result, type=kind)

    async def _stop(self, bus: Bus, op: str) -> None:
        """Nobody waits for the command any more: it need not go on."""
        request = SandboxRequest(op=new_op(), action=Kill(op=op))
        try:
            await bus.sandboxes.tell(
                self.sandbox, request, provider=self.link.provider, node=self.node
            )
        except BusError:
            logger.warning("a command could not be stopped", extra={"sandbox": self.sandbox})

    async def record(self) -> SandboxRecord:
        bus = await self.link.bus()
        return SandboxRecord.of(self.sandbox, await bus.sandboxes.read(self.sandbox))

    async def _find_node(self, bus: Bus) -> str:
        own = await self.link.node()  # its actor must be there before anything is asked
        record = await self.record()
        if not record.is_live and record.state != "intended":
            return own
        consumer = f"sandbox-{self.link.provider}-{record.node}"
        if record.node == own or await bus.presence.is_served(consumer):
            return record.node
        return own  # whoever is asked brings it back from its last checkpoint
