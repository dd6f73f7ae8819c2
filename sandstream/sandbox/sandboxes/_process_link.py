"""The link of clients whose sandboxes this process serves itself."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_workspaces.store import WorkspaceStore

from sandstream._surface.runtime import runtime
from sandstream.sandbox.session.link import BusLink


class ProcessLink:
    """This process's own sandbox actor for a provider, started on first use.

    Args:
        provider: A name of the registry of providers.
        isolation: ``required`` or ``none``.
        endpoint: Where the provider's service is; empty: where the environment says.
        api_key: The key for that service; empty: the one that the environment has.
    """

    def __init__(
        self,
        provider: str,
        isolation: str = "required",
        endpoint: str = "",
        api_key: str = "",
    ) -> None:
        self.provider = provider
        self.isolation = isolation
        self.endpoint = endpoint
        self._api_key = api_key

    async def _open(self) -> BusLink:
        process = await runtime().process()
        return await process.sandboxes(self.provider, self.isolation, self.endpoint, self._api_key)

    async def bus(self) -> Bus:
        return (await runtime().process()).bus

    async def store(self) -> WorkspaceStore:
        return await (await self._open()).store()

    async def node(self) -> str:
        return await (await self._open()).node()
