"""What a session refers to lives as long as its last state: files, conversation, the last turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from actors.sessions.desk import Desk, desk
from sandstream_actors.sessions import renewals
from sandstream_bus.logs import conversations, sessions
from sandstream_bus.logs.sessions import SessionRefused
from sandstream_bus.nats import objects
from sandstream_bus.wire.sessions import (
    ArchiveSession,
    ForkSession,
    PauseSession,
    RenameSession,
    RewindSession,
    SessionRequest,
    SwitchProvider,
)
from sandstream_workspaces import freshness
from support.nats_server import NatsServer

pytestmark = pytest.mark.timeout(120)


class Age:
    """Lets everything that is stored now become old, and expire."""

    def __init__(self, it: Desk, patch: pytest.MonkeyPatch) -> None:
        self._it = it
        self._patch = patch
        self._ends: dict[str, int] = {}

    async def comes(self) -> None:
        """What is stored now is old: a new reference to it must renew it."""
        topology = self._it.bus.topology
        for stream in (topology.log, f"OBJ_{topology.bucket}"):
            state = await topology.stream_state(self._it.bus.connection, stream)
            self._ends[stream] = int(state["last_seq"])
        self._patch.setattr(objects, "REFRESH_AFTER_S", 0)
        self._patch.setattr(freshness, "RECHECK_AFTER_S", 0)
        self._patch.setattr(renewals, "RECHECK_AFTER_S", 0)
        self._patch.setattr(conversations, "COMPACT_AGE_S", 0)
        self._patch.setattr(sessions, "TURN_REFRESH_S", 0)

    async def takes_all(self) -> None:
        """The streams lose everything that was old, as their age limit does it."""
        self._patch.undo()
        for stream, end in self._ends.items():
            data = msgspec.json.encode({"seq": end + 1})
            await self._it.bus.connection.request(f"$JS.API.STREAM.PURGE.{stream}", data)
        self._it.sandboxes.lifecycle.forget_all()


async def _counted_twice(it: Desk) -> None:
    """A session with two turns, which sleeps."""
    await it.create("a", idle_s=None, input="count")
    await it.idle("a")
    await it.say("a", "count")
    await it.ask("a", PauseSession())
    await it.until_box("a", "asleep")


@pytest.mark.parametrize(
    "late",
    [RenameSession(title="Late"), ArchiveSession(), SwitchProvider(provider="mars")],
    ids=["rename", "archive", "refused"],
)
def test_a_late_request_renews_all_that_the_session_needs(
    nats_server: NatsServer, tmp_path: Path, late: SessionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await _counted_twice(it)
            age = Age(it, monkeypatch)
            await age.comes()
            try:
                await it.ask("a", late)
            except SessionRefused:
                assert isinstance(late, SwitchProvider)
            await age.takes_all()
            await it.ask("b", ForkSession(source="a"))
            for name, number in (("a", 3), ("b", 1)):
                state = await it.say(name, "count")
                assert (state.status, state.trouble) == ("completed", "")
                turn = await it.bus.sessions.turn(name, number)
                assert turn is not None
                assert await it.saved(turn.tree, "counter") == "x\n" * 3
                assert len(await it.history(name)) == 12

    asyncio.run(main())


def test_a_fork_or_a_rewind_renews_the_files_of_an_old_turn(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await _counted_twice(it)
            age = Age(it, monkeypatch)
            await age.comes()
            await it.ask("b", ForkSession(source="a", turn=1))
            await it.ask("a", RewindSession(turn=1))
            await age.takes_all()
            for name, number in (("a", 3), ("b", 1)):
                state = await it.say(name, "count")
                assert (state.status, state.trouble) == ("completed", "")
                turn = await it.bus.sessions.turn(name, number)
                assert turn is not None
                assert await it.saved(turn.tree, "counter") == "x\n" * 2
                assert len(await it.history(name)) == 8

    asyncio.run(main())


def test_files_that_are_young_are_not_stored_again(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await _counted_twice(it)
            topology = it.bus.topology
            bucket = f"OBJ_{topology.bucket}"
            before = await topology.stream_state(it.bus.connection, bucket)
            records = await it.bus.sessions.turns("a")
            await it.ask("a", RenameSession(title="Soon"))
            await it.ask("b", ForkSession(source="a", turn=1))
            after = await topology.stream_state(it.bus.connection, bucket)
            assert after["last_seq"] == before["last_seq"]
            assert await it.bus.sessions.turns("a") == records

    asyncio.run(main())
