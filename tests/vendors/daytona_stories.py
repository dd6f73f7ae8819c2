"""Stories that the real SDK tells to a local Daytona server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from daytona import AsyncDaytona, AsyncSandbox, CreateSandboxFromSnapshotParams, DaytonaConfig
from vendors.daytona.settings import Settings
from vendors.journal import Call
from vendors.process import VendorServer

Story = Callable[[AsyncDaytona], Awaitable[None]]


class Stage:
    """A server, and clients of the SDK that talk to it."""

    def __init__(self, vendor: VendorServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vendor = vendor
        self._first = len(vendor.journal())
        for name, value in vendor.env.items():
            monkeypatch.setenv(name, value)

    def tell(self, story: Story) -> None:
        """Run a story with a client of its own. The server must find nothing wrong with it."""

        async def run() -> None:
            config = DaytonaConfig(
                api_key=self.vendor.api_key, api_url=self.vendor.api_url, target="us"
            )
            async with AsyncDaytona(config) as client:
                await story(client)

        before = len(self.vendor.protocol_errors())
        asyncio.run(run())
        assert self.vendor.protocol_errors()[before:] == []

    def journal(self) -> list[Call]:
        """The calls of this test."""
        return self.vendor.journal(self._first)

    def calls(self, name: str) -> list[int | None]:
        """The answers to the calls with this name, in order."""
        return [call.status for call in self.journal() if call.name == name]

    def leave(self) -> None:
        """Remove everything that the test did to the server."""
        self.vendor.clear_faults()
        self.vendor.set_latency(0.0)
        self.vendor.configure(**dataclasses.asdict(Settings()))
        for box in self.vendor.boxes():
            self.vendor.delete(box.id)


async def box_named(client: AsyncDaytona, name: str = "box") -> AsyncSandbox:
    """A new box."""
    return await client.create(CreateSandboxFromSnapshotParams(name=name))
