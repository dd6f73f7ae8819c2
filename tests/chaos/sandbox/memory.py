"""A memory in a sandbox whose actor dies while it lays the memory out: no file is incomplete, and
changes in the workspace are reported.
"""

from __future__ import annotations

import msgspec
from actors.sandbox.memory_yard import HANDBOOK, MARKER, SUMMARY, remember
from chaos.evidence import Outcome
from chaos.sandbox.fleet import SandboxFleet
from sandstream_actors.memory.copies.marker import parse_marker
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.wire.memories import EditRequested
from sandstream_bus.wire.sandboxes import (
    Close,
    Exec,
    MemoryMount,
    Open,
    SandboxAction,
    SandboxReply,
    SandboxRequest,
    SyncMemory,
)

LINES = 2000


async def memory_session(outcome: Outcome, fleet: SandboxFleet, key: str) -> None:
    """Open it, edit the memory inside and outside, sync, close: the result has both edits."""
    outcome.runs += 1
    bus = fleet.client.bus

    async def ask(action: SandboxAction) -> SandboxReply:
        request = SandboxRequest(op=new_op(), action=action)
        reply = await bus.sandboxes.request(key, request, provider=fleet.provider)
        outcome.check(reply.error is None, f"{key}: {reply.error}")
        return reply

    text = "".join(f"line {number}\n" for number in range(LINES))
    await remember(bus, {HANDBOOK: text, SUMMARY: "short\n"}, scope=key)
    await ask(Open(spec=fleet.spec(memories=[MemoryMount(scope=key)])))
    await ask(Exec(argv=["sh", "-c", f"echo mine >> {HANDBOOK}"]))
    state = await remember(bus, {HANDBOOK: f"theirs\n{text}"}, scope=key)
    await ask(SyncMemory(scope=key))
    await ask(Close())
    record = await fleet.record_of(key)
    saved = {path: await fleet.saved(record, path) for path in (HANDBOOK, SUMMARY, MARKER)}
    together = f"theirs\n{text}mine\n"
    outcome.check(saved[HANDBOOK] == together, f"{key}: its handbook: {saved[HANDBOOK][:80]!r}…")
    outcome.check(saved[SUMMARY] == "short\n", f"{key}: its summary: {saved[SUMMARY]!r}")
    marker = parse_marker(saved[MARKER].encode())
    revision = marker.revision if marker is not None else None
    outcome.check(revision == state.revision, f"{key}: it has revision {revision}")
    subject = bus.subjects.memory_edit(key)
    stored = await stale_many(bus.connection, bus.topology.log, subject, after=0)
    told = [msgspec.json.decode(it.data, type=EditRequested) for it in stored]
    contents = [it.data for edit in told for it in edit.edits if it.path == HANDBOOK]
    outcome.effects += len(contents)
    outcome.check(contents == [together.encode()], f"{key}: {len(contents)} edits were told")
