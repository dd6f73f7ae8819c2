"""kill -9 of the sandbox actor, of a container's first process and of the engine, at every step of
a container's life: the engine is the test's own, so that nothing else may be left on it.

All selected cells run in parallel before the first test checks its own; ``-k`` selects cells.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from chaos import report
from chaos.docker.cells import LifeCell, actor_cells, box_cells
from chaos.docker.fleet import DockerFleet
from chaos.docker.lives import run_lives
from chaos.evidence import Outcome
from chaos.sandbox.work import scripted_smith
from support.engines.own_engine import OwnEngine

AT_ONCE = 12

pytestmark = pytest.mark.timeout(400)  # the first test waits for all cells

ALL = [*actor_cells(), *box_cells()]
_LEFT = "what is left on the engine"


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    cells = [cell for cell in ALL if f"test_life[{cell.name}]" in selected]
    found = asyncio.run(_lives(cells, tmp_path_factory.mktemp("lives")))
    report.write("docker lives", found.values())
    sys.stderr.write("\n".join(report.lines({"docker lives": report.read()["docker lives"]})))
    return found


async def _lives(cells: Sequence[LifeCell], directory: Path) -> dict[str, Outcome]:
    with scripted_smith() as model:
        async with OwnEngine(live_restore=True) as own:
            fleet = DockerFleet(directory / "fleet", model.base_url, engine_url=own.url)
            async with fleet:
                found = await run_lives(cells, fleet, at_once=AT_ONCE)
                left = Outcome(_LEFT, problems=await own.containers())
    return {**found, _LEFT: left}


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_life(cell: LifeCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []


def test_nothing_is_left(outcomes: dict[str, Outcome]) -> None:
    assert outcomes[_LEFT].problems == []
