"""Judges a memory after a storm by the log and by what a reader saw.

Every rollout was extracted once into the state; every consolidation saw everything that was
extracted when it was requested; the reader always saw a complete version of the handbook.
"""

from __future__ import annotations

import json
import re
from collections import Counter

from actors.memory.rig import SCOPE
from chaos.evidence import Outcome
from chaos.memory.fleet import MemoryFleet, fact, facts_of
from sandstream_actors.memory.phases import phase_run
from sandstream_bus.nats.direct import Stored, stale_many
from sandstream_bus.wire.memories import MemoryChanged, MemoryState, MergeRequested
from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.subjects import RunId

_SELECTED = re.compile(r"Selected: (\d+) rollouts")


async def judge_memory(outcome: Outcome, fleet: MemoryFleet, state: MemoryState, runs: int) -> None:
    """``runs``: the number of runs, each with its own rollout."""
    await judge_stored_memory(outcome, fleet, state, runs)
    _judge_reads(outcome, fleet)


async def judge_stored_memory(
    outcome: Outcome, fleet: MemoryFleet, state: MemoryState, runs: int
) -> None:
    """The same without the reader's observations."""
    files = await fleet.rig.files()
    handbook = facts_of(files["memories/MEMORY.md"].decode())
    wanted = Counter(fact(number) for number in range(runs))
    outcome.check(handbook == wanted, f"the handbook has {handbook}")
    outcome.check(set(state.selected) == set(state.rollouts), "the last merge did not see all")
    sessions = [path for path in files if path.startswith("sessions/")]
    outcome.check(len(sessions) == runs, f"{len(sessions)} transcripts")
    for path in sessions:
        lines = [json.loads(line) for line in files[path].splitlines()]
        outcome.check(len(lines) == 1, f"{path} has {len(lines)} lines")
    await _judge_extractions(outcome, fleet, state)
    await _judge_merges(outcome, fleet)
    parked = await fleet.client.parked()
    outcome.check(not parked, f"messages were parked: {parked}")


async def _judge_extractions(outcome: Outcome, fleet: MemoryFleet, state: MemoryState) -> None:
    accepted: Counter[str] = Counter()
    for _, changed in await _told(fleet):
        if changed.kind == "extracted":
            accepted[changed.rollout] += 1
    outcome.effects = accepted.total()
    wanted = Counter(list(state.rollouts))
    outcome.check(accepted == wanted, f"extractions by rollout: {accepted - wanted} too many")
    outcome.check(not wanted - accepted, f"not told of: {wanted - accepted}")
    for rollout in state.rollouts.values():
        is_once = rollout.extracted == len(rollout.runs) == 1 and not rollout.extracting
        outcome.check(is_once, f"{rollout.id}: {rollout}")


async def _judge_merges(outcome: Outcome, fleet: MemoryFleet) -> None:
    """A merge contains everything that was extracted before it was requested."""
    extracted = [at for at, changed in await _told(fleet) if changed.kind == "extracted"]
    judged = 0
    for stored in await _stored(fleet, fleet.client.bus.subjects.memory_merge(SCOPE)):
        request = await fleet.client.bus.codec.memory_event(stored.data)
        run = phase_run("merge", SCOPE, stored.sequence)
        events = await fleet.client.bus.log.read(RunId(run))
        if not isinstance(request, MergeRequested) or request.watches or not events:
            continue
        started = events[0].event
        assert isinstance(started, RunStarted)
        found = _SELECTED.search(bytes(started.input[0]).decode())
        assert found is not None
        before = sum(at < stored.sequence for at in extracted)
        outcome.check(int(found[1]) >= before, f"{run} saw {found[1]} of {before}")
        judged += 1
    outcome.runs = judged
    outcome.check(judged, "there was no consolidation to judge")


def _judge_reads(outcome: Outcome, fleet: MemoryFleet) -> None:
    halves = {it: where for it, where in fleet.seen_handbooks.items() if facts_of(it) is None}
    for number, (content, where) in enumerate(halves.items()):
        file = fleet.directory / f"half-{number}.md"
        file.write_text(content)
        outcome.check(False, f"half a handbook in {where}: {file}")
    outcome.check("a workspace" in fleet.seen_handbooks.values(), "no workspace was read")


async def _told(fleet: MemoryFleet) -> list[tuple[int, MemoryChanged]]:
    found = []
    for stored in await _stored(fleet, fleet.client.bus.subjects.memory_event(SCOPE)):
        event = await fleet.client.bus.codec.memory_event(stored.data)
        if isinstance(event, MemoryChanged):
            found.append((stored.sequence, event))
    return found


async def _stored(fleet: MemoryFleet, subject: str) -> list[Stored]:
    bus = fleet.client.bus
    return await stale_many(bus.connection, bus.topology.log, subject, after=0)
