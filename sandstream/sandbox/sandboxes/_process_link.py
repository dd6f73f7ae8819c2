"""The link of clients whose sandboxes this process serves itself."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_workspaces.store import WorkspaceStore

from sandstream._run.process import Process
from sandstream.sandbox.session.link import BusLink


class ProcessLink:
    """This process's own sandbox actor for a provider, started on first use."""

    def __init__(self, provider: str, isolation: str = "required", endpoint: str = "") -> None:
        """Args:
        provider: A name of the registry.
        isolation: ``required`` or ``none``.
        endpoint: Where the provider's service is; empty: where the environment says.
        """
        self.provider = provider
        self.isolation = isolation
        self.endpoint = endpoint

    async def _open(self) -> BusLink:
        process = await Process.of_this_loop()
        return await process.sandboxes(self.provider, self.isolation, self.endpoint)

    async def bus(self) -> Bus:
        return (await Process.of_this_loop()).bus

    async def store(self) -> WorkspaceStore:
        return await (await self._open()).store()

    async def node(self) -> str:
        return await (await self._open()).node()
