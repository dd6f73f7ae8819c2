"""The shortest proof that a box at a vendor survives the death of its actor, and that there is no
second one: a few cells of each kind. ``make hosted-chaos`` runs all of them.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path

import pytest
from chaos import report
from chaos.evidence import Outcome
from chaos.hosted.cells import HostedCell, compact_cells
from chaos.hosted.fleet import HostedFleet
from chaos.hosted.lives import run_lives
from chaos.sandbox.cells import SandboxCell
from chaos.sandbox.matrix import run_sandbox_cells
from chaos.sandbox.work import scripted_smith

pytestmark = pytest.mark.timeout(300)  # the first test waits for all cells

LIVES = compact_cells()
CELLS = [SandboxCell("sandbox.after_create"), SandboxCell("sandbox.after_pause", "kept")]
"""At Daytona: two replicas from the beginning, with runs and sessions of their own."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    found = asyncio.run(_all(tmp_path_factory.mktemp("compact")))
    report.write("hosted compact", found.values())
    sys.stderr.write("\n".join(report.lines({"hosted compact": report.read()["hosted compact"]})))
    return found


async def _all(directory: Path) -> dict[str, Outcome]:
    lives = await run_lives(LIVES, directory, lanes=2)
    fleet_of = functools.partial(HostedFleet, vendor="daytona")
    with scripted_smith() as model:
        cells = await run_sandbox_cells(CELLS, directory, model, 1, fleet_of)
    return {**lives, **cells}


@pytest.mark.parametrize("cell", LIVES, ids=lambda cell: cell.name)
def test_life(cell: HostedCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_cell(cell: SandboxCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []
