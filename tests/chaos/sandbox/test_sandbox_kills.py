"""kill -9 during some work: of actors, of the box, of a whole node.

All selected scenes run in parallel before the first test checks its own, because most wait for a
dead actor's lease; ``-k`` selects scenes.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from chaos.evidence import Outcome, requests_of
from chaos.sandbox.fleet import END, HARNESS, SANDBOX, TURN, SandboxFleet
from chaos.sandbox.work import (
    BRIEF,
    ENDLESS,
    FINAL,
    LENGTHY,
    PARTED,
    Work,
    judge_work,
    new_mark,
    scripted_smith,
    sleepers,
)
from sandstream_bus.wire.messages import CallFinished, RunDone
from support.servers.tcp_proxy import TcpProxy
from support.waiting import eventually, until

from sandstream._run.sandbox_host import node_name
from sandstream._surface.outcomes import exception_of
from sandstream.sandbox import WorkspaceLostError
from sandstream.testing import ScriptedModel

DONE_WITHIN_S = 45.0

LANES = 4
SCENE_WITHIN_S = 100.0

pytestmark = pytest.mark.timeout(300)  # the first test waits for all scenes

Scene = Callable[[SandboxFleet, ScriptedModel, str], Awaitable[None]]
"""Gets a fleet without sandbox actors, and the mark of the processes that are left behind."""
SCENES: dict[str, Scene] = {}


def scene(play: Scene) -> Scene:
    SCENES[play.__name__] = play
    return play


@pytest.fixture(scope="module")
def problems(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    selected = {item.name for item in request.session.items}
    queue = [name for name in SCENES if f"test_sandbox_kill[{name}]" in selected]
    directory = tmp_path_factory.mktemp("kills")
    found: dict[str, str] = {}

    async def lane() -> None:
        while queue:
            name = queue.pop()
            try:
                async with asyncio.timeout(SCENE_WITHIN_S):
                    await _play(directory / name, SCENES[name])
                found[name] = ""
            except Exception:
                found[name] = traceback.format_exc()

    async def all_lanes() -> None:
        await asyncio.gather(*(lane() for _ in range(LANES)))

    asyncio.run(all_lanes())
    return found


async def _play(directory: Path, play: Scene) -> None:
    mark = new_mark()
    with scripted_smith(mark) as model:
        async with SandboxFleet(directory, model.base_url) as fleet:
            await fleet.replicas_of(**{HARNESS: 1, END: 1, TURN: 1})
            await play(fleet, model, mark)


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
    """Everything that the model knew at the end."""
    return max((it.text for it in requests_of(model.journal, key)), key=len)


# --- actors ---------------------------------------------------------------------------------------


@scene
async def the_other_replica_collects_long_commands(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    await fleet.replicas_of(**{SANDBOX: 2})
    keys = [f"held-{n}" for n in range(4)]  # both replicas hold some of them
    for key in keys:
        await fleet.order(key, LENGTHY.order(key))
    await asyncio.gather(*(fleet.until_begun(key, 2) for key in keys))
    await fleet.replicas[SANDBOX][0].kill()
    await assert_right(fleet, model, keys)
    await fleet.no_boxes()


@scene
async def everything_dies_during_a_long_command(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    """All sandbox actors, the harness and the server die at once; all are restarted."""
    await fleet.replicas_of(**{SANDBOX: 2})
    await fleet.order("all", LENGTHY.order("all"))
    await fleet.until_begun("all", 2)
    fleet.kill_server()
    dead = [*fleet.replicas[SANDBOX], *fleet.replicas[HARNESS]]
    await asyncio.gather(*(program.kill() for program in dead))
    await fleet.replicas_of(**{SANDBOX: 1, HARNESS: 1})
    await assert_right(fleet, model, ["all"])


@scene
async def a_program_at_a_terminal_outlives_the_actor(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    """A shell with a variable. Input that is sent while the actor dies arrives once."""
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


def _args(*, wait: int, **arguments: object) -> str:
    return json.dumps({**arguments, "yield_time_ms": wait})


# --- boxes ----------------------------------------------------------------------------------------


@scene
async def a_killed_box_loses_its_command_and_keeps_its_files(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    await fleet.replica(SANDBOX)
    await fleet.order("box", LENGTHY.order("box"))
    await fleet.until_begun("box", 2)
    fleet.kill_box(await fleet.record("box"))
    end = await done(fleet, "box")
    assert end.status == "completed"
    said = told(model, "box")
    assert "the sandbox was lost while the command ran" in said
    assert "did-3-of-2" in said  # the second command has not added its line, nobody ran it again
    record = await fleet.record("box")
    assert await fleet.saved(record, "counter") == "1\n3\n"
    assert record.generation == 1
    await fleet.no_boxes()


# --- nodes ----------------------------------------------------------------------------------------


async def _a_dead_nodes_sandboxes_go_on_elsewhere(
    fleet: SandboxFleet, model: ScriptedModel, crash_at: str | None
) -> None:
    """With a checkpoint the run continues from it; without one it ends with an error. What the node
    still has when it comes back is removed. The same holds if the node that takes over dies too.
    """
    dying = await fleet.replica(SANDBOX, node="a")
    await fleet.order("saved", LENGTHY.order("saved"), agent=TURN)
    await fleet.order("unsaved", LENGTHY.order("unsaved"), agent=END)
    await fleet.until_begun("saved", 2, agent=TURN)
    await fleet.until_begun("unsaved", 2, agent=END)
    await dying.kill()
    fleet.kill_box(await fleet.record("saved", TURN))
    fleet.kill_box(await fleet.record("unsaved", END))
    heir = await fleet.replica(SANDBOX, node="b", crash_at=crash_at)
    if crash_at:
        assert await heir.wait(30) == -9
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


async def _a_sandbox_whose_node_died_while_it_was_made(
    fleet: SandboxFleet, model: ScriptedModel, point: str
) -> None:
    """The sandbox was still empty, so nothing is lost: another node creates it."""
    dying = await fleet.replica(SANDBOX, node="a", crash_at=f"sandbox.{point}")
    await fleet.order("made", BRIEF.order("made"))
    assert await dying.wait(30) == -9
    await fleet.replica(SANDBOX, node="b")
    await assert_right(fleet, model, ["made"], BRIEF)
    await fleet.no_boxes("b")


@scene
async def a_dead_nodes_sandboxes_go_on(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    await _a_dead_nodes_sandboxes_go_on_elsewhere(fleet, model, None)


@scene
async def an_heir_of_a_dead_node_dies(fleet: SandboxFleet, model: ScriptedModel, mark: str) -> None:
    await _a_dead_nodes_sandboxes_go_on_elsewhere(fleet, model, "sandbox.after_ready")


@scene
async def a_node_dies_before_it_makes_a_box(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    await _a_sandbox_whose_node_died_while_it_was_made(fleet, model, "after_intent")


@scene
async def a_node_dies_before_a_box_is_ready(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    await _a_sandbox_whose_node_died_while_it_was_made(fleet, model, "before_ready")


@scene
async def a_node_dies_before_the_last_checkpoint(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    """The run has completed; its log says that the workspace could not be saved."""
    dying = await fleet.replica(SANDBOX, node="a", crash_at="sandbox.after_result:3")
    await fleet.order("last", BRIEF.order("last"))
    assert await dying.wait(30) == -9
    await fleet.replica(SANDBOX, node="b")
    assert (await done(fleet, "last")).status == "completed"
    results = [it.event for it in await fleet.events("last") if isinstance(it.event, CallFinished)]
    codes = [it.error.code for it in results if it.kind == "close" and it.error is not None]
    assert codes == ["workspace.lost"]
    record = await fleet.record("last")
    assert (record.state, record.tree) == ("lost", "")
    await fleet.replica(SANDBOX, node="a")
    await fleet.no_boxes("a")


async def _is_back(fleet: SandboxFleet, consumer: str) -> bool:
    """Whether it serves its own consumer, and no other process does."""
    bus = fleet.client.bus
    info = await bus.topology.consumer_info(bus.connection, consumer)
    assert info is not None
    return await bus.presence.is_served(consumer) and info["num_waiting"] == 1


@scene
async def a_node_that_was_cut_off_lets_go(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    """Another node has taken over its sandbox meanwhile. Its own box, which it still knows, is no
    longer used, although calls of the run reach it first.
    """
    async with TcpProxy(fleet.server.port) as gate:
        # with the usual grace: its box is there when it comes back
        away = await fleet.replica(SANDBOX, node="a", url=gate.url, grace_s=600)
        await fleet.order("cut", PARTED.order("cut"), agent=TURN)
        await fleet.until_begun("cut", 2, agent=TURN)
        gate.refuse()
        await fleet.replica(SANDBOX, node="b")
        await fleet.until_begun("cut", 3, agent=TURN, node="b")
        gate.open()
        consumer = f"sandbox-local-{node_name(fleet.home('a'))}"
        await eventually(lambda: _is_back(fleet, consumer), within_s=30, what="the node is back")
        (fleet.workspace(await fleet.record("cut", TURN), "b") / "go").touch()
        end = await done(fleet, "cut")
        assert end.status == "completed"
        said = told(model, "cut")
        assert said.count("It is unknown whether this command took effect") == 1
        assert [f"did-{n}-of-{n - 1}" in said for n in (3, 4, 5)] == [True] * 3
        record = await fleet.record("cut", TURN)
        assert await fleet.saved(record, "counter") == "1\n3\n4\n5\n"
        assert len(await fleet.boxes("a")) == 1
        await away.kill()
        await fleet.replica(SANDBOX, node="a")
        await fleet.no_boxes("a")
        await fleet.no_boxes("b")


# --- cancel ---------------------------------------------------------------------------------------


@scene
async def a_cancel_ends_the_whole_process_tree(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    """Including children in their own sessions."""
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


@scene
async def a_cancel_while_the_sandbox_is_made(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    """Its creator dies, so only the first log entry knows that the box exists."""
    actor = await fleet.replica(SANDBOX, crash_at="sandbox.after_create")
    await fleet.order("half", BRIEF.order("half"))
    assert await actor.wait(30) == -9
    assert len(await fleet.boxes()) == 1
    await fleet.client.cancel("half")
    assert (await done(fleet, "half")).status == "cancelled"
    await fleet.replica(SANDBOX)
    await fleet.no_boxes()


@scene
async def a_cancel_while_all_sandbox_actors_are_dead(
    fleet: SandboxFleet, model: ScriptedModel, mark: str
) -> None:
    """The box keeps running without them; the next actor ends it."""
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


@pytest.mark.parametrize("name", SCENES)
def test_sandbox_kill(name: str, problems: dict[str, str]) -> None:
    assert problems[name] == ""
