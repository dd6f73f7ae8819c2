"""Hosted providers in the contract suite: the vendors' SDKs against their local servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.daytona.account import DaytonaAccount
from sandstream_providers.daytona.vendor import DaytonaVendor
from sandstream_providers.e2b.account import account_of
from sandstream_providers.e2b.vendor import E2BVendor
from sandstream_providers.hosted.errors import VendorSilent
from sandstream_providers.hosted.host import HostedHost
from sandstream_providers.hosted.vendor import Vendor
from sandstream_providers.interface import Provider
from vendors.shared import box_of, shared

from sandstream.extensions.sandbox import (
    DaytonaSandboxClient,
    DaytonaSandboxClientOptions,
    E2BSandboxClient,
    E2BSandboxClientOptions,
    E2BSandboxType,
)
from sandstream.sandbox.session.sandbox_client import BaseSandboxClient
from sandstream.sandbox.session.settings import SandboxSettings

POWERS = frozenset({"pty", "ports", "users", "isolated"})
TRAITS = frozenset({"root", "host_network", "free_keys", "big_files"})
LACKS: Mapping[str, str] = {
    "pause": "a box falls asleep, but what is asked of it meanwhile fails instead of waiting",
    "tcp_ports": "a vendor's address of a port takes HTTP only",
    "closed_network": "the local server shares this machine's network; the vendor closes it",
    "grants": "a vendor's machine has none of our files",
    "limits.file": "the vendor's template sets the limits",
    "limits.cpu": "the vendor's template sets the limits",
    "limits.processes": "the vendor's template sets the limits",
    "limits.disk": "the vendor's template sets the limits",
}
SESSIONS_LACK: Mapping[str, str] = {
    "sessions.limits": "the vendor's template sets the limits",
    "sessions.grants": "a vendor's machine has none of our files",
}
LACKS_OF_SHELL = {
    **dict.fromkeys(
        ("limits.memory", "memory_is_named"), "no agent looks at the memory of commands"
    ),
    "big_files": "every 45 kB are a call of the vendor, so this takes a minute",
}


class UsualE2BClient(E2BSandboxClient):
    """Tests of sessions give no options where the defaults will do: E2B always needs some."""

    supports_default_options = True

    def settings(self, options: E2BSandboxClientOptions | None) -> SandboxSettings:
        return super().settings(options or _e2b_options())

    def state_fields(self, options: E2BSandboxClientOptions | None) -> dict[str, Any]:
        return super().state_fields(options or _e2b_options())


def _e2b_options(**given: Any) -> E2BSandboxClientOptions:
    return E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B, **given)


CLIENTS: Mapping[str, Callable[..., BaseSandboxClient[Any]]] = {
    "daytona": DaytonaSandboxClient,
    "e2b": UsualE2BClient,
}
OPTIONS: Mapping[str, Callable[..., Any]] = {
    "daytona": DaytonaSandboxClientOptions,
    "e2b": _e2b_options,
}


def vendor_of(name: str) -> Vendor:
    """An adapter that is connected to the shared local server."""
    server = shared(name)
    if name == "daytona":
        return DaytonaVendor(DaytonaAccount(api_key=server.api_key, api_url=server.api_url))
    return E2BVendor(account_of(environment=server.env))


def provider_of(name: str, *, agents: bool = True) -> Provider:
    return AgentProvider(HostedHost(vendor_of(name), agents=agents))


async def crash(name: str, home: Path, key: str) -> None:
    """All processes are killed; the box itself runs on."""
    del home
    vendor = vendor_of(name)
    box_id = await asyncio.to_thread(box_of, shared(name), key)
    try:
        with contextlib.suppress(VendorSilent):  # the command kills its own shell, too
            await vendor.execute(box_id, "kill -KILL -1", timeout_s=10)
    finally:
        await vendor.close()


async def expire(name: str, home: Path, key: str) -> None:
    """The vendor stops the box."""
    del home
    server = shared(name)
    await asyncio.to_thread(lambda: server.expire(box_of(server, key)))


async def lose(name: str, home: Path, key: str) -> None:
    del home
    server = shared(name)
    await asyncio.to_thread(lambda: server.delete(box_of(server, key)))
