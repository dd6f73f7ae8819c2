"""Whether anybody still needs a sandbox: its run, or the program or client that made it.

That the log says "intended" or "ready" is not enough: the process that was to use the box may have
been killed. Nothing here changes anything.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import OWN_NODE
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.run.state import RunState

PROCESS_POOL = "p-"
"""Pools of programs. Their names are random: what a dead one left, no other process continues."""


class Owner(NamedTuple):
    """Who a sandbox belongs to."""

    is_gone: bool
    """Nobody can need the sandbox any more."""
    why: str
    abandoned: RunState | None = None
    """Its run, if that is to be ended too."""
    can_save: bool = True
    """There is something in the workspace that somebody may look for."""


async def owner_of(bus: Bus, record: SandboxRecord, *, is_running: bool) -> Owner:
    """``is_running``: has its box processes that are not paused? One whose program is gone ends by
    itself when its grace is over, and is closed after that.
    """
    if record.spec.run:
        return await _run_of(bus, record)
    if not record.node.startswith(OWN_NODE):
        return Owner(False, "a session's")
    if await _is_served(bus, f"sandbox-{record.provider}-{record.node}"):
        return Owner(False, "its program is live")
    if is_running and record.is_live:
        return Owner(False, "its program is gone; it ends by itself soon")
    return Owner(True, "its program is gone", can_save=record.is_live)


async def _run_of(bus: Bus, record: SandboxRecord) -> Owner:
    run = RunId(record.spec.run)
    events = await bus.log.read(run, skip_unknown=True)
    state = RunState.of(run, events)
    if not events:
        return Owner(True, f"its run {run} has ended", can_save=False)
    if state.done is not None:
        return Owner(True, f"its run {run} has ended")
    if state.waiting is not None:
        return Owner(False, f"its run {run} waits for a person")
    if await is_abandoned(bus, state):
        # a phase of a memory is begun again by whoever makes memories, unless it is cancelled
        to_end = state.options.memory is None or state.cancel is not None
        why = f"the caller of its run {run} is gone"
        return Owner(True, why, state if to_end else None)
    return Owner(False, f"its run {run} has not ended")


async def is_abandoned(bus: Bus, state: RunState) -> bool:
    """Is it the run of a process that is gone, which nobody can continue?"""
    if state.started is None or state.started.key is not None or state.waiting is not None:
        return False  # whoever has the key, or the saved state, can
    if not state.pool.startswith(PROCESS_POOL):
        return False  # a deployed agent's: its worker may come back
    if state.options.memory is not None:
        return not await _is_served(bus, f"harness-{state.pool}")
    return state.pool == state.host and not await _is_served(bus, f"tools-{state.host}")


async def _is_served(bus: Bus, consumer: str) -> bool:
    for _ in range(2):  # after a restart of the server its clients are away for a moment
        if await bus.presence.is_served(consumer):
            return True
        await asyncio.sleep(1.0)
    return False
