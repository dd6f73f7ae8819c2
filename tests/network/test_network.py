"""A network that drops, refuses, swallows and delays, between the server and everybody else."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from chaos import report
from network.scenes import FAULTS, Fault, network_scene


@pytest.mark.timeout(180)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda it: it.__name__)
def test_no_run_sees_what_the_network_does(fault: Fault, tmp_path: Path) -> None:
    outcome = asyncio.run(network_scene(tmp_path / "fleet", fault))
    report.write(f"network {fault.__name__}", [outcome])
    sys.stderr.write("\n" + report.lines({"": report.read()[f"network {fault.__name__}"]})[1])
    assert not outcome.problems, "\n".join([outcome.name, *outcome.problems])
