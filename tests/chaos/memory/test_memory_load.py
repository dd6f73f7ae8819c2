"""Fifty runs end at once in one memory, while one of two memory actors is killed repeatedly.

For minutes of it, with kills of all other processes: ``PYTHONPATH=tests python -m
chaos.memory.storm``.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from chaos.evidence import Outcome
from chaos.memory.evidence import judge_memory
from chaos.memory.fleet import MEMORY, MemoryFleet, scripted_memory
from chaos.sandbox.fleet import SANDBOX

RUNS = 50
KILLS = 5
LATER = 5


@pytest.mark.timeout(180)
def test_fifty_runs_end_at_once_and_memory_actors_die(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    outcome = Outcome(f"memory load (seed {seed})")

    async def main() -> None:
        with scripted_memory(RUNS + LATER) as model:
            async with MemoryFleet(tmp_path / "fleet", model.base_url) as fleet:
                await fleet.replicas_of(**{MEMORY: 2, SANDBOX: 1})
                async with fleet.reading():
                    await asyncio.gather(fleet.end_runs(0, RUNS), kill(fleet))
                    await fleet.all_merged(RUNS, within_s=90)
                    await fleet.end_runs(RUNS, LATER)
                    state = await fleet.all_merged(RUNS + LATER, within_s=60)
                await judge_memory(outcome, fleet, state, RUNS + LATER)
                assert len(fleet.seen_handbooks) > 2, "the reader saw it grow"

    async def kill(fleet: MemoryFleet) -> None:
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.05, 0.6))
            await fleet.restart_one(MEMORY, chance.randrange(2))

    asyncio.run(main())
    assert outcome.problems == [], outcome.name
