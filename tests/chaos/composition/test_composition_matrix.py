"""kill -9 at every step of cooperating agents: handoffs, child runs, approvals, conversations.

All selected cells run in parallel before the first test checks its own; ``-k`` selects cells.
"""

from __future__ import annotations

import asyncio
import sys

import pytest
from chaos import report
from chaos.composition.cells import (
    CompositionCell,
    composition_cells,
    composition_server_cells,
)
from chaos.composition.matrix import run_composition_cells
from chaos.composition.scenarios import scripted_company
from chaos.evidence import Outcome

LANES = 4

pytestmark = pytest.mark.timeout(300)  # the first test waits for all cells

ALL = [*composition_cells(), *composition_server_cells()]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    cells = [cell for cell in ALL if f"test_composition_cell[{cell.name}]" in selected]
    directory = tmp_path_factory.mktemp("chaos")
    with scripted_company() as model:
        found = asyncio.run(run_composition_cells(cells, directory, model, LANES))
    report.write("composition", [found[cell.name] for cell in cells if cell.name in found])
    sys.stderr.write("\n".join(report.lines({"composition": report.read()["composition"]})))
    return found


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_composition_cell(cell: CompositionCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []
