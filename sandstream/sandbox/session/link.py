"""How session objects reach the actor of their sandbox."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, TypeVar

import msgspec
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError
from sandstream_bus.logs.sandboxes import NoSandboxActor, new_op
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_bus.wire.sandboxes import Exec, Kill, SandboxAction, SandboxRequest
from sandstream_workspaces.store import WorkspaceStore

from sandstream.sandbox.errors import ProviderUnavailableError, error_from_failure
from sandstream.tracing.trace_parent import trace_headers

logger = logging.getLogger(__name__)
T = TypeVar("T")


class SandboxLink(Protocol):
    """The bus, and the node for new sandboxes."""

    provider: str

    async def bus(self) -> Bus: ...

    async def store(self) -> WorkspaceStore: ...

    async def node(self) -> str:
        """The node for new sandboxes; empty: any node."""
        ...


class BusLink:
    """An open bus, and any nodes that serve it."""

    def __init__(
        self,
        bus: Bus,
        provider: str = DEFAULT_PROVIDER,
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
    """One sandbox, operated by messages."""

    def __init__(self, link: SandboxLink, sandbox: str, *, run: str = "") -> None:
        self.link = link
        self.sandbox = sandbox
        self.run = run
        self.node = ""
        """The sandbox's node, as far as it is known here."""

    async def ask(self, action: SandboxAction, kind: type[T] | None = None) -> T:
        """Send one operation and wait for its result; raises the operation's failure."""
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
            self.node = ""  # find it again
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
        """Stop a command whose caller no longer waits for it."""
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
        own = await self.link.node()  # its actor must be running before the first request
        record = await self.record()
        if not record.is_live and record.state != "intended":
            return own
        consumer = f"sandbox-{self.link.provider}-{record.node}"
        if record.node == own or await bus.presence.is_served(consumer):
            return record.node
        return own  # the actor that gets the request restores it from its last checkpoint
