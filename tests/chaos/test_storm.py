"""Random kills under load, and kills of the processes that a script has started for itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from chaos import report
from chaos.evidence import Kills, Outcome, RunEvidence, judge, requests_of, seconds_to_continue
from chaos.matrix import scripted_model
from chaos.scenarios import PLAIN, TOTAL
from chaos.script_home import ScriptHome
from chaos.storm import storm
from support.waiting import until

from sandstream.testing import ScriptedModel


@pytest.mark.timeout(240)
def test_storm(tmp_path: Path) -> None:
    with scripted_model() as model:
        outcome = asyncio.run(storm("storm", tmp_path / "fleet", model, runs=40, seconds=10))
    report.write("storm", [outcome])
    sys.stderr.write("\n".join(report.lines({"storm": report.read()["storm"]})))
    assert outcome.problems == []
    assert outcome.kills > 0


KillIt = Callable[[ScriptHome], Awaitable[int]]


async def _kill_server(home: ScriptHome) -> int:
    at = time.time_ns()
    os.kill(home.server_record()["server_pid"], signal.SIGKILL)
    return at


async def _kill_keeper(home: ScriptHome) -> int:
    at = time.time_ns()
    os.kill(home.server_record()["keeper_pid"], signal.SIGKILL)
    return at


@pytest.mark.parametrize("kill", [_kill_server, _kill_keeper], ids=["server", "keeper"])
def test_a_script_outlives_its_server(kill: KillIt, tmp_path: Path) -> None:
    """The private server, or its keeper and thereby both, is killed while a tool runs."""

    async def run(model: ScriptedModel) -> Outcome:
        outcome = Outcome(f"script-{kill.__name__}", PLAIN.name, kills=1)
        home = ScriptHome(tmp_path / "script", model.base_url)
        try:
            script = await home.script("outlives", PLAIN.input("outlives"))
            await until(lambda: home.effects("outlives"), within_s=30, what="a tool's effect")
            killed_ns = await kill(home)
            said = await script.line(40)
            assert json.loads(said or "null") == {"total": TOTAL}, script.errors()
            assert await script.wait(10) == 0
            await _judge(outcome, home, model, "outlives", killed_ns)
        finally:
            await home.close()
        return outcome

    with scripted_model() as model:
        outcome = asyncio.run(run(model))
    report.write(outcome.name, [outcome])
    assert outcome.problems == []


@pytest.mark.timeout(90)
def test_a_script_goes_on_after_its_consumers_were_forgotten(tmp_path: Path) -> None:
    """Started again much later: the server has deleted the dead process's consumers, and the new
    ones deliver the whole run once more. Nothing is repeated.
    """

    async def run(model: ScriptedModel) -> Outcome:
        outcome = Outcome("script-late", PLAIN.name, kills=1)
        home = ScriptHome(tmp_path / "script", model.base_url)
        text = PLAIN.input("late")
        try:
            first = await home.script("late", text, crash_at="harness.before_commit:2")
            assert await first.wait(30) == -9, first.errors()
            async with await home.client() as client:
                pool = (await client.events("late"))[0].subject.rpartition(".")[2]
                for kind in ("harness", "tools"):
                    name = f"{kind}-{pool}"
                    await client.bus.topology.delete_consumer(client.bus.connection, name)
            second = await home.script("late", text)
            assert json.loads(await second.line(40)) == {"total": TOTAL}, second.errors()
            assert await second.wait(10) == 0
            killed_ns = first.crashed_ns()
            assert killed_ns is not None
            await _judge(outcome, home, model, "late", killed_ns)
        finally:
            await home.close()
        return outcome

    with scripted_model() as model:
        outcome = asyncio.run(run(model))
    assert outcome.problems == []
    assert outcome.repeated_effects == 0


async def _judge(
    outcome: Outcome, home: ScriptHome, model: ScriptedModel, key: str, killed_ns: int
) -> None:
    events = await home.events(key)
    requests = requests_of(model.journal, key)
    evidence = RunEvidence(key, PLAIN, events, home.effects(key), requests)
    judge(outcome, evidence, Kills((killed_ns,)))
    waited = seconds_to_continue(events, killed_ns)
    outcome.continued_s.extend([waited] if waited is not None else [])
