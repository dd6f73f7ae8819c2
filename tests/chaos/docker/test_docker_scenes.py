"""Bad days of containers in a whole system: many at once while an actor dies, an engine that stops
answering, a workspace that moves between providers while actors die. The engine is the test's own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from chaos import report
from chaos.docker.fleet import DockerFleet
from chaos.evidence import Outcome
from chaos.sandbox.fleet import END, HARNESS, SANDBOX, SandboxFleet
from chaos.sandbox.work import BRIEF, LENGTHY, QUICK, Work, judge_work, scripted_smith
from sandstream_providers.docker.labels import container_name
from support.engines.own_engine import OwnEngine
from support.waiting import eventually

from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.testing import ScriptedModel

pytestmark = pytest.mark.timeout(300)

MANY = 20
STALL_S = 10.0
DONE_WITHIN_S = 150.0
LOCAL = {"CHAOS_PROVIDER": "local"}


@pytest.fixture(scope="module")
def own() -> Iterator[OwnEngine]:
    made = OwnEngine(live_restore=True)
    try:
        asyncio.run(made.make())
        yield made
    finally:
        asyncio.run(made.end())


@asynccontextmanager
async def _system(
    directory: Path, own: OwnEngine
) -> AsyncIterator[tuple[DockerFleet, ScriptedModel]]:
    """At its end no container is left on the engine, and no file."""
    with scripted_smith() as model:
        fleet = DockerFleet(directory / "fleet", model.base_url, engine_url=own.url)
        async with fleet:
            yield fleet, model
            await fleet.no_boxes()
            assert await own.containers() == []


async def _judge(
    outcome: Outcome, fleet: DockerFleet, model: ScriptedModel, keys: Sequence[str], work: Work
) -> None:
    late = await fleet.all_done(list(keys), DONE_WITHIN_S)
    assert not late, f"not done within {DONE_WITHIN_S} s: {late}"
    for key in keys:
        await judge_work(outcome, fleet, model, key, work)


def _finish(outcome: Outcome, commands: int) -> None:
    report.write(outcome.name, [outcome])
    sys.stderr.write("\n".join(report.lines({outcome.name: report.read()[outcome.name]})))
    assert outcome.problems == []
    assert outcome.effects == commands


def test_twenty_boxes_at_once_while_an_actor_is_killed(tmp_path: Path, own: OwnEngine) -> None:
    """It dies when half of the containers are there: it works in some, and makes others."""
    outcome = Outcome("docker: twenty boxes", kills=1)

    async def scene() -> None:
        async with _system(tmp_path, own) as (fleet, model):
            await fleet.replicas_of(**{HARNESS: 1, END: 1, SANDBOX: 2})
            keys = [f"many-{n}" for n in range(MANY)]
            for key in keys:
                await fleet.order(key, LENGTHY.order(key))

            async def half() -> bool:
                return len(await fleet.boxes()) >= MANY // 2

            await eventually(half, within_s=60, what="half of the boxes")
            await fleet.replicas[SANDBOX][0].kill()
            await _judge(outcome, fleet, model, keys, LENGTHY)

    asyncio.run(scene())
    _finish(outcome, MANY * len(LENGTHY.commands))


def test_an_engine_that_does_not_answer_for_a_while(tmp_path: Path, own: OwnEngine) -> None:
    """Commands run on, and new boxes wait: nothing fails, nothing runs twice."""
    outcome = Outcome("docker: engine stalls", kills=1)

    async def scene() -> None:
        async with _system(tmp_path, own) as (fleet, model):
            await fleet.replicas_of(**{HARNESS: 1, END: 1, SANDBOX: 1})
            old, new = [f"old-{n}" for n in range(3)], [f"new-{n}" for n in range(2)]
            for key in old:
                await fleet.order(key, LENGTHY.order(key))
            await asyncio.gather(*(fleet.until_begun(key, 2) for key in old))
            own.suspend()
            try:
                for key in new:
                    await fleet.order(key, BRIEF.order(key))
                await asyncio.sleep(STALL_S)  # the length of the stall, not a wait for anything
                assert not any(fleet.is_done(key) for key in new)
            finally:
                own.resume()
            await _judge(outcome, fleet, model, old, LENGTHY)
            await _judge(outcome, fleet, model, new, BRIEF)

    asyncio.run(scene())
    _finish(outcome, 3 * len(LENGTHY.commands) + 2 * len(BRIEF.commands))


def test_a_workspace_moves_to_a_container_and_back_while_actors_die(
    tmp_path: Path, own: OwnEngine
) -> None:
    """local, docker, local: each restores what the one before has saved, by the same digest."""
    outcome = Outcome("docker: migration", kills=2)

    async def scene() -> None:
        async with _system(tmp_path, own) as (fleet, _):
            await fleet.replica(SANDBOX, node="local", more=LOCAL)
            first = fleet.local_session()
            await first.start()
            await first.exec("mkdir -p given deep/er; echo hello > given/greeting.txt; umask 022")
            await first.exec("ln -s ../given deep/link; touch empty; chmod 750 deep/er")
            await _command(outcome, first, 1)
            left = await first.checkpoint()
            await first.delete()

            dying = await fleet.replica(SANDBOX, crash_at="sandbox.after_restore")
            second = fleet.session(tree=left)
            starting = asyncio.ensure_future(second.start())
            assert await dying.wait(60) == -9
            await fleet.replica(SANDBOX)
            await starting
            outcome.check(await second.checkpoint() == left, "the container has other files")
            await _command(outcome, second, 2)
            key = (await fleet.record_of(second.sandbox_id)).key
            assert container_name(key) in str(await fleet.containers())
            moved = await second.checkpoint()
            await second.delete()

            for local in [it for it in fleet.replicas[SANDBOX] if it.is_running]:
                await local.kill()
            await fleet.replica(SANDBOX)  # it removes the container
            dying = await fleet.replica(
                SANDBOX, node="local", more=LOCAL, crash_at="sandbox.after_restore"
            )
            third = fleet.local_session(moved)
            starting = asyncio.ensure_future(third.start())
            assert await dying.wait(60) == -9
            await fleet.replica(SANDBOX, node="local", more=LOCAL)
            await starting
            outcome.check(await third.checkpoint() == moved, "the local box has other files")
            await _command(outcome, third, 3)
            counter = (await third.exec("cat counter")).stdout.decode()
            outcome.effects = counter.count("\n")
            outcome.check(counter == "1\n2\n3\n", f"the commands that ran: {counter.split()}")
            await third.delete()

            async def no_local_box() -> bool:
                return not await SandboxFleet.boxes(fleet, "local")

            await eventually(no_local_box, within_s=30, what="no local box is left")

    asyncio.run(scene())
    _finish(outcome, 3)


async def _command(outcome: Outcome, session: SandboxSession, number: int) -> None:
    outcome.tool_calls += 1
    done = await session.exec(QUICK.line(number))
    said = done.stdout.decode().splitlines()
    outcome.check(said[-1:] == [QUICK.says(number)], f"command {number} said {said}")
