"""kill -9 of an actor, or of the server, at every step of the life of sessions.

All selected cells run in parallel before the first test checks its own; ``-k`` selects cells.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from actors.sessions.desk import obedient
from chaos import report
from chaos.evidence import Outcome
from chaos.sandbox.fleet import END, HARNESS, SANDBOX
from chaos.sessions.cells import SessionCell, session_cells
from chaos.sessions.fleet import SESSIONS, SessionFleet
from chaos.sessions.story import live
from sandstream_bus.wire.sessions import RenameSession

from sandstream.testing import ScriptedModel

LANES = 3
AT_ONCE = 2
MAX_BATCHES = 24

pytestmark = pytest.mark.timeout(1200)  # the first test waits for all cells
ALL = session_cells()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    cells = [cell for cell in ALL if f"test_session_cell[{cell.name}]" in selected]
    directory = tmp_path_factory.mktemp("chaos")
    with ScriptedModel(obedient(), strict=False) as model:
        found = asyncio.run(_run(cells, directory, model.base_url))
    report.write("sessions", [found[cell.name] for cell in cells if cell.name in found])
    sys.stderr.write("\n".join(report.lines({"sessions": report.read()["sessions"]})))
    return found


async def _run(cells: list[SessionCell], directory: Path, model_url: str) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    queue = list(reversed(cells))

    async def lane(place: Path) -> None:
        fleets = 0
        while queue:
            fleets += 1
            async with SessionFleet(place / str(fleets), model_url) as fleet:
                await fleet.replicas_of(**{HARNESS: 1, END: 1, SANDBOX: 1, SESSIONS: 1})
                is_well = True
                while queue and is_well:
                    cell = queue.pop()
                    outcomes[cell.name] = await _guarded(fleet, cell)
                    is_well = not outcomes[cell.name].problems

    await asyncio.gather(*(lane(directory / f"lane{n}") for n in range(LANES)))
    return outcomes


async def _guarded(fleet: SessionFleet, cell: SessionCell) -> Outcome:
    try:
        async with asyncio.timeout(400):
            return await _run_cell(fleet, cell)
    except Exception:
        return Outcome(cell.name, "life", problems=[traceback.format_exc()])


async def _run_cell(fleet: SessionFleet, cell: SessionCell) -> Outcome:
    """Arm one of two replicas, and let sessions live until the point is reached."""
    outcome = Outcome(cell.name, "life", kills=1)
    server_kills = fleet.server_kills
    crash: dict[str, Any] = {"crash_at": f"{cell.point}:{cell.count}"}
    if cell.victim == "server":
        crash["victim"] = fleet.server.pid
    armed = await fleet.replica(cell.where, **crash)

    def is_dead() -> bool:
        if cell.victim == "server":
            return fleet.server_kills > server_kills
        return not armed.is_running

    keys: list[str] = []
    for batch in range(MAX_BATCHES):
        if batch:
            # The server gives requests to the two replicas by turns. In lives that are all alike,
            # the other one could take each fork: one request more shifts the turns.
            await fleet.client.bus.sessions.request(keys[0], RenameSession(title="shifted"))
        keys = [f"{cell.slug}-{batch * AT_ONCE + n}" for n in range(AT_ONCE)]
        await asyncio.gather(*(live(outcome, fleet, key) for key in keys))
        if is_dead():
            break
    outcome.check(is_dead() and armed.crashed_ns(), "the crash point was not reached")
    if armed.is_running:
        await armed.kill()
    fleet.replicas[cell.where].remove(armed)
    await fleet.no_boxes()
    return outcome


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_session_cell(cell: SessionCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []
