"""kill -9 of the sandbox actor at every step of a sandbox at a vendor: the cells of the sandbox
matrix at the local servers of Daytona and E2B. Two replicas share the vendor's account. The
vendor's own journal says that each generation of a sandbox had one box.

All selected cells run in parallel before the first test checks its own; ``-k`` selects cells.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path

import pytest
from chaos import report
from chaos.evidence import Outcome
from chaos.hosted.fleet import HostedFleet
from chaos.sandbox.cells import SandboxCell, sandbox_cells
from chaos.sandbox.matrix import run_sandbox_cells
from chaos.sandbox.work import scripted_smith

VENDORS = ("daytona", "e2b")
LANES = 2
"""Of each vendor. Every lane has a server of its own."""

pytestmark = pytest.mark.timeout(600)  # the first test waits for all cells

ALL = [(vendor, cell) for vendor in VENDORS for cell in sandbox_cells()]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    found: dict[str, Outcome] = {}
    with scripted_smith() as model:

        async def play(vendor: str, directory: Path) -> None:
            cells = [
                it
                for of, it in ALL
                if of == vendor and f"test_cell[{vendor}-{it.name}]" in selected
            ]
            fleet_of = functools.partial(HostedFleet, vendor=vendor)
            played = await run_sandbox_cells(cells, directory, model, LANES, fleet_of)
            for name, outcome in played.items():
                outcome.name = f"{vendor}-{name}"
                found[outcome.name] = outcome

        async def both() -> None:
            await asyncio.gather(*(play(it, tmp_path_factory.mktemp(it)) for it in VENDORS))

        asyncio.run(both())
    report.write("hosted", found.values())
    sys.stderr.write("\n".join(report.lines({"hosted": report.read()["hosted"]})))
    return found


@pytest.mark.parametrize(("vendor", "cell"), ALL, ids=[f"{of}-{it.name}" for of, it in ALL])
def test_cell(vendor: str, cell: SandboxCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[f"{vendor}-{cell.name}"].problems == []
