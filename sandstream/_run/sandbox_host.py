"""Starts sandbox actors with a provider, a node and a policy."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import uuid
from pathlib import Path

import msgspec
from sandstream_actors.sandbox.actor import OWN_NODE, SandboxActor
from sandstream_actors.sandbox.policy import SETTING, Policy
from sandstream_bus.bus import Bus
from sandstream_bus.environment import variable
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_providers import registry
from sandstream_providers.interface import Provider, ProviderError, ProviderUnavailable
from sandstream_providers.registry import ProviderSettings

from sandstream.exceptions import UserError
from sandstream.sandbox.errors import ProviderUnavailableError

GRACE = "SANDSTREAM_SANDBOX_GRACE_S"
"""The variable that says how long a box lives on when no process holds it."""
SHARED_NODE = "shared"
"""The one node of a provider whose boxes every replica can reach."""


def node_name(home: Path) -> str:
    """The lasting name of this machine, or rather of this state directory."""
    file = home / "node"
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        temporary = home / f".node-{uuid.uuid4().hex}"
        temporary.write_text(uuid.uuid4().hex[:12])
        try:
            os.link(temporary, file)  # atomic, and only one process succeeds
        finally:
            temporary.unlink()
    return file.read_text().strip()


def make_provider(
    name: str,
    home: Path,
    isolation: str = "required",
    *,
    own: bool = False,
    endpoint: str = "",
    api_key: str = "",
) -> Provider:
    """A provider by name. Its libraries are imported here, not before.

    Args:
        name: A name of the registry.
        home: The state directory of this machine.
        isolation: ``required`` or ``none``.
        own: Whether the sandboxes belong to this process and end with it.
        endpoint: Where its service is; empty: where the environment says.
        api_key: The key for its service; empty: the one that the environment has.
    """
    settings = ProviderSettings(
        home=home,
        isolation=isolation,
        own=own,
        grace_s=_grace(),
        endpoint=endpoint,
        api_key=api_key,
    )
    try:
        return registry.make(name, settings)
    except registry.UnknownProvider as error:
        raise UserError(str(error)) from None


def _grace() -> float | None:
    text = variable(GRACE)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < math.inf:
        raise UserError(f"{GRACE} must be a number of seconds above 0, not {text!r}")
    return seconds


async def start_sandbox_actor(
    bus: Bus,
    home: Path,
    isolation: str = "required",
    *,
    provider: str = DEFAULT_PROVIDER,
    own: bool = False,
    endpoint: str = "",
    api_key: str = "",
    concurrency: int = 256,
) -> SandboxActor:
    """Start an actor for the sandboxes of one provider.

    Args:
        bus: Where its work comes from.
        home: The state directory, which gives the node its name.
        isolation: ``required`` or ``none``.
        provider: A name of the registry.
        own: For callers of this process only, who may use every source. Others may use the
            sources that ``SANDSTREAM_SANDBOX_ALLOW`` names.
        endpoint: Where the provider's service is; empty: where the environment says.
        api_key: The key for that service; empty: the one that the environment has.
        concurrency: How many operations it works on at once.
    """
    try:
        allowed = variable(SETTING).split(",")
        policy = Policy() if own else Policy.of(allowed)
    except ValueError as error:
        raise UserError(f"{SETTING}: {error}") from None
    try:
        made = make_provider(provider, home, isolation, own=own, endpoint=endpoint, api_key=api_key)
        owns_boxes = registry.find(provider).owns_boxes
        if not owns_boxes:  # the network of its boxes is the vendor's, not this machine's
            policy = msgspec.structs.replace(policy, network=True)
        node = await _node(provider, home, isolation, own=own)
        actor = SandboxActor(
            bus,
            made,
            node=node,
            max_in_flight=concurrency,
            policy=policy,
            owns_boxes=owns_boxes,
        )
        try:
            await actor.start()
        except BaseException:
            await made.close()  # an actor that did not start does not stop either
            raise
    except ProviderError as error:  # also a vendor that does not answer
        raise ProviderUnavailableError(
            provider=provider,
            reason=str(error),
            cause=error,
            retryable=not isinstance(error, ProviderUnavailable),
        ) from error
    return actor


async def _node(provider: str, home: Path, isolation: str, *, own: bool) -> str:
    owns_boxes = registry.find(provider).owns_boxes
    node = await asyncio.to_thread(node_name, home) if owns_boxes else SHARED_NODE
    if own:
        node = f"{OWN_NODE}{node}"
    if isolation == "none":
        node += "-plain"
    if own:  # other programs of this machine must not ask it: their secrets are not here
        node += f"_{uuid.uuid4().hex[:8]}"
    return node
