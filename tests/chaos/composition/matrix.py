"""Runs the composition cells in parallel: each lane has its own directory, server and processes."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chaos.composition.cells import CompositionCell
from chaos.composition.evidence import (
    judge_cancelled,
    judge_talk,
    judge_tree,
    requests_by_run,
)
from chaos.composition.fleet import HARNESS, SECOND, WORKER, CompositionFleet
from chaos.composition.scenarios import (
    CHAIN,
    CLAIM,
    DIRECTED,
    GUARDED,
    LONG_TREE,
    TREE,
    WATCHED,
    WIDE,
    Plan,
)
from chaos.evidence import NO_KILLS, Kills, Outcome, seconds_to_continue, time_ns_of
from chaos.other_kills import kill_caller
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import ApprovalDecided, ApprovalRequested
from sandstream_bus.wire.subjects import RunId
from support.waiting import until

from sandstream.testing import ScriptedModel

MAX_BATCHES = 16
DONE_WITHIN_S = 60.0
TALKERS = 3
_PLANS: dict[str, Plan] = {
    "chain": CHAIN,
    "tree": TREE,
    "watched": WATCHED,
    "guarded": GUARDED,
    "claim": CLAIM,
    "directed": DIRECTED,
    "cancel": LONG_TREE,
}


async def run_composition_cells(
    cells: Sequence[CompositionCell], directory: Path, model: ScriptedModel, lanes: int
) -> dict[str, Outcome]:
    """Run all cells, ``lanes`` at a time; a failure affects only its own cell."""
    outcomes: dict[str, Outcome] = {}
    queue = list(reversed(cells))
    await asyncio.gather(
        *(_lane(queue, directory / f"lane{n}", model, outcomes) for n in range(lanes))
    )
    return outcomes


async def _lane(
    queue: list[CompositionCell],
    directory: Path,
    model: ScriptedModel,
    outcomes: dict[str, Outcome],
) -> None:
    """Run cells from the queue; keep a fleet until something fails in it."""
    fleets = 0
    while queue:
        fleets += 1
        async with CompositionFleet(directory / str(fleets), model.base_url) as fleet:
            await fleet.replicas_of(**{HARNESS: 1, SECOND: 1, WORKER: 1})
            while queue:
                cell = queue.pop()
                outcome = outcomes[cell.name] = await _guarded(fleet, model, cell)
                if outcome.problems:
                    break  # whatever is left behind there must not spoil the next cell


async def _guarded(fleet: CompositionFleet, model: ScriptedModel, cell: CompositionCell) -> Outcome:
    try:
        async with asyncio.timeout(120):
            if cell.where == "approver":
                return await _kill_approver(fleet, model, cell)
            return await _run_cell(fleet, model, cell)
    except Exception:
        return Outcome(cell.name, cell.flow, problems=[traceback.format_exc()])


async def _run_cell(
    fleet: CompositionFleet, model: ScriptedModel, cell: CompositionCell
) -> Outcome:
    """Arm one of two replicas, and give work to both until the point is reached."""
    outcome = Outcome(cell.name, cell.flow, kills=1)
    for kind, replicas in fleet.replicas.items():
        wanted = 1 if kind == cell.where or kind == SECOND else 2
        while len(replicas) > wanted:
            await replicas.pop().kill()
        while len(fleet.replicas[kind]) < wanted:
            await fleet.replica(kind)
    server_kills = fleet.server_kills
    crash: dict[str, Any] = {"crash_at": f"{cell.point}:{cell.count}"}
    if cell.victim == "server":
        crash["victim"] = fleet.server.pid
    armed = await fleet.replica(cell.where, **crash)

    def is_dead() -> bool:
        if cell.victim == "server":
            return fleet.server_kills > server_kills
        return not armed.is_running

    batches = await _batches(fleet, cell, is_dead)
    crashed_ns = armed.crashed_ns()
    outcome.check(is_dead() and crashed_ns, "the crash point was not reached")
    await _judge(outcome, fleet, model, cell, batches, Kills((crashed_ns or 0,)))
    if armed.is_running:
        await armed.kill()
    fleet.replicas[cell.where].remove(armed)
    if crashed_ns:
        runs = [run for key in batches[-1] for run in await fleet.tree(key)]
        outcome.continued_s += await waits_of(fleet, runs, crashed_ns)
    return outcome


async def _kill_approver(
    fleet: CompositionFleet, model: ScriptedModel, cell: CompositionCell
) -> Outcome:
    """A person's program dies around its decision and decides again: only one decision counts."""
    outcome = Outcome(cell.name, cell.flow, kills=1)
    key = cell.slug
    await fleet.begin(_PLANS[cell.flow], key)
    await fleet.until_waiting(key)
    await kill_caller(fleet, outcome, cell.point, "approve", key)
    await _judge(outcome, fleet, model, cell, [[key]], NO_KILLS)
    for run in await fleet.tree(key):
        events = [it.event for it in await fleet.events(run)]
        said = [it.by for it in events if isinstance(it, ApprovalDecided)]
        asks = any(isinstance(it, ApprovalRequested) for it in events)
        wanted = ["caller"] if asks or run == key else []
        outcome.check(said == wanted, f"{run}: decided by {said}")
    return outcome


async def _batches(
    fleet: CompositionFleet, cell: CompositionCell, is_dead: Callable[[], bool]
) -> list[list[str]]:
    """Start a few runs at a time until the crash point was reached and all are done."""
    batches: list[list[str]] = []
    while len(batches) < MAX_BATCHES and not is_dead():
        name = f"{cell.slug}-{len(batches)}"
        count = TALKERS if cell.flow == "talk" else 1 if cell.flow == "cancel" else 2
        keys = [f"{name}-{n}" for n in range(count)]
        batches.append(keys)
        async with asyncio.timeout(DONE_WITHIN_S):
            await asyncio.gather(*(_work(fleet, cell, name, key) for key in keys))
    return batches


async def _work(fleet: CompositionFleet, cell: CompositionCell, batch: str, key: str) -> None:
    """One run up to its end, including approvals."""
    if cell.flow == "talk":
        await fleet.talk(batch, key)
    else:
        await fleet.begin(_PLANS[cell.flow], key)
    if cell.flow in ("claim", "directed"):
        await fleet.approve_all(key)
        await fleet.approve_all(key)  # a second person says the same: nothing more comes of it
    elif cell.flow == "cancel":
        began = lambda: len(fleet.effects(key)) == WIDE  # noqa: E731
        await until(began, within_s=DONE_WITHIN_S, what="all children are at work")
        await fleet.client.cancel(key, reason="asked for")
        for run in await fleet.tree(key):
            await fleet.client.wait(run)
    await fleet.client.wait(key)


async def _judge(
    outcome: Outcome,
    fleet: CompositionFleet,
    model: ScriptedModel,
    cell: CompositionCell,
    batches: list[list[str]],
    kills: Kills,
) -> None:
    """Wait for the ends, then judge everything."""
    late = await fleet.all_done([key for batch in batches for key in batch], DONE_WITHIN_S)
    outcome.check(not late, f"not done within {DONE_WITHIN_S} s: {late}")
    requests = requests_by_run(model)
    for number, keys in enumerate(batches):
        if cell.flow == "talk":
            session = f"{cell.slug}-{number}"
            await judge_talk(outcome, fleet, requests, session, keys, kills)
            continue
        for key in keys:
            if cell.flow == "cancel":
                await judge_cancelled(outcome, fleet, key, children=WIDE)
            else:
                plan = _PLANS[cell.flow]
                await judge_tree(outcome, fleet, requests, key, kills, plan=plan)


async def waits_of(fleet: CompositionFleet, runs: Sequence[str], killed_ns: int) -> list[float]:
    """The longest time from the kill to the next event of a run that was not waiting for a child
    run, an approval, or its turn in a conversation.
    """
    found: list[float] = []
    for run in runs:
        events = await fleet.events(run)
        state = RunState.of(RunId(run), [it for it in events if time_ns_of(it) <= killed_ns])
        if state.started is None or state.open_children() or state.waiting or state.requested:
            continue
        if state.options.session is not None and state.history is None:
            continue
        waited = seconds_to_continue(events, killed_ns)
        found += [] if waited is None else [waited]
    return [max(found)] if found else []
