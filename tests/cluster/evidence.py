"""Judges a whole load: every run ended once, every effect happened as often as promised."""

from __future__ import annotations

from itertools import pairwise

from chaos.composition.evidence import (
    Requests,
    judge_runs_of,
    judge_talk,
    requests_by_run,
)
from chaos.composition.scenarios import Plan
from chaos.evidence import Kills, Outcome
from chaos.memory.evidence import judge_stored_memory
from chaos.sandbox.work import judge_work
from cluster.fleet import ClusterFleet
from cluster.load import Load
from cluster.mix import SCRIBE, SCRIBE_AGENT, Job

from sandstream.testing import ScriptedModel

REMEMBERED_WITHIN_S = 60.0
_SECOND_NS = 1_000_000_000


async def judge_load(outcome: Outcome, load: Load, model: ScriptedModel) -> None:
    """Judge what the log, the ledger and the model have of all runs of a load.

    A fault of the cluster excuses that a turn or an at-least-once call was repeated that was under
    way meanwhile: beats did not arrive, so the server gave the work to somebody else.
    """
    fleet, kills = load.fleet, Kills(pauses_ns=tuple(load.faults_ns))
    unseen = [key for key in load.late if fleet.is_done(key)]
    hanging = [key for key in load.late if key not in unseen]
    outcome.check(not hanging, f"{len(hanging)} runs did not end: {hanging}")
    outcome.check(not unseen, f"the client did not see the ends of {len(unseen)} runs: {unseen}")
    await fleet.settle()
    ended = [job for job in load.jobs if job.key not in load.late]
    requests = requests_by_run(model)
    for job in ended:
        if isinstance(job.kind, Plan) and not job.session:
            await _judge_tree(outcome, fleet, requests, job, job.kind, kills)
        elif not isinstance(job.kind, Plan):
            await judge_work(outcome, fleet, model, job.key, SCRIBE, SCRIBE_AGENT)
    for session in dict.fromkeys(job.session for job in load.jobs if job.session):
        keys = [job.key for job in load.jobs if job.session == session]
        if not set(keys) & set(load.late):
            await judge_talk(outcome, fleet, requests, session, keys, kills)
    parked = await fleet.client.parked()
    outcome.check(not parked, f"messages were parked: {parked}")


async def _judge_tree(
    outcome: Outcome, fleet: ClusterFleet, requests: Requests, job: Job, plan: Plan, kills: Kills
) -> None:
    for run in await judge_runs_of(outcome, fleet, requests, job.key, kills, plan=plan):
        outcome.problems.extend(await fleet.lost(run))


async def judge_memory(outcome: Outcome, load: Load) -> None:
    """What the scribes' runs had to tell is in one handbook, each fact once."""
    facts = sum(bool(job.fact) for job in load.jobs if job.key not in load.late)
    found = Outcome("")
    try:
        state = await load.fleet.merged(facts, within_s=REMEMBERED_WITHIN_S)
    except AssertionError as error:
        outcome.problems.append(f"memory: {error}")
        return
    await load.fleet.settle()
    await judge_stored_memory(found, load.fleet, state, facts)
    outcome.problems.extend(f"memory: {problem}" for problem in found.problems)


def longest_stalls_s(fleet: ClusterFleet) -> tuple[float, float]:
    """The largest gap between two stored events of runs, and between two ends of runs."""
    stored = sorted((at, subject) for subject, at, _ in fleet.seen.values())
    ends = [at for at, subject in stored if subject.endswith(".done")]
    gaps = [
        max((later - sooner for sooner, later in pairwise(times)), default=0)
        for times in ([at for at, _ in stored], ends)
    ]
    return gaps[0] / _SECOND_NS, gaps[1] / _SECOND_NS
