"""kill -9 of the sandbox actor and of the harness at every step of a sandbox in a container: the
cells of the sandbox matrix on a real engine, which all share. A few have boxes without Python.

All selected cells run in parallel before the first test checks its own; ``-k`` selects cells.
"""

from __future__ import annotations

import asyncio
import functools
import sys

import pytest
from chaos import report
from chaos.docker.fleet import DockerFleet
from chaos.evidence import Outcome
from chaos.sandbox.cells import SandboxCell, sandbox_cells, sandbox_harness_cells
from chaos.sandbox.matrix import run_sandbox_cells
from chaos.sandbox.work import scripted_smith
from support.engines import engine

LANES = 5
SHELL_LANES = 2

pytestmark = pytest.mark.timeout(400)  # the first test waits for the engine and all cells

AGENT = [*sandbox_cells(), *sandbox_harness_cells()]
_OF_SHELLS = ("after_intent", "after_create", "after_operation", "before_result", "before_delete")
SHELL = [SandboxCell(f"sandbox.{it}") for it in _OF_SHELLS]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Outcome]:
    selected = {item.name for item in request.session.items}
    url = engine.ensure()
    found: dict[tuple[str, str], Outcome] = {}
    with scripted_smith() as model:

        async def play(kind: str, cells: list[SandboxCell], image: str, lanes: int) -> None:
            mine = [it for it in cells if f"test_{kind}_cell[{it.name}]" in selected]
            fleet_of = functools.partial(DockerFleet, engine_url=url, image=image)
            directory = tmp_path_factory.mktemp(kind)
            played = await run_sandbox_cells(mine, directory, model, lanes, fleet_of)
            found.update({(kind, name): it for name, it in played.items()})

        async def both() -> None:
            await asyncio.gather(
                play("agent", AGENT, engine.PYTHON, LANES),
                play("shell", SHELL, engine.BUSYBOX, SHELL_LANES),
            )

        asyncio.run(both())
    report.write("docker", found.values())
    sys.stderr.write("\n".join(report.lines({"docker": report.read()["docker"]})))
    return found


@pytest.mark.parametrize("cell", AGENT, ids=lambda cell: cell.name)
def test_agent_cell(cell: SandboxCell, outcomes: dict[tuple[str, str], Outcome]) -> None:
    assert outcomes["agent", cell.name].problems == []


@pytest.mark.parametrize("cell", SHELL, ids=lambda cell: cell.name)
def test_shell_cell(cell: SandboxCell, outcomes: dict[tuple[str, str], Outcome]) -> None:
    assert outcomes["shell", cell.name].problems == []
