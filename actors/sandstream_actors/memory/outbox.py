"""The messages that the memory actor sends after a decision; the decision determines their ids."""

from __future__ import annotations

import hashlib

from sandstream_bus.bus import Bus
from sandstream_bus.wire.memories import (
    ExtractRequested,
    MemoryChanged,
    MemoryFailed,
    MemoryState,
    MergeRequested,
)
from sandstream_bus.wire.messages import CancelRequested
from sandstream_bus.wire.sandboxes import SandboxRequest, SyncMemory
from sandstream_bus.wire.subjects import scope_token

from sandstream_actors.memory.scope.pending_work import has_news, why_now
from sandstream_actors.run.sandbox_record import SandboxRecord


def digest_of(*parts: object) -> str:
    """A short, unique name for these parts."""
    text = "\0".join(map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


async def tell(bus: Bus, scope: str, event: MemoryChanged | MemoryFailed, *, cause: str) -> None:
    """Publish an event for people who watch the memory."""
    msg_id = f"memory:{scope_token(scope)}:{cause}:{event.__struct_config__.tag}"
    await bus.memories.send(bus.subjects.memory_event(scope), event, msg_id=msg_id)


async def ask_extraction(bus: Bus, scope: str, request: ExtractRequested, *, cause: str) -> None:
    msg_id = f"memory:{scope_token(scope)}:{cause}:extract:{digest_of(request.rollout)}"
    await bus.memories.send(bus.subjects.memory_extract(scope), request, msg_id=msg_id)


async def ask_merge(bus: Bus, scope: str, reason: str, *, cause: str, attempt: int = 1) -> None:
    msg_id = f"memory:{scope_token(scope)}:{cause}:merge"
    request = MergeRequested(reason=reason, attempt=attempt)
    await bus.memories.send(bus.subjects.memory_merge(scope), request, msg_id=msg_id)


async def ask_later(
    bus: Bus,
    scope: str,
    name: str,
    request: ExtractRequested | MergeRequested,
    *,
    cause: str,
    delay_s: float,
) -> None:
    """Send the request by a durable timer; a timer of the same name is rescheduled."""
    is_extraction = isinstance(request, ExtractRequested)
    of = bus.subjects.memory_extract if is_extraction else bus.subjects.memory_merge
    owner = scope_token(scope)
    await bus.timers.arm(
        owner,
        name,
        of(scope),
        request,
        delay_s=delay_s,
        msg_id=f"memory:{owner}:{cause}:timer:{name}",
    )


async def go_on(bus: Bus, state: MemoryState, *, cause: str) -> None:
    """Request the next consolidation if it is due; otherwise schedule it after a quiet period."""
    reason = why_now(state)
    if reason:
        await ask_merge(bus, state.scope, reason, cause=cause)
    elif state.merging is None and not state.merge_attempt and has_news(state):
        quiet = MergeRequested(reason="quiet")
        delay_s = state.use.quiet_s
        await ask_later(bus, state.scope, "quiet", quiet, cause=cause, delay_s=delay_s)


async def cancel_run(bus: Bus, run: str, reason: str) -> None:
    await bus.work_log.send(
        bus.subjects.cancel(run),
        CancelRequested(reason=reason),
        msg_id=f"{run}:cancel:immediate",
    )


async def sync_workspaces(bus: Bus, state: MemoryState) -> None:
    """Ask the open workspaces that use this memory to update their copy."""
    for sandbox in state.sandboxes:
        record = SandboxRecord.of(sandbox, await bus.sandboxes.read(sandbox))
        if not record.is_live:
            continue
        op = f"memory-{digest_of(state.scope, state.revision)}"
        request = SandboxRequest(op=op, action=SyncMemory(scope=state.scope))
        await bus.sandboxes.tell(sandbox, request, provider=record.provider, node=record.node)
