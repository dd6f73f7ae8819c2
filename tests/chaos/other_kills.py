"""The cells that are not a kill of an actor during a plain run: callers, and messages that cannot
be processed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chaos.cells import Cell
from chaos.evidence import Outcome
from chaos.fleet import Fleet, judge_runs
from chaos.scenarios import Scenario
from sandstream_actors.harness.expiry import EXPIRED
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import ModelDeferred, RunDone
from support.idle import is_idle
from support.waiting import eventually

from sandstream.testing import ScriptedModel

_WITHIN_S = 60.0


async def kill_submitter(fleet: Fleet, model: ScriptedModel, cell: Cell) -> Outcome:
    """A caller dies around its submission and submits again: one run, nothing is repeated."""
    outcome = Outcome(cell.name, cell.scenario.name, kills=1)
    key = cell.slug
    await kill_caller(fleet, outcome, cell.point, "submit", key, cell.scenario.input(key))
    late = await fleet.all_done([key], _WITHIN_S)
    outcome.check(not late, f"not done: {late}")
    await judge_runs(outcome, fleet, model, [(key, cell.scenario)])
    return outcome


async def kill_canceller(fleet: Fleet, cell: Cell) -> Outcome:
    """A caller dies around its cancel request and repeats it: the run ends once, as cancelled."""
    outcome = Outcome(cell.name, cell.scenario.name, kills=1, runs=1)
    key = cell.slug
    await _until_waiting(fleet, key, cell.scenario)
    await kill_caller(fleet, outcome, cell.point, "cancel", key)
    late = await fleet.all_done([key], _WITHIN_S)
    outcome.check(not late, f"not done: {late}")
    _check_end(outcome, key, await fleet.events(key), "cancelled", "cancelled")
    return outcome


async def kill_expirer(fleet: Fleet, cell: Cell) -> Outcome:
    """The process that expires a run dies meanwhile; the next one completes it. One end."""
    outcome = Outcome(cell.name, cell.scenario.name, kills=1, runs=1)
    key = cell.slug
    await _until_waiting(fleet, key, cell.scenario)
    await kill_caller(fleet, outcome, cell.point, "expire", key)
    late = await fleet.all_done([key], _WITHIN_S)
    outcome.check(not late, f"not done: {late}")
    _check_end(outcome, key, await fleet.events(key), "failed", EXPIRED)
    await index_without(outcome, fleet, [key])
    return outcome


async def index_without(outcome: Outcome, fleet: Fleet, keys: Sequence[str]) -> None:
    """Ended runs leave the index of open runs, whichever process died."""

    async def is_without() -> bool:
        entries = await fleet.client.bus.open_runs.all()
        return not {str(it.run) for it in entries} & set(keys)

    try:
        await eventually(is_without, within_s=_WITHIN_S, what="an index without ended runs")
    except AssertionError as error:
        outcome.check(False, str(error))


async def kill_parker(fleet: Fleet, cell: Cell) -> Outcome:
    """A harness dies while it parks a message: it is parked once, and its run ends once."""
    outcome = Outcome(cell.name, cell.scenario.name, kills=1)
    while len(fleet.replicas["harness"]) > 1:
        await fleet.replicas["harness"].pop().kill()
    armed = await fleet.replica("harness", crash_at=f"{cell.point}:{cell.count}")
    keys: list[str] = []
    while armed.is_running and len(keys) < 240:
        batch = [f"{cell.slug}-{len(keys) + n}" for n in range(2)]  # two: the replicas take turns
        keys += batch
        if cell.where == "ender":
            await asyncio.gather(*(_until_waiting(fleet, key, cell.scenario) for key in batch))
        for key in batch:
            await _publish_rubbish(fleet, key, cell)

        def settled(batch: list[str] = batch) -> bool:
            return not armed.is_running or all(fleet.is_done(key) for key in batch)

        await fleet.until(settled, _WITHIN_S, "neither killed nor done")
    outcome.check(armed.crashed_ns(), "the crash point was not reached")
    late = await fleet.all_done(keys, _WITHIN_S)
    outcome.check(not late, f"not done: {late}")
    fleet.replicas["harness"].remove(armed)
    await eventually(lambda: _nothing_pending(fleet), within_s=_WITHIN_S, what="all is settled")
    parked = await fleet.client.parked()
    # on a slow machine the timer of such a run comes, too, and finds a log that cannot be read
    bad = [entry for entry in parked if entry.parked.body == "no JSON"]
    outcome.check(len(bad) == len(keys), f"{len(keys)} bad messages, parked: {parked}")
    for key in keys:
        outcome.runs += 1
        events = [await fleet.client.bus.log.last(fleet.client.bus.subjects.done(key))]
        _check_end(outcome, key, [one for one in events if one], "failed", "parked")
    for entry in parked:
        await fleet.client.drop_parked(entry.id)
    return outcome


async def _nothing_pending(fleet: Fleet) -> bool:
    return await is_idle(fleet.client.bus, "harness-main")


async def _publish_rubbish(fleet: Fleet, key: str, cell: Cell) -> None:
    bus = fleet.client.bus
    if cell.where == "parker":
        await bus.connection.publish(bus.subjects.task("clerk"), b"no JSON", msg_id=key)
    else:
        subject = bus.subjects.turn(key, "main")
        await bus.connection.publish(subject, b"no JSON", msg_id=f"{key}:bad")


async def kill_caller(fleet: Fleet, outcome: Outcome, point: str, *arguments: str) -> None:
    """Kill a caller at a point, then let another one do the same."""
    first = await fleet.program("caller", *arguments, crash_at=point)
    code = await first.wait(_WITHIN_S)
    outcome.check(code == -9, f"the crash point was not reached: {code} {first.errors()}")
    second = await fleet.program("caller", *arguments)
    await second.ready()
    code = await second.wait(10)
    outcome.check(code == 0, f"the second caller ended with {code}: {second.errors()}")


async def _until_waiting(fleet: Fleet, key: str, scenario: Scenario) -> None:
    """Start a run and wait until it waits for its timer."""
    await fleet.submit(key, scenario)
    await fleet.until(lambda: bool(fleet.armed_ns(key)), _WITHIN_S, "no timer was armed")
    assert any(isinstance(event.event, ModelDeferred) for event in await fleet.events(key))


def _check_end(
    outcome: Outcome, key: str, events: Sequence[LogEvent], status: str, code: str
) -> None:
    dones = [event.event for event in events if isinstance(event.event, RunDone)]
    outcome.check(len(dones) == 1, f"{key}: {len(dones)} ends")
    for done in dones:
        said = done.error.code if done.error else None
        ok = done.status == status and said == code
        outcome.check(ok, f"{key}: ended as {done.status} ({said}), not {status} ({code})")
