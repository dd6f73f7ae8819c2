"""One scenario: a fleet on the cluster, a load of runs, one fault, and the judgement."""

from __future__ import annotations

import time
from pathlib import Path

from chaos.evidence import Outcome
from cluster.evidence import judge_load, judge_memory, longest_stalls_s
from cluster.faults import Fault
from cluster.fleet import COUNTS, ClusterFleet
from cluster.load import Load
from cluster.mix import jobs, scripted_mix
from support.servers.nats_cluster import NatsCluster


async def scenario(
    name: str,
    cluster: NatsCluster,
    directory: Path,
    fault: Fault,
    *,
    runs: int = 200,
    begins_after: int = 0,
    in_flight: int = 200,
    pace_s: float = 0.0,
) -> Outcome:
    """Run it; the outcome's name has the figures for people.

    ``begins_after``: so many runs are over when the fault begins.
    """
    outcome = Outcome(name, "cluster")

    async def later(load: Load) -> None:
        await load.until_ended(begins_after)
        await fault(load)

    with scripted_mix(runs) as model:
        async with ClusterFleet(directory, model.base_url, cluster, prefix=name) as fleet:
            await fleet.replicas_of(**COUNTS)
            load = Load(fleet, jobs(name, runs), in_flight=in_flight)
            began = time.monotonic()
            await load.play(later, pace_s=pace_s)
            seconds = time.monotonic() - began
            await judge_load(outcome, load, model)
            await judge_memory(outcome, load)
            stalled_s, endless_s = longest_stalls_s(fleet)
    outcome.name += (
        f": {runs} runs ({outcome.runs} with children) in {seconds:.1f} s, "
        f"{outcome.effects} effects of {outcome.tool_calls} calls "
        f"({outcome.repeated_effects} repeated, {outcome.unknown_outcomes} unknown), "
        f"{outcome.model_requests} model requests for {outcome.model_turns} turns, "
        f"longest stall {stalled_s:.1f} s between events, {endless_s:.1f} s between ends"
    )
    return outcome
