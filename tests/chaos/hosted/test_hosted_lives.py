"""kill -9 of the sandbox actor at every step of a box's life at a vendor: while the vendor's
answers are lost, and before and after each call that makes, pauses, wakes or removes a box. The
engines include one that cannot pause, and some that ignore idempotency keys.

All selected cells run in parallel before the first test checks its own; ``-k`` selects cells.
"""

from __future__ import annotations

import asyncio
import sys

import pytest
from chaos import report
from chaos.evidence import Outcome
from chaos.hosted.cells import HostedCell, hosted_cells
from chaos.hosted.lives import run_lives

LANES = 4

pytestmark = pytest.mark.timeout(1200)  # the first test waits for all cells

ALL = hosted_cells()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    cells = [cell for cell in ALL if f"test_life[{cell.name}]" in selected]
    found = asyncio.run(run_lives(cells, tmp_path_factory.mktemp("lives"), lanes=LANES))
    report.write("hosted lives", found.values())
    sys.stderr.write("\n".join(report.lines({"hosted lives": report.read()["hosted lives"]})))
    return found


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_life(cell: HostedCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []
