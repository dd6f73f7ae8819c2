"""kill -9 in the middle of something: of actors, of the box, of a whole node, of a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from chaos.evidence import Outcome, requests_of
from chaos.sandbox_fleet import END, HARNESS, SANDBOX, TURN, SandboxFleet
from chaos.sandbox_work import (
    BRIEF,
    ENDLESS,
    FINAL,
    LENGTHY,
    Work,
    judge_work,
    new_mark,
    scripted_smith,
    sleepers,
)
from sandstream_bus.messages import CallFinished, RunDone
from support.waiting import eventually, until

from sandstream.outcomes import exception_of
from sandstream.sandbox import WorkspaceLostError
from sandstream.testing import ScriptedModel

DONE_WITHIN_S = 45.0

Scene = Callable[[SandboxFleet, ScriptedModel], Awaitable[None]]


def play(directory: Path, scene: Scene, *, leaves: str = "") -> None:
    """A fleet without sandbox actors: each scene starts its own."""

    async def run(model: ScriptedModel) -> None:
        async with SandboxFleet(directory / "fleet", model.base_url) as fleet:
            await fleet.replicas_of(**{HARNESS: 1, END: 1, TURN: 1})
            await scene(fleet, model)

    with scripted_smith(leaves) as model:
        asyncio.run(run(model))


async def done(fleet: SandboxFleet, key: str) -> RunDone:
    late = await fleet.all_done([key], DONE_WITHIN_S)
    assert not late, f"{late}: {[it.event for it in await fleet.events(key)]}"
    dones = [it.event for it in await fleet.events(key) if isinstance(it.event, RunDone)]
    assert len(dones) == 1
    return dones[0]


async def assert_right(
    fleet: SandboxFleet, model: ScriptedModel, keys: list[str], work: Work = LENGTHY
) -> None:
    outcome = Outcome("kill")
    for key in keys:
        await done(fleet, key)
        await judge_work(outcome, fleet, model, key, work)
    assert outcome.problems == []


def told(model: ScriptedModel, key: str) -> str:
    """All that the model knew at the end."""
    return max((it.text for it in requests_of(model.journal, key)), key=len)


# --- actors ---------------------------------------------------------------------------------------


def test_the_other_replica_collects_long_commands(tmp_path: Path) -> None:
    async def scene(fleet: SandboxFleet, model: ScriptedModel) -> None:
        await fleet.replicas_of(**{SANDBOX: 2})
        keys = [f"held-{n}" for n in range(4)]  # both replicas hold some of them
        for key in keys:
            await fleet.order(key, LENGTHY.order(key))
        await asyncio.gather(*(fleet.until_begun(key, 2) for key in keys))
        await fleet.replicas[SANDBOX][0].kill()
        await assert_right(fleet, model, keys)
        await fleet.no_boxes()

    play(tmp_path, scene)


def test_everything_dies_during_a_long_command(tmp_path: Path) -> None:
    """All sandbox actors, the harness and the server at once; all are started again."""

    async def scene(fleet: SandboxFleet, model: ScriptedModel) -> None:
        await fleet.replicas_of(**{SANDBOX: 2})
        await fleet.order("all", LENGTHY.order("all"))
        await fleet.until_begun("all", 2)
        fleet.kill_server()
        dead = [*fleet.replicas[SANDBOX], *fleet.replicas[HARNESS]]
        await asyncio.gather(*(program.kill() for program in dead))
        await fleet.replicas_of(**{SANDBOX: 1, HARNESS: 1})
        await assert_right(fleet, model, ["all"])

    play(tmp_path, scene)


def test_a_program_at_a_terminal_outlives_the_actor(tmp_path: Path) -> None:
    """A shell with a variable. What is typed while the actor dies is typed once."""

    async def scene(fleet: SandboxFleet, _: ScriptedModel) -> None:
        actor = await fleet.replica(SANDBOX)
        session = fleet.session()
        await session.start()
        started = await session.run_tool("exec_command", _args(cmd="sh", tty=True, wait=250))
        shell = int(started.partition("session ID ")[2].split()[0])
        await session.run_tool("write_stdin", _args(session_id=shell, chars="n=40\n", wait=250))
        typed = "n=$((n+1)); touch begun; sleep 1; echo sum-$n\n"
        typing = asyncio.ensure_future(
            session.run_tool("write_stdin", _args(session_id=shell, chars=typed, wait=3000))
        )
        begun = fleet.workspace(await fleet.record_of(session.sandbox_id)) / "begun"
        await until(begun.exists, what="the typed line was read")
        await actor.kill()
        await fleet.replica(SANDBOX)
        assert "sum-41" in await typing
        last = _args(session_id=shell, chars="echo now-$((n+1)); exit 3\n", wait=3000)
        answer = await session.run_tool("write_stdin", last)
        assert "now-42" in answer
        assert "exited with code 3" in answer
        await session.delete()
        await fleet.no_boxes()

    play(tmp_path, scene)


def _args(*, wait: int, **arguments: object) -> str:
    return json.dumps({**arguments, "yield_time_ms": wait})


# --- boxes ----------------------------------------------------------------------------------------


def test_a_killed_box_loses_its_command_and_keeps_its_files(tmp_path: Path) -> None:
    async def scene(fleet: SandboxFleet, model: ScriptedModel) -> None:
        await fleet.replica(SANDBOX)
        await fleet.order("box", LENGTHY.order("box"))
        await fleet.until_begun("box", 2)
        fleet.kill_box(await fleet.record("box"))
        end = await done(fleet, "box")
        assert end.status == "completed"
        said = told(model, "box")
        assert "the sandbox was lost while the command ran" in said
        assert (
            "did-3-of-2" in said
        )  # the second command has not added its line, nobody ran it again
        record = await fleet.record("box")
        assert await fleet.saved(record, "counter") == "1\n3\n"
        assert record.generation == 1
        await fleet.no_boxes()

    play(tmp_path, scene)


# --- nodes ----------------------------------------------------------------------------------------


def test_a_dead_nodes_sandboxes_go_on_elsewhere(tmp_path: Path) -> None:
    """With a checkpoint the run goes on from it; without one it ends and says so. What the node
    still has when it comes back is removed.
    """

    async def scene(fleet: SandboxFleet, model: ScriptedModel) -> None:
        dying = await fleet.replica(SANDBOX, node="a")
        await fleet.order("saved", LENGTHY.order("saved"), agent=TURN)
        await fleet.order("unsaved", LENGTHY.order("unsaved"), agent=END)
        await fleet.until_begun("saved", 2, agent=TURN)
        await fleet.until_begun("unsaved", 2, agent=END)
        await dying.kill()
        fleet.kill_box(await fleet.record("saved", TURN))
        fleet.kill_box(await fleet.record("unsaved", END))
        await fleet.replica(SANDBOX, node="b")

        end = await done(fleet, "saved")
        assert (end.status, msgspec.json.decode(end.output)) == ("completed", FINAL)
        said = told(model, "saved")
        assert "restored from its last checkpoint" in said
        assert "It is unknown whether this command took effect" in said
        assert "did-3-of-2" in said
        record = await fleet.record("saved", TURN)
        assert record.generation == 2
        assert await fleet.saved(record, "counter") == "1\n3\n"

        end = await done(fleet, "unsaved")
        assert end.status == "failed"
        assert end.error is not None
        assert end.error.code == "workspace.lost"
        assert isinstance(exception_of(end, "unsaved"), WorkspaceLostError)

        assert len(await fleet.boxes("a")) == 2
        await fleet.replica(SANDBOX, node="a")
        await fleet.no_boxes("a")
        await fleet.no_boxes("b")
        for key in ("saved", "unsaved"):
            ends = [it for it in await fleet.events(key) if isinstance(it.event, RunDone)]
            assert len(ends) == 1

    play(tmp_path, scene)


@pytest.mark.parametrize("point", ["after_intent", "before_ready"])
def test_a_sandbox_whose_node_died_while_it_was_made(point: str, tmp_path: Path) -> None:
    """Nothing was in it yet, so nothing is lost: another node makes it."""

    async def scene(fleet: SandboxFleet, model: ScriptedModel) -> None:
        dying = await fleet.replica(SANDBOX, node="a", crash_at=f"sandbox.{point}")
        await fleet.order("made", BRIEF.order("made"))
        assert await dying.wait(30) == -9
        await fleet.replica(SANDBOX, node="b")
        await assert_right(fleet, model, ["made"], BRIEF)
        await fleet.no_boxes("b")

    play(tmp_path, scene)


# --- cancel ---------------------------------------------------------------------------------------


def test_a_cancel_ends_the_whole_process_tree(tmp_path: Path) -> None:
    """Also of children in sessions of their own."""
    mark = new_mark()

    async def scene(fleet: SandboxFleet, _: ScriptedModel) -> None:
        await fleet.replicas_of(**{SANDBOX: 2})
        await fleet.order("stop", f"[{ENDLESS}] stop")
        await fleet.until_begun("stop", 1)
        await until(lambda: len(sleepers(mark)) == 2, what="both processes run")
        await fleet.client.cancel("stop")
        end = await done(fleet, "stop")
        assert end.status == "cancelled"
        await until(lambda: not sleepers(mark), what="all its processes are gone")

        async def is_stopped() -> bool:
            return (await fleet.record("stop")).state == "stopped"

        await eventually(is_stopped, what="the sandbox is closed")
        await fleet.no_boxes()

    play(tmp_path, scene, leaves=mark)


def test_a_cancel_while_all_sandbox_actors_are_dead(tmp_path: Path) -> None:
    """The box runs on without them; whoever comes next ends it."""
    mark = new_mark()

    async def scene(fleet: SandboxFleet, _: ScriptedModel) -> None:
        actor = await fleet.replica(SANDBOX)
        await fleet.order("late", f"[{ENDLESS}] late")
        await fleet.until_begun("late", 1)
        await actor.kill()
        await fleet.client.cancel("late")
        assert (await done(fleet, "late")).status == "cancelled"
        assert sleepers(mark)
        await fleet.replica(SANDBOX)
        await until(lambda: not sleepers(mark), within_s=20, what="all its processes are gone")
        await fleet.no_boxes()
        events = [it.event for it in await fleet.events("late")]
        assert not [it for it in events if isinstance(it, CallFinished) and it.kind == "tool"]

    play(tmp_path, scene, leaves=mark)
