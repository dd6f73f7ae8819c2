"""Random kills while many runs work in sandboxes: sandbox actors, harnesses, the server."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

from chaos.evidence import Outcome
from chaos.sandbox.fleet import END, HARNESS, SANDBOX, TURN, SandboxFleet
from chaos.sandbox.work import judge_work, new_mark, scripted_smith, sleepers, stormy

DONE_WITHIN_S = 120.0
_VICTIMS = (SANDBOX, SANDBOX, HARNESS, "server")


async def sandbox_storm(
    name: str,
    directory: Path,
    *,
    runs: int = 20,
    seconds: float = 12.0,
    seed: int | None = None,
) -> Outcome:
    """Submit runs during the first half of the storm, kill until it is over, wait for all ends.

    Every command of every run must have run once. Each run leaves a process behind that must be
    gone afterwards, as must all boxes.
    """
    seed = random.randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    outcome = Outcome(f"{name} (seed {seed})", "sandboxes")
    mark = new_mark()
    work = stormy(mark)
    with scripted_smith(mark) as model:
        async with SandboxFleet(directory, model.base_url) as fleet:
            await fleet.replicas_of(**{HARNESS: 2, SANDBOX: 2, END: 1, TURN: 1})
            agents = {f"{name}-{n}": (END, TURN)[n % 2] for n in range(runs)}
            killed: Counter[str] = Counter()
            ends = time.monotonic() + seconds
            await asyncio.gather(
                _submit(fleet, agents, seconds / 2), _kill(fleet, chance, ends, killed)
            )
            late = await fleet.all_done(list(agents), DONE_WITHIN_S)
            outcome.check(not late, f"not done {DONE_WITHIN_S} s after the storm: {late}")
            outcome.kills = killed.total()
            outcome.name += ": " + ", ".join(f"{kind} {n}" for kind, n in sorted(killed.items()))
            for key, agent in agents.items():
                if key not in late:
                    await judge_work(outcome, fleet, model, key, work, agent)
            await fleet.no_boxes()
            outcome.check(not sleepers(mark), f"processes were left: {sleepers(mark)}")
    return outcome


async def _submit(fleet: SandboxFleet, agents: dict[str, str], seconds: float) -> None:
    for key, agent in agents.items():
        await fleet.order(key, stormy().order(key), agent=agent)
        await asyncio.sleep(seconds / len(agents))


async def _kill(
    fleet: SandboxFleet, chance: random.Random, ends: float, killed: Counter[str]
) -> None:
    """Kill one process after the other; each is restarted at once, as a supervisor would do."""
    starting: set[asyncio.Task[object]] = set()
    while time.monotonic() < ends:
        await asyncio.sleep(chance.uniform(0.5, 1.5))
        kind = chance.choice(_VICTIMS)
        if kind == "server":
            if fleet.server.is_running:
                fleet.kill_server()
                killed[kind] += 1
            continue
        alive = [replica for replica in fleet.replicas[kind] if replica.is_running]
        if alive:
            await chance.choice(alive).kill()
            killed[kind] += 1
            starting.add(asyncio.ensure_future(fleet.replica(kind)))
    await asyncio.gather(*starting)
