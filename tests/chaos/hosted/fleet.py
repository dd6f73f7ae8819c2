"""A fleet whose boxes are at a vendor. What exists, and what was made, is asked of the vendor."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.sandbox.fleet import SandboxFleet
from sandstream_providers.hosted.vendor import PREFIX
from support.waiting import eventually
from vendors.faults import Fault
from vendors.journal import Call
from vendors.process import VendorServer

from sandstream.extensions.sandbox.daytona import DaytonaSandboxClient, DaytonaSandboxClientOptions
from sandstream.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from sandstream.sandbox import Manifest
from sandstream.sandbox.session.link import BusLink
from sandstream.sandbox.session.sandbox_client import BaseSandboxClient
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.snapshot import BusSnapshotSpec

GONE_WITHIN_S = 40.0
SANDBOX, GENERATION = f"{PREFIX}sandbox", f"{PREFIX}generation"
_SETTINGS: dict[str, dict[str, Any]] = {"daytona": {"extra_dirs": ["/workspace"]}, "e2b": {}}
"""Boxes of Daytona have no user who may create the workspace's directory."""
_ORDERS = ("POST /sandbox", "POST /v2/sandboxes")

Made = dict[tuple[str, str], set[str]]
"""The ids of the boxes that a vendor has made, by sandbox and generation."""


class HostedFleet(SandboxFleet):
    """All replicas of the sandbox actor share one account at the vendor, and one node."""

    def __init__(self, directory: Path, model_url: str, *, vendor: str, **settings: Any) -> None:
        """``settings``: of the vendor's server, as for ``VendorServer.configure``."""
        super().__init__(directory, model_url)
        self.provider = vendor
        self._settings = {**_SETTINGS[vendor], **settings}
        self.makes_copies = not settings.get("idempotency", True)
        """An order that is repeated makes another box."""
        self._told_errors = 0

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            self.vendor = await asyncio.to_thread(
                VendorServer.start, self.provider, home=self.directory / "vendor", **self._settings
            )
        except BaseException:
            await super().__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await asyncio.to_thread(self.vendor.stop)  # its boxes end with it

    async def _remove_boxes(self, home: Path) -> None:
        """Nothing of a box is on this machine."""

    def env(self) -> dict[str, str]:
        return super().env() | self.vendor.env | {"CHAOS_REAP_S": "2.0"}

    def session(self, manifest: Manifest | None = None, *, tree: str = "") -> SandboxSession:
        client, options = _client_of(self.provider)
        snapshot = BusSnapshotSpec(tree=tree)
        state = client.new_state(options=options, manifest=manifest, snapshot=snapshot)
        session = client.session_of(state, options)
        session.remote.link = BusLink(self.client.bus, self.provider)
        return session

    # --- what the vendor says ------------------------------------------------------------------

    async def boxes(self, node: str = "a") -> list[str]:
        """The sandboxes and generations of all boxes, in any state."""
        return [name for names in (await self.boxes_now()).values() for name in names]

    async def boxes_now(self) -> dict[tuple[str, str], list[str]]:
        """The ids of the boxes that exist, by sandbox and generation."""
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for box in await asyncio.to_thread(self.vendor.boxes):
            found[_place(box.metadata)].append(box.id)
        return found

    async def no_boxes(self, node: str = "a") -> None:
        async def none_left() -> bool:
            return not await self.boxes()

        try:
            await eventually(none_left, within_s=GONE_WITHIN_S)
        except AssertionError:
            left = dict(await self.boxes_now())
            raise AssertionError(f"left at the vendor: {left}") from None

    async def made(self) -> Made:
        """All boxes that the vendor has ever made. A lost answer hides none of them."""
        found: Made = defaultdict(set)
        for call in await self.journal():
            if call.name in _ORDERS and call.box:
                labels = call.body.get("labels") or call.body.get("metadata") or {}
                found[_place(labels)].add(call.box)
        return found

    async def journal(self, since: int = 0) -> list[Call]:
        return await asyncio.to_thread(self.vendor.journal, since)

    async def add_faults(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            await asyncio.to_thread(self.vendor.add_fault, fault)

    async def provider_problems(self) -> list[str]:
        """Orders that made two boxes, and requests that the vendor's protocol does not have."""
        errors = await asyncio.to_thread(self.vendor.protocol_errors)
        told, self._told_errors = errors[self._told_errors :], len(errors)
        problems = [f"a protocol error: {it}" for it in told]
        if not self.makes_copies:
            made = await self.made()
            problems += [f"{it} has {ids}" for it, ids in made.items() if len(ids) != 1]
        return problems


def _place(labels: dict[str, str]) -> tuple[str, str]:
    return labels.get(SANDBOX, ""), labels.get(GENERATION, "")


def _client_of(provider: str) -> tuple[BaseSandboxClient[Any], Any]:
    if provider == "daytona":
        return DaytonaSandboxClient(), DaytonaSandboxClientOptions()
    return E2BSandboxClient(), E2BSandboxClientOptions("e2b")
