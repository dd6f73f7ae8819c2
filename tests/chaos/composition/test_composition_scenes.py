"""Fan-out of fifty, decisions around kills, a hundred waiting runs without a process, ten runs on
one conversation. All selected scenes run in parallel before the first test checks its own.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from pathlib import Path

import pytest
from chaos import report
from chaos.composition.scenarios import scripted_company
from chaos.composition.scenes import SCENES, play
from chaos.evidence import Outcome

from sandstream.testing import ScriptedModel

pytestmark = pytest.mark.timeout(240)


async def _guarded(name: str, directory: Path, model: ScriptedModel) -> Outcome:
    try:
        async with asyncio.timeout(200):
            return await play(name, directory / name, model)
    except Exception:
        return Outcome(name, problems=[traceback.format_exc()])


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    selected = {item.name for item in request.session.items}
    names = [name for name in SCENES if f"test_scene[{name}]" in selected]
    directory = tmp_path_factory.mktemp("chaos")

    async def run(model: ScriptedModel) -> list[Outcome]:
        return await asyncio.gather(*(_guarded(name, directory, model) for name in names))

    with scripted_company() as model:
        found = asyncio.run(run(model))
    report.write("scenes", found)
    sys.stderr.write("\n".join(report.lines({"scenes": report.read()["scenes"]})))
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[name].problems == []
