"""Sleep, wake, pause, interrupt, rewind, fork, switch, destroy: with real boxes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from actors.sessions.desk import COMMANDS, ELSEWHERE, TILL, Desk, desk, obedient
from msgspec.structs import replace
from sandstream_actors.sandbox.reaper import Reaper
from sandstream_bus.logs.sessions import SessionRefused
from sandstream_bus.wire.sessions import (
    ArchiveSession,
    ConfigureSession,
    DestroySession,
    ForkSession,
    InterruptSession,
    PauseSession,
    RenameSession,
    RewindSession,
    SendMessage,
    SwitchProvider,
    WakeSession,
)
from sandstream_providers.local.provider import LocalProvider
from support.nats_server import NatsServer
from support.waiting import eventually

pytestmark = pytest.mark.timeout(120)


async def no_boxes(it: Desk) -> None:
    async def look() -> bool:
        return not it.boxes()

    await eventually(look, what="all boxes are gone")


async def hangs(it: Desk, session: str) -> None:
    """Wait until the command of the turn has begun."""

    async def look() -> bool:
        return any((it.home / "sandboxes").glob("*/workspace/hanging"))

    await eventually(look, within_s=30, what="the command runs")


def test_an_idle_session_has_no_box_and_wakes_with_its_files(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", idle_s=0.2, input="count")
            slept = await it.until_box("a", "asleep")
            await no_boxes(it)
            assert slept.workspace is not None
            assert await it.saved(slept.workspace.tree, "counter") == "x\n"
            await it.say("a", "count again")
            turn = await it.bus.sessions.turn("a", 2)
            assert turn is not None
            assert await it.saved(turn.tree, "counter") == "x\nx\n"
            await it.until_box("a", "asleep")
            await it.ask("a", ConfigureSession(idle_s=None))
            woken = await it.ask("a", WakeSession())
            assert woken.workspace is not None
            assert woken.workspace.box == "open"
            assert len(it.boxes()) == 1
            await it.ask("a", ConfigureSession(idle_s=0.2))
            await it.until_box("a", "asleep")

    asyncio.run(main())


def test_a_session_without_a_delay_stays_awake_until_it_is_paused(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", idle_s=None, input="count")
            state = await it.idle("a")
            assert state.workspace is not None
            assert state.workspace.box == "open"
            for request, life in ((PauseSession(), "paused"), (ArchiveSession(), "archived")):
                await it.ask("a", request)
                state = await it.until_box("a", "asleep")
                assert state.life == life
                await no_boxes(it)
                state = await it.say("a", "count")
                assert state.life == "open"
            assert state.workspace is not None
            assert await it.saved(state.workspace.tree, "counter") == "x\n" * 3

    asyncio.run(main())


def test_a_paused_session_takes_no_turn_after_the_current_one(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        commands = COMMANDS | {"slow": "sleep 1; echo x >> counter"}
        async with desk(nats_server, tmp_path / "home", obedient(commands)) as it:
            await it.create("a", take="one", input="slow")
            await it.ask("a", SendMessage(input="count"))
            await it.ask("a", PauseSession())
            state = await it.until_box("a", "asleep")
            assert [(state.turn, len(state.queue), state.life)] == [(1, 1, "paused")]
            await it.ask("a", WakeSession())
            assert (await it.idle("a")).turn == 2

    asyncio.run(main())


def test_an_interrupt_ends_the_command_and_keeps_the_queue(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="hang")
            await hangs(it, "a")
            queued = await it.ask("a", SendMessage(input="count", id="next"))
            assert [it.id for it in queued.queue] == ["next"]
            with pytest.raises(SessionRefused, match="not at work"):
                await it.ask("a", InterruptSession(turn=2))
            await it.ask("a", InterruptSession(reason="too long"))
            state = await it.idle("a")
            assert state.turn == 2
            first = await it.bus.sessions.turn("a", 1)
            assert first is not None
            assert first.status == "cancelled"
            assert "hanging" in await it.files(first.tree)
            assert await it.saved((await _tree(it, "a", 2)), "counter") == "x\n"
            with pytest.raises(SessionRefused, match="not at work"):
                await it.ask("a", InterruptSession())

    asyncio.run(main())


async def _tree(it: Desk, session: str, number: int) -> str:
    turn = await it.bus.sessions.turn(session, number)
    assert turn is not None
    return turn.tree


def test_a_rewind_restores_files_and_conversation_together(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a")
            for _ in range(3):
                await it.say("a", "count")
            state = await it.ask("a", RewindSession(turn=1))
            assert state.turn == 1
            assert len(await it.history("a")) == 4
            state = await it.say("a", "count")
            assert (state.turn, state.begun) == (4, 4)
            assert await it.saved(await _tree(it, "a", 4), "counter") == "x\nx\n"
            fourth = await it.bus.sessions.turn("a", 4)
            assert fourth is not None
            assert fourth.after == 1
            with pytest.raises(SessionRefused, match="no turn 3; its last turns are 1, 4"):
                await it.ask("a", RewindSession(turn=3))
            state = await it.ask("a", RewindSession(turn=0))
            assert (state.turn, await it.history("a")) == (0, [])
            await it.say("a", "count")
            assert await it.saved(await _tree(it, "a", 5), "counter") == "x\n"
            assert len(it.boxes()) == 1

    asyncio.run(main())


def test_a_fork_is_exact_and_the_source_does_not_notice(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="shape")
            await it.idle("a")
            await it.say("a", "count")
            before = await it.state("a")
            fork = await it.ask("b", ForkSession(source="a"))
            early = await it.ask("c", ForkSession(source="a", turn=1))
            assert await it.state("a") == before
            assert fork.workspace is not None and early.workspace is not None
            assert fork.workspace.base == await _tree(it, "a", 2)
            assert early.workspace.base == await _tree(it, "a", 1)
            assert fork.origin is not None
            assert (fork.origin.session, fork.origin.turn) == ("a", 2)
            assert await it.history("b") == await it.history("a")
            assert await it.history("c") == (await it.history("a"))[:4]
            await asyncio.gather(*(it.say(name, "count") for name in "abc"))
            for name, turn, count in (("a", 3, 2), ("b", 1, 2), ("c", 1, 1)):
                tree = await _tree(it, name, turn)
                assert await it.saved(tree, "counter") == "x\n" * count
                modes = {e.path: (e.mode, e.target) for e in await it.store.entries(tree)}
                assert modes["deep/er/a"] == (0o750, "")
                assert modes["deep/link"][1] == "er/a"

    asyncio.run(main())


def test_a_fork_goes_to_another_provider_with_equal_files(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            there = tmp_path / "there"
            await it.start_elsewhere(there)
            await it.create("a", idle_s=None, input="shape")
            await it.idle("a")
            await it.say("a", "count")
            source = await it.state("a")
            tree = await _tree(it, "a", 2)
            for name, turn in (("b", None), ("c", 2)):
                fork = await it.ask(name, ForkSession(source="a", turn=turn, provider=ELSEWHERE))
                assert fork.workspace is not None
                assert (fork.workspace.provider, fork.workspace.base) == (ELSEWHERE, tree)
                opened = await it.ask(name, WakeSession())
                assert opened.workspace is not None
                assert (opened.workspace.box, opened.trouble) == ("open", "")
                record = await it.record(name)
                assert (record.provider, record.is_live) == (ELSEWHERE, True)
                # what is in the new box has the digests of the source
                slept = await it.ask(name, PauseSession())
                slept = await it.until_box(name, "asleep")
                assert slept.workspace is not None
                assert slept.workspace.tree == tree
                state = await it.say(name, "count")
                assert (state.status, state.trouble) == ("completed", "")
                turn_there = await it.bus.sessions.turn(name, 1)
                assert turn_there is not None and turn_there.provider == ELSEWHERE
                changes = await it.store.diff(tree, turn_there.tree)
                assert (changes.added, changes.changed, changes.removed) == ([], ["counter"], [])
                assert await it.saved(turn_there.tree, "counter") == "x\n" * 2
            assert len(it.boxes()) == 1  # that of the source
            assert len(list((there / "sandboxes").glob("[!.]*"))) == 2
            assert await it.state("a") == source
            for name in "bc":
                await it.ask(name, DestroySession())

    asyncio.run(main())


def test_forks_of_forks_outlive_what_they_come_from(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="count")
            await it.idle("a")
            await it.ask("b", ForkSession(source="a"))
            gone = await it.ask("a", DestroySession())
            assert gone.life in ("destroying", "destroyed")
            await it.ask("c", ForkSession(source="b", title="Third"))
            late = await it.ask("d", ForkSession(source="a", turn=1))
            assert late.title == "count (fork)"
            await it.ask("b", DestroySession())
            for name in "cd":
                await it.say(name, "count")
                assert await it.saved(await _tree(it, name, 1), "counter") == "x\nx\n"
            with pytest.raises(SessionRefused, match="was destroyed"):
                await it.ask("a", SendMessage(input="count"))

    asyncio.run(main())


def test_a_fork_of_a_working_session_is_its_last_finished_turn(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="count")
            await it.idle("a")
            await it.ask("a", SendMessage(input="hang"))
            await hangs(it, "a")
            fork = await it.ask("b", ForkSession(source="a", input="count"))
            assert fork.origin is not None
            assert fork.origin.turn == 1
            await it.idle("b")
            tree = await _tree(it, "b", 1)
            assert await it.saved(tree, "counter") == "x\nx\n"
            assert "hanging" not in await it.files(tree)
            assert (await it.state("a")).active is not None
            await it.ask("a", DestroySession())
            await it.ask("b", DestroySession())
            await no_boxes(it)

    asyncio.run(main())


def test_a_fork_that_cannot_begin_says_why(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("alice=a", input="count")
            await it.idle("alice=a")
            for request, why in (
                (ForkSession(source="alice=x"), "there is no session alice=x"),
                (ForkSession(source="bob=a"), "belongs to another user"),
                (ForkSession(source="alice=a", turn=7), "no turn 7; its last turns are 1"),
                (ForkSession(source="alice=a", turn=-1), "0 or more"),
                (ForkSession(source="alice=f"), "fork of itself"),
                (ForkSession(source="a.b"), "is not possible"),
            ):
                with pytest.raises(SessionRefused, match=why):
                    await it.ask("alice=f", request)
            await it.ask("alice=f", ForkSession(source="alice=a"))
            with pytest.raises(SessionRefused, match="exists: choose another id"):
                await it.ask("alice=f", ForkSession(source="alice=a"))

    asyncio.run(main())


def test_a_switch_carries_the_files_over_and_a_failed_one_changes_nothing(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="shape")
            await it.idle("a")
            with pytest.raises(SessionRefused, match="no actor serves the provider mars"):
                await it.ask("a", SwitchProvider(provider="mars"))
            state = await it.say("a", "count")
            assert state.workspace is not None
            assert (state.workspace.provider, state.workspace.generation) == ("local", 1)
            before = await _tree(it, "a", 2)
            state = await it.ask("a", SwitchProvider(provider="local", options={}))
            assert state.workspace is not None
            assert (state.workspace.generation, state.workspace.tree) == (3, before)
            await it.say("a", "count")
            assert await it.saved(await _tree(it, "a", 3), "counter") == "x\nx\n"

            async def look() -> bool:
                return len(it.boxes()) == 1

            await eventually(look, what="the old box is gone")
            assert (await it.record("a", 1)).state == "deleted"

    asyncio.run(main())


def test_a_switch_waits_for_the_turn_and_messages_wait_for_the_switch(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="hang")
            await hangs(it, "a")
            asked = await it.bus.sessions.request("a", SwitchProvider(provider="local"))
            await it.ask("a", SendMessage(input="count"))
            with pytest.raises(SessionRefused, match="under way"):
                await it.ask("a", RewindSession(turn=0))
            assert (await it.state("a")).switch is not None
            await it.ask("a", InterruptSession())
            state = await it.bus.sessions.applied("a", asked, timeout_s=30)
            assert state.workspace is not None
            assert state.workspace.generation == 2
            await it.idle("a")
            tree = await _tree(it, "a", 2)
            assert {"counter", "hanging"} <= set(await it.files(tree))

    asyncio.run(main())


def test_destroying_ends_the_turn_and_leaves_no_box(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="hang")
            await hangs(it, "a")
            await it.ask("a", SendMessage(input="never taken"))
            await it.ask("a", DestroySession())

            async def look() -> bool:
                return (await it.state("a")).life == "destroyed"

            await eventually(look, within_s=30, what="destroyed")
            await no_boxes(it)
            state = await it.state("a")
            assert (state.queue, state.active, state.leftovers) == ([], None, [])
            for request in (SendMessage(input="x"), WakeSession(), RenameSession(title="x")):
                with pytest.raises(SessionRefused, match="was destroyed"):
                    await it.ask("a", request)
            await it.ask("a", DestroySession())

    asyncio.run(main())


def test_the_reaper_removes_the_box_of_a_destroyed_session_only(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            for name in "ab":
                await it.create(name, idle_s=None, input="count")
                await it.idle(name)
            await it.actors[0].stop()
            state = await it.state("a")
            stored = await it.bus.sessions.read("a")
            await it.bus.sessions.write(
                replace(state, life="destroyed", workspace=None), after=stored.sequence
            )
            lifecycle, provider = it.sandboxes.lifecycle, it.sandboxes.provider
            assert isinstance(provider, LocalProvider)
            await Reaper(it.bus, lifecycle, provider, every_s=3600, grace_s=0).sweep()
            assert (await it.record("a")).state == "stopped"
            assert (await it.record("b")).state == "ready"

    asyncio.run(main())


def test_an_approval_keeps_the_turn_and_messages_wait(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("alice=a", TILL, input="refund")
            state = await it.at_work("alice=a")
            assert state.active is not None
            run = state.active.run

            async def asked() -> bool:
                return await it.bus.log.last(it.bus.subjects.waiting(run)) is not None

            await eventually(asked, within_s=30, what="a person is asked")
            state = await it.ask("alice=a", SendMessage(input="count"))
            assert [message.input for message in state.queue] == ["count"]
            await it.bus.connection.publish(
                it.bus.subjects.ask_run("alice", run, "approval"),
                b'{"call":"t1-0","approve":true}',
                msg_id="yes",
            )
            state = await it.idle("alice=a")
            turns = await it.bus.sessions.turns("alice=a")
            assert [(t.status, t.said) for t in turns] == [
                ("completed", "did refund"),
                ("completed", "did count"),
            ]

    asyncio.run(main())


def test_settings_can_change(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", idle_s=None, input="count")
            await it.idle("a")
            state = await it.ask("a", RenameSession(title="New  name\n"))
            assert state.title == "New name"
            state = await it.ask("a", ConfigureSession(take="one"))
            assert (state.take, state.idle_s) == ("one", None)
            await it.ask("a", ConfigureSession(idle_s=0.1))
            await it.until_box("a", "asleep")
            for bad in (0.0, -1.0, 1e9):
                with pytest.raises(SessionRefused, match="idle_s must be"):
                    await it.ask("a", ConfigureSession(idle_s=bad))

    asyncio.run(main())
