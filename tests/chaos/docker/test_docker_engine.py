"""kill -9 of the engine while boxes stand at every step of their lives, with and without
``--live-restore``; and an engine that stops answering. Each has an engine of its own.

One kill per engine: all lives come to their points, the engine dies, all go on, and it restarts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from chaos import report
from chaos.docker.cells import LifeCell, ended_cells, engine_cells
from chaos.docker.fleet import DockerFleet
from chaos.docker.lives import Meeting, run_lives
from chaos.evidence import Outcome
from chaos.sandbox.work import scripted_smith
from support.engines.own_engine import OwnEngine

pytestmark = pytest.mark.timeout(400)  # the first test waits for all cells

KINDS = {"restoring": (True, engine_cells()), "ending": (False, ended_cells())}
"""Whether the engine leaves its containers alone when it restarts, and the cells."""
ALL = [(kind, cell) for kind, (_, cells) in KINDS.items() for cell in cells]
_LEFT = "what is left on the engine"
AT_ONCE = 12


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Outcome]:
    selected = {item.name for item in request.session.items}
    found: dict[tuple[str, str], Outcome] = {}

    async def both() -> None:
        async with OwnEngine(live_restore=True) as own:
            for kind, (live_restore, all_cells) in KINDS.items():
                if own.live_restore != live_restore:
                    own.live_restore = live_restore
                    await own.kill()
                    await own.up()
                cells = [
                    it for it in all_cells if f"test_engine_kill[{kind}-{it.name}]" in selected
                ]
                lives = await _lives(cells, tmp_path_factory.mktemp(kind), own)
                found.update({(kind, name): it for name, it in lives.items()})

    asyncio.run(both())
    report.write("docker engine", found.values())
    sys.stderr.write("\n".join(report.lines({"docker engine": report.read()["docker engine"]})))
    return found


async def _lives(cells: Sequence[LifeCell], directory: Path, own: OwnEngine) -> dict[str, Outcome]:
    with scripted_smith() as model:
        fleet = DockerFleet(directory / "fleet", model.base_url, engine_url=own.url)
        meeting = Meeting(own, len(cells))
        async with fleet, asyncio.TaskGroup() as tasks:
            tasks.create_task(meeting.run())
            found = await run_lives(cells, fleet, at_once=AT_ONCE, meeting=meeting)
            left = Outcome(_LEFT, problems=await own.containers())
    return {**found, _LEFT: left}


@pytest.mark.parametrize(("kind", "cell"), ALL, ids=[f"{kind}-{it.name}" for kind, it in ALL])
def test_engine_kill(kind: str, cell: LifeCell, outcomes: dict[tuple[str, str], Outcome]) -> None:
    assert outcomes[kind, cell.name].problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left(kind: str, outcomes: dict[tuple[str, str], Outcome]) -> None:
    assert outcomes[kind, _LEFT].problems == []
