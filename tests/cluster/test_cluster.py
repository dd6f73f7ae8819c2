"""Two hundred runs on a cluster of three servers, without and with faults of the servers.

No actor is killed, so nothing excuses a repetition except where a server forgot what it had
delivered. The longest stall of each scenario is printed, not asserted.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from chaos import report
from cluster import faults
from cluster.scenario import scenario
from support.servers.nats_cluster import NatsCluster


class Plan(NamedTuple):
    fault: faults.Fault
    begins_after: int = 0
    """So many runs are over then."""
    in_flight: int = 40
    pace_s: float = 0.0
    """How many seconds lie between two runs at least."""


SCENARIOS = {
    "nofault": Plan(faults.nothing, in_flight=200),
    "leaderkilled": Plan(faults.kill_leader, begins_after=50, pace_s=0.05),
    "followerstopped": Plan(faults.stop_follower, begins_after=25, pace_s=0.12),
    "quorumlost": Plan(faults.lose_quorum, begins_after=50, pace_s=0.05),
    "rollingrestart": Plan(faults.restart_each, begins_after=25, pace_s=0.05),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_run_ends_once(nats_cluster: NatsCluster, tmp_path: Path, name: str) -> None:
    plan = SCENARIOS[name]
    outcome = asyncio.run(
        scenario(
            name,
            nats_cluster,
            tmp_path / "fleet",
            plan.fault,
            begins_after=plan.begins_after,
            in_flight=plan.in_flight,
            pace_s=plan.pace_s,
        )
    )
    report.write(f"cluster {name}", [outcome])
    sys.stderr.write(f"\n{outcome.name}\n")
    assert not outcome.problems, "\n".join([outcome.name, *outcome.problems])
