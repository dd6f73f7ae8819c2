"""Whether a sandbox is still needed by its run, or by the program or client that created it.

The states "intended" and "ready" in the log are not enough: the process that was to use the box may
have been killed. This module changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import OWN_NODE
from sandstream_bus.wire.subjects import RunId, session_sandbox

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.run.state import RunState

PROCESS_POOL = "p-"
"""The prefix of programs' pools. Their names are random, so no other process continues the work of
a dead one.
"""


class Owner(NamedTuple):
    """The owner of a sandbox, and whether it still exists."""

    is_gone: bool
    """The sandbox is no longer needed."""
    why: str
    abandoned: RunState | None = None
    """Its run, if the run must be ended too."""
    can_save: bool = True
    """The workspace may contain files that a user wants."""


async def owner_of(bus: Bus, record: SandboxRecord, *, ends_soon: bool) -> Owner:
    """Find the owner. ``ends_soon``: the box has processes that are not paused, and they end by
    themselves a grace period after its program. It is closed after that.
    """
    if record.spec.session:
        return await _session_of(bus, record)
    if record.is_kept:
        return Owner(False, "it is kept for a later session")
    if record.spec.run:
        return await _run_of(bus, record)
    if not record.node.startswith(OWN_NODE):
        return Owner(False, "a session's")
    if await _is_served(bus, f"sandbox-{record.provider}-{record.node}"):
        return Owner(False, "its program is live")
    if ends_soon and record.is_live:
        return Owner(False, "its program is gone; it ends by itself soon")
    return Owner(True, "its program is gone", can_save=record.is_live)


async def _session_of(bus: Bus, record: SandboxRecord) -> Owner:
    """A session needs the sandbox of its workspace, and the one that a switch or a rewind makes."""
    session = record.spec.session
    state = (await bus.sessions.read(session)).state
    if state is None or state.life == "destroyed":
        return Owner(True, f"its session {session} was destroyed", can_save=False)
    parts = (state.workspace, state.switch, state.rewind)
    needed = {session_sandbox(session, it.generation) for it in parts if it is not None}
    if record.sandbox not in needed and state.life != "destroying" and state.active is None:
        return Owner(True, f"its session {session} has another sandbox", can_save=False)
    return Owner(False, f"its session {session} needs it")


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
        # the memory actor starts a phase again, unless it is cancelled
        to_end = state.options.memory is None or state.cancel is not None
        why = f"the caller of its run {run} is gone"
        return Owner(True, why, state if to_end else None)
    return Owner(False, f"its run {run} has not ended")


async def is_abandoned(bus: Bus, state: RunState) -> bool:
    """Is it a run of a dead process that cannot be continued?"""
    if state.started is None or state.started.key is not None or state.waiting is not None:
        return False  # a process with the key, or the saved state, can continue it
    if not state.pool.startswith(PROCESS_POOL):
        return False  # the run of a deployed agent: its worker may come back
    if state.options.memory is not None:
        return not await _is_served(bus, f"harness-{state.pool}")
    return state.pool == state.host and not await _is_served(bus, f"tools-{state.host}")


async def _is_served(bus: Bus, consumer: str) -> bool:
    for _ in range(2):  # after a restart of the server its clients are disconnected for a moment
        if await bus.presence.is_served(consumer):
            return True
        await asyncio.sleep(1.0)
    return False
