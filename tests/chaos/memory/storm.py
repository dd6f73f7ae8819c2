"""Random kills of memory actors, harnesses, sandbox actors and the server while runs end in waves
in one memory.

``PYTHONPATH=tests python -m chaos.memory.storm --minutes 3``: storm after storm. Exit code 1 if a
rollout was extracted twice or not at all, a consolidation missed something, or a reader saw an
incomplete handbook; the storm's directory is then kept.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from chaos.evidence import Outcome
from chaos.memory.evidence import judge_memory
from chaos.memory.fleet import MEMORY, PHASES, MemoryFleet, scripted_memory
from chaos.sandbox.fleet import SANDBOX

SETTLED_WITHIN_S = 180.0
_VICTIMS = (MEMORY, MEMORY, MEMORY, PHASES, SANDBOX, "server")


async def memory_storm(
    directory: Path, *, runs: int, waves: int, seconds: float, seed: int | None = None
) -> Outcome:
    """End runs in waves, kill until the storm is over, then wait for the memory."""
    seed = random.randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    outcome = Outcome(f"seed {seed}", "memory")
    with scripted_memory(runs * waves) as model:
        async with MemoryFleet(directory, model.base_url) as fleet:
            await fleet.replicas_of(**{MEMORY: 2, PHASES: 1, SANDBOX: 1})
            async with fleet.reading():
                killed: Counter[str] = Counter()
                ends = time.monotonic() + seconds
                await asyncio.gather(
                    _end_runs(fleet, runs, waves, seconds), _kill(fleet, chance, ends, killed)
                )
                over = time.monotonic()
                state = await fleet.all_merged(runs * waves, within_s=SETTLED_WITHIN_S)
                settled_s = time.monotonic() - over
            await judge_memory(outcome, fleet, state, runs * waves)
            outcome.kills = killed.total()
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(killed.items()))
            outcome.name += (
                f": {runs * waves} runs, {outcome.kills} kills ({kinds}), {outcome.effects} "
                f"extractions, {state.merges} merges, {len(model.journal)} model requests, "
                f"{len(fleet.seen_handbooks)} versions seen in {fleet.reads} reads, settled "
                f"{settled_s:.1f} s after the last kill"
            )
    return outcome


async def _end_runs(fleet: MemoryFleet, runs: int, waves: int, seconds: float) -> None:
    for wave in range(waves):
        await fleet.end_runs(wave * runs, runs)
        await asyncio.sleep(seconds / waves)


async def _kill(
    fleet: MemoryFleet, chance: random.Random, ends: float, killed: Counter[str]
) -> None:
    """Kill one process after the other; each is restarted at once."""
    while time.monotonic() < ends:
        await asyncio.sleep(chance.uniform(0.3, 1.5))
        kind = chance.choice(_VICTIMS)
        killed[kind] += 1
        if kind == "server":
            if fleet.server.is_running:
                fleet.kill_server()
            continue
        await fleet.restart_one(kind, chance.randrange(2))


def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="sandstream-memory-"))
    directory.chmod(0o755)  # sandboxes of other users lie below it
    return directory


async def _soak(minutes: float, runs: int, waves: int, seconds: float, seed: int | None) -> int:
    ends, failed, storms = time.monotonic() + minutes * 60, 0, 0
    while time.monotonic() < ends:
        storms += 1
        directory = _directory()
        found = await memory_storm(
            directory / "fleet", runs=runs, waves=waves, seconds=seconds, seed=seed
        )
        print(found.name, flush=True)
        if found.problems:
            failed += 1
            print(f"  kept: {directory}", *found.problems[:20], sep="\n  ", flush=True)
        else:
            shutil.rmtree(directory)
    print(f"{failed} of {storms} storms with problems")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Random kills around a memory.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=20, help="of each wave")
    parser.add_argument("--waves", type=int, default=5, help="per storm")
    parser.add_argument("--seconds", type=float, default=20.0, help="per storm")
    parser.add_argument("--seed", type=int, help="of every storm; without it each has its own")
    options = parser.parse_args()
    return asyncio.run(
        _soak(options.minutes, options.runs, options.waves, options.seconds, options.seed)
    )


if __name__ == "__main__":
    sys.exit(main())
