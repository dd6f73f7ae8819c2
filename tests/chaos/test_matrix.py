"""kill -9 at every step: actors, callers, scripts and the server, one cell of the matrix each.

All selected cells run in parallel before the first test checks its own, because each waits five
seconds for a dead actor's lease. ``-k`` selects cells, so one cell can be run alone.
"""

from __future__ import annotations

import asyncio
import sys

import pytest
from chaos import report
from chaos.cells import Cell, deployed_cells, script_cells, server_cells
from chaos.evidence import Outcome
from chaos.matrix import run_cells, scripted_model

LANES = 5

pytestmark = pytest.mark.timeout(420)  # the first test waits for all cells

ALL = [*script_cells(), *deployed_cells(), *server_cells()]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    cells = [cell for cell in ALL if f"test_cell[{cell.name}]" in selected]
    with scripted_model() as model:
        found = asyncio.run(run_cells(cells, tmp_path_factory.mktemp("chaos"), model, LANES))
    report.write("matrix", [found[cell.name] for cell in cells if cell.name in found])
    sys.stderr.write("\n".join(report.lines({"matrix": report.read()["matrix"]})))
    return found


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_cell(cell: Cell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []
