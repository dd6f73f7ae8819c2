"""Sessions on a server with permissions: each process has only its own role."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from security.guarded import DEADLINE_S, Guarded, Person, guarded
from security.workplace import as_person
from support.waiting import until

pytestmark = pytest.mark.timeout(180)

USERS = ("alice=session,follow,approve", "bob=session,follow,submit", "eve=follow")
BLOG = "alice=blog"


async def until_state(person: Person, session: str, **wanted: Any) -> dict[str, Any]:
    """Wait for a state with these fields."""
    subject = f"sandstream.session.{session}.state"
    async with asyncio.timeout(DEADLINE_S):
        while True:
            state: dict[str, Any] = await person.until_stored(subject)
            if all(state.get(name) == value for name, value in wanted.items()):
                return state
            await asyncio.sleep(0.05)


async def use(alice: Person) -> None:
    """Every step of the actor, with a real sandbox."""
    ask = f"session.{BLOG}"
    await alice.ask(f"{ask}.create", {"agent": "smith", "input": "forge, please"})
    turn = await alice.until_stored(f"sandstream.session.{BLOG}.turn.1")
    assert (turn["status"], turn["said"]) == ("completed", "Forged.")
    assert turn["tree"]
    await alice.ask(f"session.{BLOG}2.fork", {"source": BLOG, "input": "forge, please"})
    await alice.until_stored(f"sandstream.session.{BLOG}2.turn.1")
    await alice.ask(f"{ask}.switch", {"provider": "local"})
    await alice.ask(f"{ask}.send", {"input": "forge, please"})
    await alice.until_stored(f"sandstream.session.{BLOG}.turn.2")
    await alice.ask(f"{ask}.rewind", {"turn": 1})
    await until_state(alice, BLOG, turn=1)
    await alice.ask(f"{ask}.configure", {"idle_s": 0.2})
    await alice.ask(f"{ask}.wake", {})
    await alice.ask(f"{ask}.pause", {})
    await until_state(alice, BLOG, life="paused")


async def lose_the_agent(world: Guarded, alice: Person) -> None:
    """A turn whose agent is not offered any more fails, and says so."""
    admin = await world.connect("admin")
    try:
        purge = json.dumps({"filter": "sandstream.agent.smith"}).encode()
        await admin.request("$JS.API.STREAM.PURGE.SANDSTREAM_AGENTS", purge, timeout=10)
    finally:
        await admin.close()
    await alice.ask(f"session.{BLOG}.send", {"input": "forge, please"})
    turn = await alice.until_stored(f"sandstream.session.{BLOG}.turn.3")
    assert turn["error"]["code"] == "unknown_agent"


async def destroy_all(alice: Person) -> None:
    """Boxes outlive their actors for some minutes, so the test does not leave any."""
    for session in (BLOG, f"{BLOG}2"):
        await alice.ask(f"session.{session}.destroy", {})
        await until_state(alice, session, life="destroyed")


async def attack(bob: Person, world: Guarded) -> None:
    """Bob may publish below his own name only; a session of another user is refused there."""
    state = await bob.until_stored(f"sandstream.session.{BLOG}.state")
    for kind in ("send", "destroy", "interrupt"):
        ack = await bob.ask(f"session.{BLOG}.{kind}", {"input": "x"})
        assert "seq" in ack
        sequence = ack["seq"]
        parked = f"sandstream.parked.sessions-asks.{sequence}"
        async with asyncio.timeout(DEADLINE_S):
            while await _admin_stored(world, parked) is None:
                await asyncio.sleep(0.05)
    ack = await bob.ask("session.bob=mine.fork", {"source": BLOG})
    mine = await until_state(bob, "bob=mine", through=ack["seq"])
    assert mine["refused"][-1]["error"]["code"] == "session.forbidden"
    assert await bob.until_stored(f"sandstream.session.{BLOG}.state") == state
    for subject in (
        f"sandstream.ask.alice.session.{BLOG}.send",
        f"sandstream.session.{BLOG}.state",
        f"sandstream.session.{BLOG}.turn.9",
        f"sandstream.live.{BLOG}.session",
        f"sandstream.due.session.{BLOG}.idle",
        f"sandstream.run.{BLOG}_t9-session.done",
    ):
        await bob.connection.publish(subject, b"{}")
    await bob.connection.flush()
    # a task with the id of a turn's run is another run
    ack = await bob.ask("task.clerk", {"input": "weather, please"}, **{"Nats-Msg-Id": "x"})
    assert "seq" in ack


async def _admin_stored(world: Guarded, subject: str) -> Any:
    connection = await world.connect("admin")
    try:
        person = Person(connection, "admin")
        return await person.stored({"last_by_subj": subject}, "SANDSTREAM_PARKED")
    finally:
        await connection.close()


def test_sessions_work_with_these_permissions_and_no_other(tmp_path: Path) -> None:
    with guarded(tmp_path, *USERS) as world:
        before = world.violations()
        as_person(world, "alice", use)
        assert world.violations() == before
        as_person(world, "bob", lambda it: attack(it, world))
        denied = {
            json.loads(it.rpartition("Subject ")[2].split(" ")[0].rstrip(","))
            for it in world.violations()[len(before) :]
        }
        assert len(denied) == 6

        async def only_reads(eve: Person) -> None:
            state = await eve.until_stored(f"sandstream.session.{BLOG}.state")
            assert state["session"] == BLOG

        as_person(world, "eve", only_reads)
        as_person(world, "alice", lambda it: lose_the_agent(world, it))
        as_person(world, "alice", destroy_all)
        boxes = world.directory / "home" / "sandboxes"
        asyncio.run(
            until(lambda: not [*boxes.glob("[!.]*")], within_s=DEADLINE_S, what="no box is left")
        )
