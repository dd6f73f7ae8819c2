"""Random kills under load: any actor, the server, several at once, during many runs."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

from chaos.evidence import Kills, Outcome, seconds_to_continue
from chaos.fleet import Fleet, judge_runs
from chaos.scenarios import LONG, MIDDLE, PLAIN, Scenario

from sandstream.testing import ScriptedModel

_MIX = (LONG, LONG, MIDDLE, PLAIN)
DONE_WITHIN_S = 120.0


async def storm(
    name: str,
    directory: Path,
    model: ScriptedModel,
    *,
    runs: int = 40,
    seconds: float = 10.0,
    seed: int | None = None,
) -> Outcome:
    """Submit runs during the first half of the storm, kill until it is over, wait for all ends."""
    seed = random.randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    outcome = Outcome(f"{name} (seed {seed})", "mixed")
    async with Fleet(directory, model.base_url) as fleet:
        await fleet.replicas_of(harness=2, worker=2)
        planned = [(f"{name}-{n}", _MIX[n % len(_MIX)]) for n in range(runs)]
        killed: list[tuple[str, int]] = []
        ends = time.monotonic() + seconds
        await asyncio.gather(
            _submit(fleet, planned, seconds / 2), kill_at_random(fleet, chance, ends, killed)
        )
        await fleet.replicas_of(**{kind: _missing(fleet, kind) for kind in fleet.replicas})
        late = await fleet.all_done([key for key, _ in planned], DONE_WITHIN_S)
        outcome.check(not late, f"not done {DONE_WITHIN_S} s after the storm: {late}")
        outcome.kills = len(killed)
        outcome.name += ": " + ", ".join(f"{kind} {_count(killed, kind)}" for kind in _KINDS)
        kills = Kills(tuple(at for _, at in killed))
        await judge_runs(outcome, fleet, model, planned, kills)
        for key, _ in planned:
            events = await fleet.events(key)
            waits = [seconds_to_continue(events, at) for _, at in killed]
            outcome.continued_s.extend(wait for wait in waits if wait is not None)
    return outcome


_KINDS = ("harness", "worker", "server")


def _count(killed: list[tuple[str, int]], kind: str) -> int:
    return sum(one == kind for one, _ in killed)


def _missing(fleet: Fleet, kind: str) -> int:
    return 2 - sum(replica.is_running for replica in fleet.replicas[kind])


async def _submit(fleet: Fleet, runs: list[tuple[str, Scenario]], seconds: float) -> None:
    for key, scenario in runs:
        await fleet.submit(key, scenario)
        await asyncio.sleep(seconds / len(runs))


async def kill_at_random(
    fleet: Fleet, chance: random.Random, ends: float, killed: list[tuple[str, int]]
) -> None:
    """Kill one process after the other; each is restarted at once, as a supervisor would do."""
    starting: set[asyncio.Task[None]] = set()
    kinds = (*fleet.replicas, "server")
    while time.monotonic() < ends:
        await asyncio.sleep(chance.uniform(0.2, 1.2))
        kind = chance.choice(kinds)
        if kind == "server":
            if fleet.server.is_running:
                killed.append((kind, fleet.kill_server()))
            continue
        alive = [replica for replica in fleet.replicas[kind] if replica.is_running]
        if alive:
            victim = chance.choice(alive)
            await victim.kill()
            assert victim.killed_ns is not None
            killed.append((kind, victim.killed_ns))
            starting.add(asyncio.ensure_future(_start_again(fleet, kind)))
    await asyncio.gather(*starting)


async def _start_again(fleet: Fleet, kind: str) -> None:
    """Start a replica like a supervisor: retry if it finds no server at that moment."""
    for _ in range(4):
        with contextlib.suppress(AssertionError):
            await fleet.replica(kind)
            return
    await fleet.replica(kind)
