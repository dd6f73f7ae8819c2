"""kill -9 of tracing actors, at every crash point and at random under load: afterwards the stores
and the endpoint have what the log gives; nothing is missing, and no store has anything twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest
from chaos.composition.fleet import HARNESS, SECOND, WORKER
from chaos.composition.scenarios import CHAIN, CLAIM, TREE, scripted_company
from chaos.tracing.cells import TracingCell, tracing_cells
from chaos.tracing.evidence import Judgement
from chaos.tracing.fleet import TracingFleet, keyed
from chaos.tracing.storm import tracing_storm
from support.tracing.otlp_receiver import OtlpReceiver

pytestmark = pytest.mark.timeout(180)

ALL = tracing_cells()


@pytest.fixture(scope="module")
def judgements(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """All cells in parallel on one log, in which some runs wait for approvals."""
    with scripted_company() as model:
        directory = tmp_path_factory.mktemp("chaos") / "fleet"
        return asyncio.run(_all_cells(directory, model.base_url))


async def _all_cells(directory: Path, model_url: str) -> dict[str, Judgement]:
    with contextlib.ExitStack() as stack:
        receivers = {cell.name: stack.enter_context(OtlpReceiver()) for cell in ALL}
        async with TracingFleet(directory, model_url) as fleet:
            await fleet.replicas_of(**{HARNESS: 1, SECOND: 1, WORKER: 1})
            ended = keyed(2, CHAIN, TREE)
            waiting = keyed(3, CLAIM)
            await fleet.load([*ended, *waiting])
            await fleet.finish(ended)
            for key, _ in waiting:
                await fleet.until_waiting(key)
            died = await asyncio.gather(*(_die(fleet, it, receivers[it.name]) for it in ALL))
            await fleet.finish(waiting)
            await asyncio.gather(*(fleet.settled(it.group, group=it.group) for it in ALL))
            found: dict[str, Judgement] = {}
            for cell, has_died in zip(ALL, died, strict=True):
                judgement = await fleet.judge(cell.group, receiver=receivers[cell.name])
                judgement.check(has_died, "the crash point was not reached")
                found[cell.name] = judgement
            return found


async def _die(fleet: TracingFleet, cell: TracingCell, receiver: OtlpReceiver) -> bool:
    """A replica dies at the crash point and is replaced."""
    group = cell.group
    crash_at = f"{cell.point}:{cell.count}"
    armed = await fleet.tracer(receiver, group=group, store=group, crash_at=crash_at)
    with contextlib.suppress(TimeoutError):
        await armed.wait(20)
    await armed.kill()
    await fleet.tracer(receiver, group=group, store=group)
    return armed.crashed_ns() is not None


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
def test_tracing_cell(cell: TracingCell, judgements: dict[str, Judgement]) -> None:
    judgement = judgements[cell.name]
    assert judgement.problems == []
    assert judgement.runs > 10
    if cell.point == "tracing.after_export":
        assert judgement.twice > 0, "what was sent and not noted is sent again"


def test_killed_at_random_under_load(tmp_path: Path) -> None:
    """Two actors with their own stores, and the server; the endpoint is down half of the time."""
    with scripted_company() as model:
        judgement = asyncio.run(
            tracing_storm(
                tmp_path / "fleet", model.base_url, "apart", runs_of_each=3, seconds=4, seed=5
            )
        )
    sys.stderr.write(judgement.line() + "\n")
    assert judgement.problems == []
