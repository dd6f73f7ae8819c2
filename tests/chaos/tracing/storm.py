"""Random kills of tracing actors and of the server while agents work together.

``PYTHONPATH=tests python -m chaos.tracing.storm --minutes 3``: storm after storm, with one tracing
actor, with two that share a store, and with two that have their own stores. Exit code 1 if a span
was missing, changed, or twice in a store; the storm's directory is then kept.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, get_args

from chaos.composition.fleet import HARNESS, SECOND, WORKER
from chaos.composition.scenarios import CLAIM, Plan, scripted_company
from chaos.processes import Program
from chaos.tracing.evidence import Judgement
from chaos.tracing.fleet import PLANS, TracingFleet, keyed
from support.tracing.otlp_receiver import OtlpReceiver

Arrangement = Literal["alone", "shared", "apart"]
"""One tracing actor; two with one store; two with their own stores, as on two machines."""
_STORES: dict[Arrangement, tuple[str, ...]] = {
    "alone": ("traces",),
    "shared": ("traces", "traces"),
    "apart": ("here", "there"),
}
_SERVER_SHARE = 0.15


async def tracing_storm(
    directory: Path,
    model_url: str,
    arrangement: Arrangement,
    *,
    runs_of_each: int,
    seconds: float,
    seed: int | None = None,
) -> Judgement:
    """Start runs during the storm and kill meanwhile. The endpoint is down for the second half;
    approvals come at the end.
    """
    seed = random.randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    runs = keyed(runs_of_each, *PLANS)
    chance.shuffle(runs)
    stores = _STORES[arrangement]
    with OtlpReceiver() as receiver:
        async with TracingFleet(directory, model_url) as fleet:
            await fleet.replicas_of(**{HARNESS: 1, SECOND: 1, WORKER: 1})
            tracers = [await fleet.tracer(receiver, store=store) for store in stores]
            ends = time.monotonic() + seconds
            kills, _, _ = await asyncio.gather(
                _kill(fleet, receiver, chance, tracers, stores, ends),
                _begin(fleet, runs, seconds),
                _cut_off(receiver, seconds / 2),
            )
            await fleet.finish(runs, within_s=120)
            receiver.start()
            for number, store in enumerate(stores):  # nobody waits for the endpoint's next chance
                await tracers[number].kill()
                tracers[number] = await fleet.tracer(receiver, store=store)
            await fleet.settled(*set(stores), within_s=60)
            judgement = await fleet.judge(*set(stores), receiver=receiver)
            judgement.name = f"{arrangement} (seed {seed})"
            judgement.kills = kills
            return judgement


async def _begin(fleet: TracingFleet, runs: list[tuple[str, Plan]], seconds: float) -> None:
    for key, plan in runs:
        await fleet.begin(plan, key)
        await asyncio.sleep(seconds / len(runs))
    for key, plan in runs:
        if plan is CLAIM:
            await fleet.until_waiting(key)


async def _cut_off(receiver: OtlpReceiver, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await asyncio.to_thread(receiver.stop)


async def _kill(
    fleet: TracingFleet,
    receiver: OtlpReceiver,
    chance: random.Random,
    tracers: list[Program],
    stores: tuple[str, ...],
    ends: float,
) -> int:
    """Kill one process after the other, some during their start; each is restarted at once. Returns
    the number of kills.
    """
    kills = 0
    while time.monotonic() < ends:
        await asyncio.sleep(chance.uniform(0.2, 2.0))
        kills += 1
        if chance.random() < _SERVER_SHARE and fleet.server.is_running:
            fleet.kill_server()
            continue
        number = chance.randrange(len(tracers))
        await tracers[number].kill()
        tracers[number] = await fleet.tracer(receiver, store=stores[number], is_awaited=False)
    return kills


async def _soak(minutes: float, runs_of_each: int, seconds: float, seed: int | None) -> int:
    ends, failed, storms = time.monotonic() + minutes * 60, 0, 0
    while time.monotonic() < ends:
        arrangement: Arrangement = get_args(Arrangement)[storms % 3]
        storms += 1
        directory = Path(tempfile.mkdtemp(prefix="sandstream-tracing-"))
        with scripted_company() as model:
            found = await tracing_storm(
                directory / "fleet",
                model.base_url,
                arrangement,
                runs_of_each=runs_of_each,
                seconds=seconds,
                seed=seed,
            )
        print(found.line(), flush=True)
        if found.problems:
            failed += 1
            print(f"  kept: {directory}", *found.problems[:20], sep="\n  ", flush=True)
        else:
            shutil.rmtree(directory)
    print(f"{failed} of {storms} storms with problems")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Random kills of tracing actors.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=12, help="of each kind, per storm")
    parser.add_argument("--seconds", type=float, default=20.0, help="per storm")
    parser.add_argument("--seed", type=int, help="of every storm; without it each has its own")
    options = parser.parse_args()
    return asyncio.run(_soak(options.minutes, options.runs, options.seconds, options.seed))


if __name__ == "__main__":
    sys.exit(main())
