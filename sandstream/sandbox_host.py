"""Starts sandbox actors: which provider, which node, with which of its powers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from pathlib import Path

from sandstream_actors.sandbox.actor import OWN_NODE, SandboxActor
from sandstream_actors.sandbox.specs import Policy
from sandstream_bus.bus import Bus
from sandstream_providers.interface import Provider, ProviderUnavailable

from sandstream.exceptions import UserError
from sandstream.sandbox.errors import ProviderUnavailableError

PROVIDERS = ("local",)


def node_name(home: Path) -> str:
    """What this machine (rather: this state directory) is called, for ever."""
    file = home / "node"
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        temporary = home / f".node-{uuid.uuid4().hex}"
        temporary.write_text(uuid.uuid4().hex[:12])
        try:
            os.link(temporary, file)  # whole or not at all, and only one of us succeeds
        finally:
            temporary.unlink()
    return file.read_text().strip()


def make_provider(name: str, home: Path, isolation: str = "required") -> Provider:
    """A provider by name. Its libraries are imported here, not before."""
    if name == "local":
        from sandstream_providers.local.provider import LocalProvider

        return LocalProvider(home, isolation="none" if isolation == "none" else "required")
    raise UserError(f"there is no sandbox provider {name!r}; known are: {', '.join(PROVIDERS)}")


async def start_local_actor(
    bus: Bus, home: Path, isolation: str = "required", *, own: bool = False, concurrency: int = 256
) -> SandboxActor:
    """An actor for this machine's sandboxes. ``own``: for the callers of this process only, who
    may have what they like; others may have what ``SANDSTREAM_SANDBOX_ALLOW`` names.
    """
    try:
        allowed = os.environ.get("SANDSTREAM_SANDBOX_ALLOW", "").split(",")
        policy = Policy() if own else Policy.of(allowed)
    except ValueError as error:
        raise UserError(f"SANDSTREAM_SANDBOX_ALLOW: {error}") from None
    name = await asyncio.to_thread(node_name, home)
    node = f"{OWN_NODE}{name}" if own else name
    if isolation == "none":
        node += "-plain"
    if own:  # not to be asked by other programs of this machine: their secrets are not ours
        node += f"_{uuid.uuid4().hex[:8]}"
    provider = make_provider("local", home, isolation)
    actor = SandboxActor(bus, provider, node=node, max_in_flight=concurrency, policy=policy)
    try:
        await actor.start()
    except ProviderUnavailable as error:
        raise ProviderUnavailableError(
            provider="local", reason=str(error), cause=error, retryable=False
        ) from error
    return actor
