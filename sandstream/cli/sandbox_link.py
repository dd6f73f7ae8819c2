"""Reaches the actor that has a sandbox; this machine's own sandboxes also without one running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.actor import OWN_NODE
from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import machine_of
from sandstream_providers import registry
from sandstream_providers.interface import ProviderError

from sandstream._run.sandbox_host import node_name, start_sandbox_actor
from sandstream.cli.exits import CliError, Exit
from sandstream.settings import Settings

_PLAIN = "-plain"


@contextlib.asynccontextmanager
async def reached(bus: Bus, record: SandboxRecord) -> AsyncIterator[str]:
    """The node to send requests to; empty for any node of the provider.

    If the sandbox belongs to an ended process on this machine, this process serves it meanwhile.
    Raises :class:`CliError` if no actor would answer.
    """
    shared = f"sandbox-{record.provider}"
    has_node = record.is_live or record.state == "intended"
    if has_node and await bus.presence.is_served(f"{shared}-{record.node}"):
        yield record.node
        return
    any_node = await bus.presence.is_served(shared)
    if any_node and (not has_node or _is_hosted(record)):
        yield ""
    elif await _was_ours(record):
        isolation = "none" if record.node.endswith(_PLAIN) else "required"
        actor = await start_sandbox_actor(
            bus, Settings.from_env().home, isolation, provider=record.provider, own=True
        )
        try:
            yield actor.node
        finally:
            await actor.stop()
    elif any_node:
        yield ""  # restored there, or known to be lost
    else:
        raise CliError(
            Exit.UNREACHABLE,
            f"no actor serves sandbox {record.sandbox} of node {record.node}, nor any other of "
            f"provider {record.provider}: start one with `sandstream actor sandbox`",
        )


async def _was_ours(record: SandboxRecord) -> bool:
    """Whether the sandbox belonged to one process whose boxes this process can reach."""
    if not record.node.startswith(OWN_NODE) or record.provider not in registry.names():
        return False
    if _is_hosted(record):
        return True
    home = Settings.from_env().home
    if not (home / "node").exists():
        return False
    name = await asyncio.to_thread(node_name, home)
    machine = machine_of(record.node)
    return machine.removeprefix(OWN_NODE).removesuffix(_PLAIN) == name


def _is_hosted(record: SandboxRecord) -> bool:
    """Can every process with the vendor's key reach its box?"""
    try:
        return not registry.find(record.provider).owns_boxes
    except ProviderError:  # its package is not installed here, or does not work
        return False
