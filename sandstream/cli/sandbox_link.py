"""Reaches the actor that has a sandbox; this machine's own sandboxes also without one running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from sandstream_actors.sandbox.actor import OWN_NODE
from sandstream_actors.sandbox.record import SandboxRecord
from sandstream_bus.bus import Bus
from sandstream_bus.sandboxes import machine_of

from sandstream.cli.exits import CliError, Exit
from sandstream.sandbox_host import node_name, start_local_actor
from sandstream.settings import Settings

_PLAIN = "-plain"


@contextlib.asynccontextmanager
async def reached(bus: Bus, record: SandboxRecord) -> AsyncIterator[str]:
    """The node that must be asked; empty: any node of the provider.

    A sandbox of a process on this machine that has ended is served from here meanwhile. Raises
    :class:`CliError` if nobody would answer.
    """
    shared = f"sandbox-{record.provider}"
    has_node = record.is_live or record.state == "intended"
    if has_node and await bus.presence.is_served(f"{shared}-{record.node}"):
        yield record.node
        return
    any_node = await bus.presence.is_served(shared)
    if any_node and not has_node:
        yield ""
    elif await _was_ours(record):
        isolation = "none" if record.node.endswith(_PLAIN) else "required"
        actor = await start_local_actor(bus, Settings.from_env().home, isolation, own=True)
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
    """Did a process with the same home have it, for itself alone?"""
    home = Settings.from_env().home
    is_own = record.provider == "local" and record.node.startswith(OWN_NODE)
    if not is_own or not (home / "node").exists():
        return False
    name = await asyncio.to_thread(node_name, home)
    machine = machine_of(record.node)
    return machine.removeprefix(OWN_NODE).removesuffix(_PLAIN) == name
