"""Runs the sandbox cells in parallel: each lane has its own directory, server and processes."""

from __future__ import annotations

import asyncio
import dataclasses
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from chaos.evidence import Outcome, seconds_to_continue
from chaos.processes import Program
from chaos.sandbox.cells import SandboxCell
from chaos.sandbox.fleet import END, HARNESS, SANDBOX, TURN, SandboxFleet
from chaos.sandbox.memory import memory_session
from chaos.sandbox.work import BRIEF, QUICK, Command, judge_work

from sandstream.sandbox import File, Manifest
from sandstream.testing import ScriptedModel

AT_ONCE = 2
MAX_BATCHES = 16
DONE_WITHIN_S = 60.0

FleetOf = Callable[[Path, str], SandboxFleet]
"""A fleet in a directory, for the model at a URL."""


async def run_sandbox_cells(
    cells: Sequence[SandboxCell],
    directory: Path,
    model: ScriptedModel,
    lanes: int,
    fleet_of: FleetOf,
) -> dict[str, Outcome]:
    """Run all cells, ``lanes`` at a time; a failure affects only its own cell."""
    outcomes: dict[str, Outcome] = {}
    queue = list(reversed(cells))
    places = [directory / f"lane{n}" for n in range(lanes)]
    await asyncio.gather(*(_lane(queue, it, model, outcomes, fleet_of) for it in places))
    return outcomes


async def _lane(
    queue: list[SandboxCell],
    directory: Path,
    model: ScriptedModel,
    outcomes: dict[str, Outcome],
    fleet_of: FleetOf,
) -> None:
    """Run cells from the queue; keep a fleet until something fails in it."""
    fleets = 0
    while queue:
        fleets += 1
        async with fleet_of(directory / str(fleets), model.base_url) as fleet:
            await fleet.replicas_of(**{HARNESS: 1, END: 1, TURN: 1, SANDBOX: 1})
            done: list[Outcome] = []
            while queue and not (done and done[-1].problems):
                cell = queue.pop()
                outcomes[cell.name] = await _guarded(fleet, model, cell)
                done.append(outcomes[cell.name])
            if done and not done[-1].problems:
                await _check_left(done[-1], fleet)


async def _check_left(outcome: Outcome, fleet: SandboxFleet) -> None:
    """The last cell of a fleet answers for what all of them left."""
    try:
        await fleet.no_boxes()
    except AssertionError as error:
        outcome.problems.append(str(error))


async def _guarded(fleet: SandboxFleet, model: ScriptedModel, cell: SandboxCell) -> Outcome:
    try:
        async with asyncio.timeout(120):
            return await run_cell(fleet, model, cell)
    except Exception:
        return Outcome(cell.name, cell.flow, problems=[traceback.format_exc()])


async def run_cell(fleet: SandboxFleet, model: ScriptedModel, cell: SandboxCell) -> Outcome:
    """Arm one of two replicas, and give work to both until the point is reached."""
    outcome = Outcome(cell.name, cell.flow, kills=1)
    while len(fleet.replicas[SANDBOX]) > 1:  # left over from the cell before
        await fleet.replicas[SANDBOX].pop().kill()
    server_kills = fleet.server_kills
    crash: dict[str, Any] = {"crash_at": f"{cell.point}:{cell.count}"}
    if cell.victim == "server":
        crash["victim"] = fleet.server.pid
    if cell.victim == "harness":
        crash["crash_at"] += ":stop"
    armed = await fleet.replica(SANDBOX, **crash)
    harm = asyncio.ensure_future(_kill_harness(fleet, armed))

    def is_dead() -> bool:
        if cell.victim == "server":
            return fleet.server_kills > server_kills
        if cell.victim == "harness":
            return harm.done()
        return not armed.is_running

    do_batch = _runs if cell.flow in ("run", "turn") else _sessions
    for batch in range(MAX_BATCHES):
        keys = [f"{cell.slug}-{batch * AT_ONCE + n}" for n in range(AT_ONCE)]
        await do_batch(outcome, fleet, model, cell, keys)
        if is_dead():
            break
    if not harm.done():
        harm.cancel()
    else:
        harm.result()
    crashed_ns = armed.crashed_ns()
    outcome.check(is_dead() and crashed_ns, "the crash point was not reached")
    if armed.is_running:
        await armed.kill()
    fleet.replicas[SANDBOX].remove(armed)
    if crashed_ns and cell.flow in ("run", "turn"):
        waits = [seconds_to_continue(await fleet.events(key), crashed_ns) for key in keys]
        found = [wait for wait in waits if wait is not None]
        outcome.continued_s.extend([max(found)] if found else [])
    outcome.problems.extend(await fleet.provider_problems())
    return outcome


async def _kill_harness(fleet: SandboxFleet, armed: Program) -> None:
    """As soon as the armed replica stands still; then let it go on. Another harness takes over."""
    await armed.suspended(DONE_WITHIN_S)
    for harness in [it for it in fleet.replicas[HARNESS] if it.is_running]:
        await harness.kill()
    armed.resume()
    await fleet.replica(HARNESS)


async def _runs(
    outcome: Outcome,
    fleet: SandboxFleet,
    model: ScriptedModel,
    cell: SandboxCell,
    keys: Sequence[str],
) -> None:
    agent = TURN if cell.flow == "turn" else END
    for key in keys:
        await fleet.order(key, BRIEF.order(key), agent=agent)
    late = await fleet.all_done(list(keys), DONE_WITHIN_S)
    outcome.check(not late, f"not done within {DONE_WITHIN_S} s: {late}")
    for key in keys:
        await judge_work(outcome, fleet, model, key, BRIEF, agent)


async def _sessions(
    outcome: Outcome,
    fleet: SandboxFleet,
    model: ScriptedModel,
    cell: SandboxCell,
    keys: Sequence[str],
) -> None:
    async with asyncio.timeout(DONE_WITHIN_S):
        story = _STORIES[cell.flow]
        await asyncio.gather(*(story(outcome, fleet, key) for key in keys))


async def _session(
    outcome: Outcome, fleet: SandboxFleet, key: str, *, keeps_box: bool = False
) -> None:
    """Work in a sandbox, stop it, resume it, continue: every step happens exactly once."""
    outcome.runs += 1
    session = fleet.session(Manifest(entries={"given/greeting.txt": File(content=b"hello\n")}))
    session.settings = dataclasses.replace(session.settings, keep_paused=keeps_box)
    await session.start()
    await _work(outcome, key, session.exec, (1, 2))
    await session.shutdown()
    await session.start()
    await _work(outcome, key, session.exec, (3,))
    await session.shutdown()
    record = await fleet.record_of(session.bus_name)
    counter = await fleet.saved(record, "counter")
    outcome.effects += counter.count("\n")
    outcome.check(counter == "1\n2\n3\n", f"{key}: the commands that ran: {counter.split()}")
    expected = 1 if keeps_box else 2
    outcome.check(record.generation == expected, f"{key}: {record.generation} generations")
    outcome.check(record.is_kept is keeps_box, f"{key}: its box is not as it should be")
    await session.delete()
    deleted = await fleet.record_of(session.bus_name)
    outcome.check(deleted.state == "deleted", f"{key}: its sandbox is {deleted.state}")


async def _kept_session(outcome: Outcome, fleet: SandboxFleet, key: str) -> None:
    """The same, in one box that is paused meanwhile."""
    await _session(outcome, fleet, key, keeps_box=True)


_STORIES = {"session": _session, "kept": _kept_session, "memory": memory_session}


async def _work(
    outcome: Outcome,
    key: str,
    exec: Callable[..., Awaitable[object]],
    numbers: Sequence[int],
) -> None:
    for number in numbers:
        outcome.tool_calls += 1
        done = await exec(QUICK.line(number))
        said = getattr(done, "stdout", b"").decode().splitlines()
        ok = said[-1:] == [Command.says(number)]
        outcome.check(ok, f"{key}: command {number} said {said}")
