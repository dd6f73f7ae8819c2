"""Random kills during trees of runs, chains of handoffs, approvals and conversations."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from chaos.composition.evidence import (
    judge_cancelled,
    judge_talk,
    judge_tree,
    requests_by_run,
)
from chaos.composition.fleet import CompositionFleet
from chaos.composition.matrix import waits_of
from chaos.composition.scenarios import (
    CHAIN,
    CLAIM,
    DIRECTED,
    LONG_TREE,
    MANAGED,
    TALKS,
    TREE,
    Plan,
)
from chaos.evidence import Kills, Outcome
from chaos.storm import kill_at_random

from sandstream.testing import ScriptedModel

_MIX = (TREE, CHAIN, CLAIM, MANAGED, DIRECTED, CHAIN)
_ASKS = (CLAIM, MANAGED, DIRECTED)
DONE_WITHIN_S = 150.0
_TALKERS = TALKS // 2


async def composition_storm(
    name: str,
    directory: Path,
    model: ScriptedModel,
    *,
    runs: int = 24,
    seconds: float = 15.0,
    seed: int | None = None,
) -> Outcome:
    """Submit trees and conversations during the first half of the storm, approve what they ask for,
    kill until the storm is over, wait for all ends. ``runs``: the number of trees; for every six of
    them there is a conversation of five runs, and for every twelve a tree of fifty that is
    cancelled.
    """
    seed = random.randrange(2**32) if seed is None else seed
    chance = random.Random(seed)
    outcome = Outcome(f"{name} (seed {seed})", "composition")
    trees = [(f"{name}-{n}", _MIX[n % len(_MIX)]) for n in range(runs)]
    talks = {
        f"{name}-chat{n}": [f"{name}-chat{n}-{talker}" for talker in range(_TALKERS)]
        for n in range(max(1, runs // 6))
    }
    in_vain = [f"{name}-vain{n}" for n in range(max(1, runs // 12))]
    async with CompositionFleet(directory, model.base_url) as fleet:
        await fleet.replicas_of(**dict.fromkeys(fleet.replicas, 2))
        killed: list[tuple[str, int]] = []
        answering = asyncio.ensure_future(_answer(fleet, chance, trees))
        await asyncio.gather(
            _submit(fleet, chance, trees, talks, seconds / 2),
            *(_cancel(fleet, chance, key, seconds / 2) for key in in_vain),
            kill_at_random(fleet, chance, time.monotonic() + seconds, killed),
        )
        await fleet.replicas_of(
            **{
                kind: 2 - sum(replica.is_running for replica in replicas)
                for kind, replicas in fleet.replicas.items()
            }
        )
        keys = [key for key, _ in trees] + [key for talk in talks.values() for key in talk]
        keys += [run for key in in_vain for run in await fleet.begun(key)]
        late = await fleet.all_done(keys, DONE_WITHIN_S)
        outcome.check(not late, f"not done {DONE_WITHIN_S} s after the storm: {late}")
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        outcome.kills = len(killed)
        kills = Kills(tuple(at for _, at in killed))
        requests = requests_by_run(model)
        for key, plan in trees:
            await judge_tree(outcome, fleet, requests, key, kills, plan=plan)
            tree = await fleet.tree(key)
            for _, at in killed:
                outcome.continued_s += await waits_of(fleet, tree, at)
        for session, talkers in talks.items():
            await judge_talk(outcome, fleet, requests, session, talkers, kills)
        for key in in_vain:
            await judge_cancelled(outcome, fleet, key)
    return outcome


async def _submit(
    fleet: CompositionFleet,
    chance: random.Random,
    trees: Sequence[tuple[str, Plan]],
    talks: dict[str, list[str]],
    seconds: float,
) -> None:
    work = [partial(fleet.begin, plan, key) for key, plan in trees]
    work += [partial(fleet.talk, session, key) for session, keys in talks.items() for key in keys]
    chance.shuffle(work)
    for one in work:
        await one()
        await asyncio.sleep(seconds / len(work))


async def _cancel(fleet: CompositionFleet, chance: random.Random, key: str, seconds: float) -> None:
    """Cancel a run that calls fifty agents at a random time: before, during or after the calls."""
    await asyncio.sleep(chance.uniform(0.0, seconds / 2))
    await fleet.begin(LONG_TREE, key)
    await fleet.until_run_begun(key)
    await asyncio.sleep(chance.uniform(0.0, seconds / 2))
    await fleet.client.cancel(key, reason="asked for")


async def _answer(
    fleet: CompositionFleet, chance: random.Random, trees: Sequence[tuple[str, Plan]]
) -> None:
    """Approve sooner or later, sometimes twice."""

    async def one(key: str) -> None:
        await fleet.until_waiting(key, within_s=DONE_WITHIN_S)
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        for _ in range(chance.choice((1, 1, 2))):
            await fleet.approve_all(key)

    await asyncio.gather(*(one(key) for key, plan in trees if plan in _ASKS))
