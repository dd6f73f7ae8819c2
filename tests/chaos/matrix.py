"""Runs cells of the matrix in parallel: each lane has its own directory, server and processes."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from chaos.cells import Cell
from chaos.evidence import Kills, Outcome, RunEvidence, judge, requests_of, seconds_to_continue
from chaos.fleet import Fleet, judge_runs
from chaos.other_kills import (
    index_without,
    kill_canceller,
    kill_expirer,
    kill_parker,
    kill_submitter,
)
from chaos.scenarios import ALL, TOTAL
from chaos.script_home import ScriptHome

from sandstream.testing import ScriptedModel

RUNS_AT_ONCE = 3
MAX_BATCHES = 24
DONE_WITHIN_S = 60.0

RunCell = Callable[[Cell], Awaitable[Outcome]]


def scripted_model() -> ScriptedModel:
    return ScriptedModel(conversations=[one.conversation() for one in ALL], strict=False)


async def run_cells(
    cells: Sequence[Cell], directory: Path, model: ScriptedModel, lanes: int
) -> dict[str, Outcome]:
    """Run all cells, ``lanes`` at a time; a failure affects only its own cell."""
    outcomes: dict[str, Outcome] = {}
    queue = list(reversed(cells))
    await asyncio.gather(
        *(_lane(queue, directory / f"lane{n}", model, outcomes) for n in range(lanes))
    )
    return outcomes


async def _lane(
    queue: list[Cell], directory: Path, model: ScriptedModel, outcomes: dict[str, Outcome]
) -> None:
    """Run cells from the queue; keep a set-up while the next cell can use it."""
    setups = 0
    while queue:
        kind = queue[-1].where == "script"
        setups += 1
        try:
            async with _setup(kind, directory / str(setups), model) as run_cell:
                while queue and (queue[-1].where == "script") == kind:
                    cell = queue.pop()
                    outcome = outcomes[cell.name] = await _guarded(run_cell, cell)
                    if outcome.problems:
                        break  # whatever is left behind there must not spoil the next cell
        except Exception:
            if queue:
                cell = queue.pop()
                outcomes[cell.name] = Outcome(cell.name, problems=[traceback.format_exc()])


async def _guarded(run_cell: RunCell, cell: Cell) -> Outcome:
    try:
        async with asyncio.timeout(150):
            return await run_cell(cell)
    except Exception:
        return Outcome(cell.name, cell.scenario.name, problems=[traceback.format_exc()])


def _setup(
    is_script: bool, directory: Path, model: ScriptedModel
) -> AbstractAsyncContextManager[RunCell]:
    return ScriptCells(directory, model) if is_script else DeployedCells(directory, model)


class DeployedCells:
    """A fleet with two replicas of each actor, one of which is replaced by an armed one."""

    def __init__(self, directory: Path, model: ScriptedModel) -> None:
        self._fleet = Fleet(directory, model.base_url)
        self._model = model

    async def __aenter__(self) -> RunCell:
        await self._fleet.__aenter__()
        try:
            await self._fleet.replicas_of(harness=1, worker=1)
        except BaseException:
            await self._fleet.__aexit__(None, None, None)
            raise
        return self.run

    async def __aexit__(self, *exc: object) -> None:
        await self._fleet.__aexit__(None, None, None)

    async def run(self, cell: Cell) -> Outcome:
        match cell.where:
            case "submitter":
                return await kill_submitter(self._fleet, self._model, cell)
            case "canceller":
                return await kill_canceller(self._fleet, cell)
            case "expirer":
                return await kill_expirer(self._fleet, cell)
            case "parker" | "ender":
                return await kill_parker(self._fleet, cell)
            case _:
                return await self._kill_actor(cell)

    async def _kill_actor(self, cell: Cell) -> Outcome:
        fleet = self._fleet
        outcome = Outcome(cell.name, cell.scenario.name, kills=1)
        other = "worker" if cell.where == "harness" else "harness"
        while len(fleet.replicas[cell.where]) > 1:  # left over from the cell before
            await fleet.replicas[cell.where].pop().kill()
        if len(fleet.replicas[other]) < 2:
            await fleet.replica(other)
        server_kills = fleet.server_kills
        crash: dict[str, object] = {"crash_at": f"{cell.point}:{cell.count}"}
        if cell.victim == "server":
            crash["victim"] = fleet.server.pid
        armed = await fleet.replica(cell.where, **crash)

        def is_dead() -> bool:
            if cell.victim == "server":
                return fleet.server_kills > server_kills
            return not armed.is_running

        keys = await self._submit_until(is_dead, cell)
        crashed_ns = armed.crashed_ns()
        outcome.check(is_dead() and crashed_ns, "the crash point was not reached")
        late = await fleet.all_done(keys, DONE_WITHIN_S)
        outcome.check(not late, f"not done within {DONE_WITHIN_S} s: {late}")
        if armed.is_running:
            await armed.kill()
        fleet.replicas[cell.where].remove(armed)
        await index_without(outcome, fleet, keys)
        kills = Kills((crashed_ns,) if crashed_ns else ())
        runs = [(key, cell.scenario) for key in keys]
        await judge_runs(outcome, fleet, self._model, runs, kills)
        if crashed_ns:
            await _time_runs(outcome, fleet, keys, crashed_ns)
        return outcome

    async def _submit_until(self, is_dead: Callable[[], bool], cell: Cell) -> list[str]:
        """Submit a few runs at a time until the crash point is reached."""
        fleet = self._fleet
        keys: list[str] = []
        for _ in range(MAX_BATCHES):
            batch = [f"{cell.slug}-{len(keys) + n}" for n in range(RUNS_AT_ONCE)]
            keys += batch
            for key in batch:
                await fleet.submit(key, cell.scenario)

            def settled(batch: list[str] = batch) -> bool:
                return is_dead() or all(fleet.is_done(key) for key in batch)

            await fleet.until(settled, DONE_WITHIN_S, "neither killed nor done")
            if is_dead():
                break
        return keys


async def _time_runs(outcome: Outcome, fleet: Fleet, keys: Iterable[str], killed_ns: int) -> None:
    """Record the longest wait: that of a run which the dead actor held."""
    waits = [
        seconds_to_continue(await fleet.events(key), killed_ns, fleet.armed_ns(key)) for key in keys
    ]
    found = [wait for wait in waits if wait is not None]
    outcome.continued_s.extend([max(found)] if found else [])


class ScriptCells:
    """A directory where a script runs without set-up, is killed, and is started again."""

    def __init__(self, directory: Path, model: ScriptedModel) -> None:
        self._home = ScriptHome(directory, model.base_url)
        self._model = model

    async def __aenter__(self) -> RunCell:
        return self.run

    async def __aexit__(self, *exc: object) -> None:
        await self._home.close()

    async def run(self, cell: Cell) -> Outcome:
        outcome = Outcome(cell.name, cell.scenario.name, kills=1 + len(cell.earlier))
        key = cell.slug
        text = cell.scenario.input(key)
        killed_ns: list[int] = []
        for crash_at in (*cell.earlier, f"{cell.point}:{cell.count}"):
            script = await self._home.script(key, text, crash_at=crash_at)
            code = await script.wait(DONE_WITHIN_S)
            at = script.crashed_ns()
            ok = code == -9 and at is not None
            outcome.check(ok, f"{crash_at} was not reached: {code} {script.errors()}")
            killed_ns.append(at or 0)
        last = await self._home.script(key, text)
        said = await last.line(DONE_WITHIN_S)
        code = await last.wait(10)
        ok = code == 0 and json.loads(said or "null") == {"total": TOTAL}
        outcome.check(ok, f"the last start said {said!r} ({code}): {last.errors()}")
        events = await self._home.events(key)
        requests = requests_of(self._model.journal, key)
        effects = self._home.effects(key)
        evidence = RunEvidence(key, cell.scenario, events, effects, requests)
        judge(outcome, evidence, Kills(tuple(killed_ns)))
        waited = seconds_to_continue(events, killed_ns[-1])
        outcome.continued_s.extend([waited] if waited is not None else [])
        return outcome
