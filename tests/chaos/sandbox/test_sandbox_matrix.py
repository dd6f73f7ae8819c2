"""kill -9 of the sandbox actor, or of the server, at every step of a sandbox's life.

All selected cells run in parallel before the first test checks its own; ``-k`` selects cells.
"""

from __future__ import annotations

import asyncio
import sys

import pytest
from chaos import report
from chaos.evidence import Outcome
from chaos.sandbox.cells import SandboxCell, sandbox_cells, sandbox_server_cells
from chaos.sandbox.fleet import SandboxFleet
from chaos.sandbox.matrix import run_sandbox_cells
from chaos.sandbox.work import scripted_smith

LANES = 5

pytestmark = pytest.mark.timeout(300)  # the first test waits for all cells

ALL = [*sandbox_cells(), *sandbox_server_cells()]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    cells = [cell for cell in ALL if f"test_sandbox_cell[{cell.name}]" in selected]
    directory = tmp_path_factory.mktemp("chaos")
    with scripted_smith() as model:
        found = asyncio.run(run_sandbox_cells(cells, directory, model, LANES, SandboxFleet))
    report.write("sandboxes", [found[cell.name] for cell in cells if cell.name in found])
    sys.stderr.write("\n".join(report.lines({"sandboxes": report.read()["sandboxes"]})))
    return found


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_sandbox_cell(cell: SandboxCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []
