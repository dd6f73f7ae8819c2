"""A script that continues the saved state of a run, two runs deep, is killed on the way: on the
run's server, and on one that does not know the run.
"""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path

import pytest
from chaos import report
from chaos.composition.cells import ResumeCell, resume_cells
from chaos.composition.evidence import judge_runs_of, requests_by_run
from chaos.composition.scenarios import DIRECTED, scripted_company
from chaos.evidence import Kills, Outcome
from chaos.script_home import ScriptHome

from sandstream.testing import ScriptedModel

LANES = 3
_WITHIN_S = 60.0

pytestmark = pytest.mark.timeout(240)  # the first test waits for all cells


async def _kill_and_resume(cell: ResumeCell, directory: Path, model: ScriptedModel) -> Outcome:
    outcome = Outcome(cell.name, DIRECTED.label, kills=1)
    home = ScriptHome(directory, model.base_url)
    key = cell.name.replace(".", "_")
    try:
        first = await home.script(key, DIRECTED.text, name="claims_script")
        said = await first.line(_WITHIN_S)
        ok = said == "waits for 1" and await first.wait(_WITHIN_S) == 0
        outcome.check(ok, f"the first start said {said!r}: {first.errors()}")
        if cell.elsewhere:
            await home.move()
        crash_at = f"{cell.point}:{cell.count}"
        second = await home.script(key, DIRECTED.text, name="claims_script", crash_at=crash_at)
        code = await second.wait(_WITHIN_S)
        crashed_ns = second.crashed_ns()
        ok = code == -9 and crashed_ns is not None
        outcome.check(ok, f"{crash_at} was not reached: {code} {second.errors()}")
        third = await home.script(key, DIRECTED.text, name="claims_script")
        said = await third.line(_WITHIN_S)
        ok = said == DIRECTED.output and await third.wait(_WITHIN_S) == 0
        outcome.check(ok, f"the last start said {said!r}: {third.errors()}")
        kills = Kills((crashed_ns or 0,))
        requests = requests_by_run(model)
        await judge_runs_of(outcome, home, requests, key, kills, plan=DIRECTED)
    except Exception:
        outcome.problems.append(traceback.format_exc())
    finally:
        await home.close()
    return outcome


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    cells = [cell for cell in resume_cells() if f"test_resume[{cell.name}]" in selected]
    directory = tmp_path_factory.mktemp("chaos")

    async def run(model: ScriptedModel) -> list[Outcome]:
        free = asyncio.Semaphore(LANES)

        async def one(cell: ResumeCell) -> Outcome:
            async with free:
                return await _kill_and_resume(cell, directory / cell.name, model)

        return await asyncio.gather(*map(one, cells))

    with scripted_company() as model:
        found = asyncio.run(run(model))
    report.write("resumed", found)
    return {outcome.name: outcome for outcome in found}


@pytest.mark.parametrize("cell", resume_cells(), ids=lambda cell: cell.name)
def test_resume(cell: ResumeCell, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[cell.name].problems == []
