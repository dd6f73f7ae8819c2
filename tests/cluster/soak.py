"""Batch after batch of runs on a cluster, with one random fault after the other:
``PYTHONPATH=tests python -m cluster.soak --minutes 10``, or ``make cluster-soak SOAK_MINUTES=10``.

Between two batches an actor is stopped for 30 s (``pauses``) and the network misbehaves
(``network``), on servers of their own. Exit code 1 if any run went wrong; what the servers and the
actors have written is then kept.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from chaos import report
from chaos.evidence import Outcome
from cluster.faults import at_random
from cluster.scenario import scenario
from network.scenes import FAULTS, network_scene
from pauses.scenes import SCENES
from support.servers.nats_cluster import NatsCluster

PAUSE_S = 30.0
IN_FLIGHT = 40
PACE_S = 0.1

Batch = Callable[[Path], Awaitable[Outcome]]


def batches(cluster: NatsCluster, chance: random.Random, runs: int) -> itertools.cycle[Batch]:
    """What happens, in turn; chance decides the rest."""
    numbers = itertools.count()

    async def on_cluster(directory: Path) -> Outcome:
        name = f"soak{next(numbers)}"
        fault = at_random(chance)
        return await scenario(
            name, cluster, directory, fault, runs=runs, in_flight=IN_FLIGHT, pace_s=PACE_S
        )

    async def pause(directory: Path) -> Outcome:
        return await chance.choice(SCENES)(directory, seconds=PAUSE_S)

    async def network(directory: Path) -> Outcome:
        return await network_scene(directory, chance.choice(FAULTS))

    return itertools.cycle([on_cluster, pause, on_cluster, network])


async def soak(home: Path, minutes: float, runs: int, seed: int) -> list[Outcome]:
    cluster = NatsCluster(home / "nodes")
    await asyncio.to_thread(cluster.start)
    outcomes: list[Outcome] = []
    ends = time.monotonic() + minutes * 60
    try:
        for batch in batches(cluster, random.Random(seed), runs):
            outcomes.append(await _one(batch, home / f"batch{len(outcomes)}"))
            if time.monotonic() > ends:
                break
    finally:
        cluster.end()
    return outcomes


async def _one(batch: Batch, directory: Path) -> Outcome:
    outcome = await batch(directory)
    report.write(f"cluster soak {directory.name}", [outcome])
    print(report.lines({"": report.read()[f"cluster soak {directory.name}"]})[1], flush=True)
    if outcome.problems:
        print(f"  kept: {directory}", *outcome.problems, sep="\n  ", flush=True)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description="Random faults of a cluster for a long time.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=600, help="of each batch on the cluster")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    home = Path(tempfile.mkdtemp(prefix="sandstream-cluster-"))
    home.chmod(0o755)  # sandboxes of other users lie below it
    outcomes = asyncio.run(soak(home, options.minutes, options.runs, options.seed))
    failed = sum(bool(outcome.problems) for outcome in outcomes)
    if not failed:
        shutil.rmtree(home)
    runs = sum(outcome.runs for outcome in outcomes)
    repeated = sum(outcome.repeated_effects for outcome in outcomes)
    requests = sum(outcome.model_requests - outcome.model_turns for outcome in outcomes)
    print(
        f"{runs} runs, {repeated} repeated effects of at-least-once tools, {requests} repeated "
        f"model requests, {failed} of {len(outcomes)} batches with problems"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
