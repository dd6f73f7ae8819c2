"""One of two replicas is stopped (SIGSTOP) in the middle of its work, for longer than ``ack_wait``.

The other one takes the work over. Then the first one wakes up, with all that it held: answers of
the model, calls that were under way, acknowledgements. It must not change anything any more.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chaos.evidence import Kills, Outcome
from chaos.fleet import Fleet, judge_runs
from chaos.processes import Program
from chaos.sandbox.fleet import END, HARNESS, SANDBOX, SandboxFleet
from chaos.sandbox.work import QUICK, Command, Work, judge_work
from chaos.scenarios import BRISK, CHARGE, NOTE, Scenario
from support.idle import is_idle
from support.waiting import eventually, until

from sandstream.testing import ScriptedModel

PAUSE_S = 12.0
"""Clearly longer than ``ack_wait``, which is 5 s, and than the server's patience with a client."""
ENDS_WITHIN_S = 60.0
RUNS = 8

THOUGHTFUL = Scenario(
    "thoughtful",
    ((NOTE, CHARGE), (BRISK,), (CHARGE, NOTE), (NOTE,), (CHARGE,)),
    latency_s=1.5,
)
"""A run whose turns take a while: it is not over when the stopped replica wakes up."""
WIRED = Scenario(
    "wired", ((NOTE, ("wire", {"seconds": 3.0}), ("slow", {"seconds": 3.0})), (CHARGE, NOTE))
)
"""The calls of its first turn take a while, one of them at most once."""
LASTING = Work("lasting", (QUICK, Command(4.0), QUICK))


@asynccontextmanager
async def paused(
    program: Program, seconds: float, pauses_ns: list[tuple[int, int]]
) -> AsyncIterator[None]:
    """The program is stopped for so long at least; the block may do something meanwhile."""
    began = time.time_ns()
    await program.suspend()
    try:
        yield
        left = seconds - (time.time_ns() - began) / 1e9
        await asyncio.sleep(max(0.0, left))
    finally:
        pauses_ns.append((began, time.time_ns()))
        program.resume()


async def harness_scene(directory: Path, *, seconds: float = PAUSE_S) -> Outcome:
    """The only harness is stopped while it waits for the model in every run."""
    outcome = Outcome(f"harness stopped for {seconds:.0f} s", THOUGHTFUL.name)
    keys = [f"thought-{number}" for number in range(RUNS)]
    pauses: list[tuple[int, int]] = []
    with ScriptedModel(conversations=[THOUGHTFUL.conversation()], strict=False) as model:
        async with Fleet(directory, model.base_url) as fleet:
            first, *_ = [await fleet.replica("harness"), await fleet.replica("worker")]
            for key in keys:
                await fleet.submit(key, THOUGHTFUL)
            await until(lambda: len(model.journal) >= RUNS, within_s=30, what="a request a run")
            async with paused(first, seconds, pauses):
                held = len(model.journal)
                await fleet.replica("harness")
            await _judge(outcome, fleet, model, [(key, THOUGHTFUL) for key in keys], pauses)
    repeated = outcome.model_requests - outcome.model_turns
    outcome.check(repeated > 0, "nobody took a turn over: the scene shows nothing")
    outcome.check(repeated <= held, f"{repeated} turns were repeated, {held} were held")
    return outcome


async def worker_scene(directory: Path, *, seconds: float = PAUSE_S) -> Outcome:
    """The only worker is stopped while every run has a call of each kind under way."""
    outcome = Outcome(f"worker stopped for {seconds:.0f} s", WIRED.name)
    keys = [f"wired-{number}" for number in range(RUNS)]
    pauses: list[tuple[int, int]] = []
    with ScriptedModel(conversations=[WIRED.conversation()], strict=False) as model:
        async with Fleet(directory, model.base_url) as fleet:
            first, *_ = [await fleet.replica("worker"), await fleet.replica("harness")]
            for key in keys:
                await fleet.submit(key, WIRED)

            def has_begun() -> bool:
                tools = [it.tool for key in keys for it in fleet.effects(key)]
                return tools.count("wire") == tools.count("slow") == RUNS

            await until(has_begun, within_s=30, what="all calls of the first turn run")
            async with paused(first, seconds, pauses):
                await fleet.replica("worker")
            await _judge(outcome, fleet, model, [(key, WIRED) for key in keys], pauses)
    outcome.check(outcome.unknown_outcomes > 0, "no call was taken over: the scene shows nothing")
    return outcome


async def sandbox_scene(directory: Path, *, seconds: float = PAUSE_S) -> Outcome:
    """The sandbox actor of a node is stopped during a command; a second one is on that node."""
    outcome = Outcome(f"sandbox actor stopped for {seconds:.0f} s", LASTING.name)
    keys = [f"lasting-{number}" for number in range(2)]
    pauses: list[tuple[int, int]] = []
    with ScriptedModel(conversations=[LASTING.conversation()], strict=False) as model:
        async with SandboxFleet(directory, model.base_url) as fleet:
            first, *_ = [await fleet.replica(kind) for kind in (SANDBOX, HARNESS, END)]
            for key in keys:
                await fleet.order(key, LASTING.order(key))
            for key in keys:
                await fleet.until_begun(key, 2)
            async with paused(first, seconds, pauses):
                await fleet.replica(SANDBOX)
            late = await fleet.all_done(keys, ENDS_WITHIN_S)
            outcome.check(not late, f"not done {ENDS_WITHIN_S} s after the pause: {late}")
            for key in keys:
                await judge_work(outcome, fleet, model, key, LASTING)
    asked, turns = outcome.model_requests, outcome.model_turns
    outcome.check(asked == turns, f"{asked} requests for {turns} turns, and no harness was stopped")
    return outcome


SCENES = (harness_scene, worker_scene, sandbox_scene)


async def _judge(
    outcome: Outcome,
    fleet: Fleet,
    model: ScriptedModel,
    runs: list[tuple[str, Scenario]],
    pauses: list[tuple[int, int]],
) -> None:
    """Judge when all runs are over and nobody has anything to do: the sleeper has had its say."""
    late = await fleet.all_done([key for key, _ in runs], ENDS_WITHIN_S)
    outcome.check(not late, f"not done {ENDS_WITHIN_S} s after the pause: {late}")
    bus = fleet.client.bus
    for consumer in ("harness-main", "tools-desk"):
        await eventually(
            functools.partial(is_idle, bus, consumer), within_s=30, what=f"{consumer} is idle"
        )
    await judge_runs(outcome, fleet, model, runs, Kills(pauses_ns=tuple(pauses)))
