"""Whole scenes of cooperating agents while everything around them is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from chaos.composition.evidence import judge_talk, judge_tree, requests_by_run
from chaos.composition.fleet import HARNESS, SECOND, WORKER, CompositionFleet
from chaos.composition.matrix import waits_of
from chaos.composition.scenarios import CLAIM, DIRECTED, FAN, TALKS, Plan
from chaos.evidence import Kills, Outcome
from sandstream_bus.wire.messages import ApprovalDecided, RunDone
from support.waiting import eventually, until

from sandstream.testing import ScriptedModel

DONE_WITHIN_S = 90.0
PARKED = 100


async def fan_out(outcome: Outcome, fleet: CompositionFleet, model: ScriptedModel) -> None:
    """Fifty agents at once over two replicas; one harness, one worker and the server die during the
    run.
    """
    await fleet.replicas_of(**{HARNESS: 2, WORKER: 2})
    key = "fan"
    await fleet.begin(FAN, key)
    killed: list[int] = []
    for effects, kill in ((8, HARNESS), (30, WORKER), (55, "server")):
        reached = _at_least(fleet, [key], effects)
        await until(reached, within_s=DONE_WITHIN_S, what=f"{effects} effects")
        killed.append(await _kill_one(fleet, kill))
    await _judge_done(outcome, fleet, model, [(key, FAN)], killed)


def _at_least(fleet: CompositionFleet, keys: Sequence[str], effects: int) -> Callable[[], bool]:
    return lambda: sum(len(fleet.effects(key)) for key in keys) >= effects


async def decisions(outcome: Outcome, fleet: CompositionFleet, model: ScriptedModel) -> None:
    """Decisions are made right before everything dies, while nothing runs, and after the restart;
    at the run or above it; once, twice, and in contradiction; or not at all, so that they expire
    while nothing runs.
    """
    await fleet.replicas_of(**{HARNESS: 2, WORKER: 2})
    plans = {
        "before": CLAIM,
        "before-nested": DIRECTED,
        "meanwhile": CLAIM,
        "meanwhile-nested": DIRECTED,
        "twice": CLAIM,
        "after": CLAIM,
        "after-nested": DIRECTED,
    }
    for key, plan in plans.items():
        await fleet.begin(plan, key)
    await fleet.begin_with_expiry(CLAIM, "late", seconds=3.0)
    for key in (*plans, "late"):
        await fleet.until_waiting(key)
    await fleet.decide("after", "t1-1", child="no.run", by="a bad client")  # for nobody: ignored
    await asyncio.gather(fleet.approve_all("before"), fleet.approve_all("before-nested"))
    killed = [time.time_ns()]
    await fleet.kill_all()
    for key in ("meanwhile", "meanwhile-nested", "twice", "twice"):
        await fleet.approve_all(key)
    waiting = await fleet.until_waiting("twice")
    await fleet.decide("twice", waiting.approvals[0].call, approve=False, by="somebody else")
    await _restart_server(fleet)
    await fleet.replicas_of(**{HARNESS: 2, WORKER: 1})
    for key in ("after", "after-nested"):
        await fleet.client.approve(key, by="python")
    await _judge_done(outcome, fleet, model, list(plans.items()), killed)
    events = [it.event for it in await fleet.events("twice")]
    said = [it.approve for it in events if isinstance(it, ApprovalDecided)]
    outcome.check(said == [True, True, False], f"twice: the log has the decisions {said}")
    await _judge_expired(outcome, fleet, "late")


async def _judge_expired(outcome: Outcome, fleet: CompositionFleet, key: str) -> None:
    """An approval that expired is a rejection, once, and the model was told."""
    late = await fleet.all_done([key], DONE_WITHIN_S)
    outcome.check(not late, f"{key}: not done")
    outcome.runs += 1
    events = [it.event for it in await fleet.events(key)]
    said = [(it.approve, it.by) for it in events if isinstance(it, ApprovalDecided)]
    outcome.check(said == [(False, "timer")], f"{key}: decided: {said}")
    status = [it.status for it in events if isinstance(it, RunDone)]
    outcome.check(status == ["completed"], f"{key}: ended as {status}")
    tools = [effect.tool for effect in fleet.effects(key)]
    outcome.check(tools == ["note"], f"{key}: these tools ran: {tools}")


async def all_restarted(outcome: Outcome, fleet: CompositionFleet, model: ScriptedModel) -> None:
    """A hundred runs wait for approvals. Every process is stopped, then the server; all are started
    again, the approvals are given, and every run continues.
    """
    await fleet.replicas_of(**{HARNESS: 1, WORKER: 1})
    keys = [f"parked-{n}" for n in range(PARKED)]
    await asyncio.gather(*(fleet.begin(CLAIM, key) for key in keys))
    await fleet.until(lambda: all(map(fleet.is_waiting, keys)), DONE_WITHIN_S, "not all wait")
    await eventually(fleet.is_idle, within_s=30, what="the harness has let go of all runs")
    effects = sum(len(fleet.effects(key)) for key in keys)
    outcome.check(effects == PARKED, f"{effects} effects while {PARKED} runs wait")
    await fleet.kill_all()
    await _restart_server(fleet)
    found = await fleet.client.approvals(limit=2 * PARKED)
    asking = sorted(it.run_id for it in found)
    outcome.check(asking == sorted(keys), f"{len(asking)} open approvals: {asking[:3]}…")
    await asyncio.gather(*(fleet.client.approve(key, by="python") for key in keys))
    await fleet.replicas_of(**{HARNESS: 1, WORKER: 1})
    await _judge_done(outcome, fleet, model, [(key, CLAIM) for key in keys], [])
    left = await fleet.client.approvals()
    outcome.check(not left, f"still open: {left}")


async def conversation(outcome: Outcome, fleet: CompositionFleet, model: ScriptedModel) -> None:
    """Ten runs on one conversation, while the processes that hold it are killed repeatedly."""
    await fleet.replicas_of(**{HARNESS: 2, WORKER: 2})
    keys = [f"talk-{n}" for n in range(TALKS)]
    for key in keys:
        await fleet.talk("chat", key)
    killed: list[int] = []
    # each run has two effects: an odd number is in the midst of one
    for effects, kill in ((3, HARNESS), (7, WORKER), (11, "server"), (15, HARNESS)):
        reached = _at_least(fleet, keys, effects)
        await until(reached, within_s=DONE_WITHIN_S, what=f"{effects} effects")
        killed += await _kill_every(fleet, kill)  # so that the one that holds it is among them
    late = await fleet.all_done(keys, DONE_WITHIN_S)
    outcome.check(not late, f"not done within {DONE_WITHIN_S} s: {late}")
    outcome.kills = len(killed)
    kills = Kills(tuple(killed))
    await judge_talk(outcome, fleet, requests_by_run(model), "chat", keys, kills)
    for at in killed:
        outcome.continued_s += await waits_of(fleet, keys, at)


# --- the parts ------------------------------------------------------------------------------------


async def _kill_one(fleet: CompositionFleet, kind: str) -> int:
    """kill -9 of the longest-living replica, or of the server; it is replaced."""
    if kind == "server":
        return fleet.kill_server()
    victim = next(it for it in fleet.replicas[kind] if it.is_running)
    await victim.kill()
    assert victim.killed_ns is not None
    await fleet.replica(kind)
    return victim.killed_ns


async def _kill_every(fleet: CompositionFleet, kind: str) -> list[int]:
    """kill -9 of all replicas of a kind, or of the server; they are replaced."""
    if kind == "server":
        return [fleet.kill_server()]
    victims = [it for it in fleet.replicas[kind] if it.is_running]
    await asyncio.gather(*(victim.kill() for victim in victims))
    await fleet.replicas_of(**{kind: len(victims)})
    return [victim.killed_ns for victim in victims if victim.killed_ns]


async def _restart_server(fleet: CompositionFleet) -> None:
    kills = fleet.server_kills
    fleet.kill_server()
    await until(lambda: fleet.server_kills > kills, what="the server is started again")


async def _judge_done(
    outcome: Outcome,
    fleet: CompositionFleet,
    model: ScriptedModel,
    roots: Sequence[tuple[str, Plan]],
    killed: Sequence[int],
) -> None:
    late = await fleet.all_done([key for key, _ in roots], DONE_WITHIN_S)
    outcome.check(not late, f"not done within {DONE_WITHIN_S} s: {late}")
    outcome.kills = len(killed)
    requests = requests_by_run(model)
    for key, plan in roots:
        await judge_tree(outcome, fleet, requests, key, Kills(tuple(killed)), plan=plan)
        for at in killed:
            outcome.continued_s += await waits_of(fleet, await fleet.tree(key), at)


Scene = Callable[[Outcome, CompositionFleet, ScriptedModel], Awaitable[None]]
SCENES: dict[str, Scene] = {it.__name__: it for it in (fan_out, decisions, all_restarted)}
SCENES["conversation"] = conversation


async def play(name: str, directory: Path, model: ScriptedModel) -> Outcome:
    """Run one scene in its own fleet."""
    outcome = Outcome(name, "scene")
    async with CompositionFleet(directory, model.base_url) as fleet:
        await fleet.replicas_of(**{SECOND: 1})
        await SCENES[name](outcome, fleet, model)
    return outcome
