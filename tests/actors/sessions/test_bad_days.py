"""What can go wrong for the actor: hostile and repeated requests, crowds, lost parts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from actors.sessions.desk import SMITH, TALKER, Desk, desk
from nats.aio.client import Client
from nats.aio.msg import Msg
from sandstream_actors.sessions.sleep import TIMER
from sandstream_bus.logs.sessions import SessionRefused
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.fresh import fresh_last
from sandstream_bus.wire.sessions import (
    MAX_QUEUED,
    MAX_TEXT_BYTES,
    ConfigureSession,
    CreateSession,
    DestroySession,
    EditMessage,
    ForkSession,
    InterruptSession,
    PauseSession,
    RemoveMessage,
    RewindSession,
    SendMessage,
    SessionDue,
    SessionState,
    SwitchProvider,
    WakeSession,
)
from sandstream_bus.wire.subjects import session_conversation, session_sandbox
from support.nats_server import NatsServer
from support.waiting import eventually

pytestmark = pytest.mark.timeout(120)


def test_two_people_and_two_replicas_lose_no_message(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.start_sessions()
            await it.create("a", TALKER)
            other = await it.bus_of()
            texts = [f"{who}-{number}" for who in ("ann", "bea") for number in range(20)]

            async def types(who: str, bus: object) -> None:
                for text in texts:
                    if text.startswith(who):
                        await (it.bus if bus is None else other).sessions.request(
                            "a", SendMessage(input=text, id=text)
                        )

            await asyncio.gather(types("ann", None), types("bea", other))
            last = await it.bus.sessions.request("a", SendMessage(input="end", id="end"))
            await it.bus.sessions.applied("a", last, timeout_s=30)
            await it.idle("a")
            taken = [m.input for t in await it.bus.sessions.turns("a") for m in t.input]
            assert sorted(taken) == sorted([*texts, "end"])
            for who in ("ann", "bea"):
                mine = [text for text in taken if text.startswith(who)]
                assert mine == [text for text in texts if text.startswith(who)]

    asyncio.run(main())


def test_the_101st_message_and_big_ones_are_refused(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="hang")
            await it.at_work("a")
            for number in range(MAX_QUEUED):
                await it.bus.sessions.request("a", SendMessage(input=f"{number}", id=f"{number}"))
            with pytest.raises(SessionRefused, match="100 messages wait already") as full:
                await it.ask("a", SendMessage(input="one too many"))
            assert full.value.info.code == "session.full"
            await it.ask("a", SendMessage(input="again", id="7"))  # a repeated one is no new one
            await it.ask("a", RemoveMessage(id="0"))
            state = await it.ask("a", EditMessage(id="1", input="edited"))
            assert [message.input for message in state.queue[:2]] == ["edited", "2"]
            await it.ask("a", SendMessage(input="fits now"))
            for request, why in (
                (SendMessage(input="x" * (MAX_TEXT_BYTES + 1)), "262144 are allowed"),
                (SendMessage(input=" \n"), "must not be empty"),
                (SendMessage(input="x", id="i" * 200), "at most 128"),
                (EditMessage(id="0", input="late"), "a turn may have taken it"),
                (RemoveMessage(id="never"), "a turn may have taken it"),
            ):
                with pytest.raises(SessionRefused, match=why):
                    await it.ask("a", request)
            await it.ask("a", DestroySession())

    asyncio.run(main())


def test_requests_that_make_no_sense_are_answered(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            for early in (SendMessage(input="x"), WakeSession(), DestroySession()):
                with pytest.raises(SessionRefused, match="there is no session nowhere"):
                    await it.ask("nowhere", early)
            for request, why in (
                (CreateSession(agent="stranger"), "no agent 'stranger' is registered"),
                (CreateSession(agent=SMITH, idle_s=-1), "idle_s must be"),
                (CreateSession(agent=SMITH, provider="a.b"), "cannot be the name of a provider"),
                (CreateSession(agent=TALKER, provider="local"), "has no sandbox"),
                (CreateSession(agent=SMITH, title="x" * 201), "at most 200"),
            ):
                with pytest.raises(SessionRefused, match=why):
                    await it.ask("nowhere", request)
            state = await it.create("nowhere", TALKER)
            assert state.life == "open"
            with pytest.raises(SessionRefused, match="exists: choose another id"):
                await it.create("nowhere", TALKER)
            for kind, data, why in (
                ("send", b"{", "does not fit its schema"),
                ("send", b'{"text":"x"}', "unknown field"),
                ("explode", b"{}", "it knows create, send"),
            ):
                subject = it.bus.subjects.ask_session("shared", "nowhere", kind)
                ack = await it.bus.connection.publish(subject, data, msg_id=f"bad-{why}")
                with pytest.raises(SessionRefused, match=why):
                    await it.bus.sessions.applied("nowhere", ack.seq, timeout_s=30)
            assert (await it.say("nowhere", "hello")).said == "Hello."

    asyncio.run(main())


def test_a_session_of_another_user_is_not_touched(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            before = await it.create("alice=a", TALKER)
            for user in ("bob", "shared"):
                await it.bus.sessions.request("alice=a", DestroySession(), user=user)

            async def parked() -> bool:
                return len(await it.bus.parking.list(10)) == 2

            await eventually(parked, what="the requests are parked")
            entries = await it.bus.parking.list(10)
            assert all("belongs to the user alice" in entry.parked.reason for entry in entries)
            assert await it.state("alice=a") == before

    asyncio.run(main())


def test_a_turn_whose_agent_is_gone_fails_and_the_session_goes_on(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", TALKER)
            agents, subject = it.bus.topology.agents, it.bus.subjects.agent(TALKER)
            registered = await it.bus.agents.find(TALKER)
            assert registered is not None
            await it.bus.connection.request(
                f"$JS.API.STREAM.PURGE.{agents}", msgspec.json.encode({"filter": subject})
            )
            state = await it.say("a", "anybody?")
            assert (state.status, state.turn) == ("failed", 1)
            assert "no agent 'talker' is registered any more" in state.said
            await it.bus.agents.register(registered, instance="again")
            state = await it.say("a", "and now?")
            assert (state.status, state.said) == ("completed", "Hello.")

    asyncio.run(main())


def test_a_provider_that_is_gone_at_wake_is_named_and_the_session_can_go_elsewhere(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="count")
            await it.idle("a")
            await it.ask("a", PauseSession())
            state = await it.until_box("a", "asleep")
            stored = await it.bus.sessions.read("a")
            space = state.workspace
            assert space is not None
            elsewhere = msgspec.structs.replace(space, provider="mars")
            await it.bus.sessions.write(
                msgspec.structs.replace(state, workspace=elsewhere), after=stored.sequence
            )
            with pytest.raises(SessionRefused, match="or switch to another provider") as gone:
                await it.ask("a", WakeSession())
            assert gone.value.info.code == "session.no_sandbox_actor"
            assert "mars" in (await it.state("a")).trouble
            await it.ask("a", SwitchProvider(provider="local"))
            state = await it.say("a", "count")
            assert state.trouble == ""
            turn = await it.bus.sessions.turn("a", 2)
            assert turn is not None
            assert await it.saved(turn.tree, "counter") == "x\nx\n"

    asyncio.run(main())


def test_a_session_whose_box_is_out_of_reach_can_be_forked_from_its_last_turn(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            it.actors[0]._bus.sandboxes.patience_s = 0.2
            await it.create("a", idle_s=None, input="count")
            await it.idle("a")
            await it.sandboxes.stop(0.0)
            for session, request in (
                ("a", SwitchProvider(provider="mars")),
                ("b", ForkSession(source="a")),
            ):
                with pytest.raises(SessionRefused, match="fork that turn instead") as refused:
                    await it.ask(session, request)
                assert refused.value.info.code == "session.no_sandbox_actor"
            fork = await it.ask("b", ForkSession(source="a", turn=1, provider="mars"))
            source = await it.state("a")
            assert fork.workspace is not None and source.workspace is not None
            assert (fork.workspace.provider, fork.workspace.tree) == ("mars", source.workspace.tree)

    asyncio.run(main())


def test_a_turn_that_waits_for_its_provider_says_so_and_can_be_stopped(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", provider="mars", input="count")

            async def told() -> str:
                return (await it.state("a")).trouble

            assert "no actor serves the provider mars" in await eventually(told, what="trouble")
            await it.ask("a", InterruptSession())
            state = await it.idle("a")
            assert (state.status, state.trouble) == ("cancelled", "")
            await it.ask("a", SwitchProvider(provider="local"))
            state = await it.say("a", "count")
            assert (state.status, state.turn) == ("completed", 2)

    asyncio.run(main())


def test_a_paused_session_sleeps_as_soon_as_its_sandbox_actor_is_back(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            it.actors[0]._bus.sandboxes.patience_s = 0.2
            await it.create("a", idle_s=1.0, input="count")
            await it.idle("a")
            await it.sandboxes.stop(0.0)
            await it.ask("a", PauseSession())

            async def told() -> str:
                return (await it.state("a")).trouble

            assert "the workspace cannot sleep" in await eventually(told, what="trouble")
            await it.start_sandboxes()
            state = await it.until_box("a", "asleep")
            assert (state.life, state.trouble) == ("paused", "")

    asyncio.run(main())


def test_a_checkpoint_that_cannot_be_restored_is_told(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="count")
            await it.idle("a")
            await it.ask("b", ForkSession(source="a"))
            bucket = f"OBJ_{it.bus.topology.bucket}"
            await it.bus.connection.request(f"$JS.API.STREAM.PURGE.{bucket}", b"")
            with pytest.raises(SessionRefused) as lost:
                await it.ask("b", WakeSession())
            assert lost.value.kind == "wake"
            state = await it.say("b", "count")
            assert state.status == "failed"
            assert state.trouble != ""
            await it.ask("b", DestroySession())

    asyncio.run(main())


def test_a_lost_box_continues_from_the_last_turn(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", idle_s=None, input="count")
            await it.idle("a")
            record = await it.record("a")
            await it.sandboxes.provider.delete(record.key)
            it.sandboxes.lifecycle.forget_all()
            await it.say("a", "count")
            turn = await it.bus.sessions.turn("a", 2)
            assert turn is not None
            assert await it.saved(turn.tree, "counter") == "x\nx\n"

    asyncio.run(main())


def test_a_timer_that_comes_late_or_from_elsewhere_has_no_effect(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", idle_s=None, input="count")
            await it.idle("a")
            for begun in (0, 1, 2):
                await it.actors[0].advance("a", SessionDue(session="a", begun=begun))
            await it.actors[0].advance("nothing", SessionDue(session="nothing", begun=0))
            state = await it.state("a")
            assert state.workspace is not None
            assert state.workspace.box == "open"
            due = it.bus.subjects.due(it.bus.subjects.session_idle("a"))
            await it.bus.connection.publish(due, b'{"type":"session.due"}', msg_id="forged")

            async def parked() -> bool:
                found = await it.bus.parking.list(10)
                return [entry.parked.reason for entry in found] != []

            await eventually(parked, what="the forged timer is parked")

    asyncio.run(main())


def test_everything_at_once_ends_in_order(nats_server: NatsServer, tmp_path: Path) -> None:
    """A message during a fork, a switch, a pause and a destroy."""

    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.start_sessions()
            await it.create("a", input="count")
            await it.idle("a")
            sessions = it.bus.sessions
            for request in (
                SwitchProvider(provider="local"),
                SendMessage(input="count"),
                PauseSession(),
                SendMessage(input="count"),
            ):
                await sessions.request("a", request)
            await sessions.request("b", ForkSession(source="a"))
            await sessions.request("b", SendMessage(input="count"))
            last = await sessions.request("a", SendMessage(input="count"))
            await sessions.applied("a", last, timeout_s=30)
            state = await it.idle("a")
            assert state.refused == []
            assert state.workspace is not None
            words = await it.saved(state.workspace.tree, "counter")
            turns = await sessions.turns("a")
            assert words == "x\n" * len(turns)
            assert sum(len(turn.input) for turn in turns) == 4
            fork = await _begun(it, "b")
            assert fork.turn == 1
            await sessions.request("a", SendMessage(input="hang"))
            await sessions.request("a", DestroySession())
            end = await sessions.request("a", SendMessage(input="too late"))
            with pytest.raises(SessionRefused, match="was destroyed"):
                await sessions.applied("a", end, timeout_s=30)
            await it.ask("b", DestroySession())

            async def no_box() -> bool:
                return not it.boxes()

            await eventually(no_box, within_s=30, what="no box is left")

    async def _begun(it: Desk, session: str) -> SessionState:
        async def look() -> SessionState | None:
            state = (await it.bus.sessions.read(session)).state
            is_done = state is not None and state.turn and state.active is None
            return state if is_done else None

        return await eventually(look, within_s=30, what=f"{session} has worked")

    asyncio.run(main())


def test_a_fork_that_failed_half_way_leaves_nothing_to_the_next_one(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            for name, text in (("a", "one"), ("b", "two")):
                await it.create(name, TALKER, input=text)
                await it.idle(name)
            # someone clears the conversation behind the back of the session
            await it.bus.conversations.clear(session_conversation("a"))
            with pytest.raises(SessionRefused, match="conversation was removed"):
                await it.ask("f", ForkSession(source="a"))
            with pytest.raises(SessionRefused, match="choose another id"):
                await it.ask("f", ForkSession(source="b"))
            await it.ask("g", ForkSession(source="b"))
            assert await it.history("g") == await it.history("b")

    asyncio.run(main())


def test_names_of_a_session_cannot_be_taken_by_a_task(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", TALKER)
            task = it.bus.subjects.task(TALKER)
            await it.bus.connection.publish(task, b'{"input":"x"}', msg_id="a_t1-session")
            await it.bus.connection.publish(
                task, b'{"input":"x","session":"@/a"}', msg_id="intruder"
            )

            async def refused() -> bool:
                return await it.bus.log.last(it.bus.subjects.done("intruder")) is not None

            await eventually(refused, what="the task is refused")
            state = await it.say("a", "hello")
            assert (state.said, state.turn, len(await it.history("a"))) == ("Hello.", 1, 2)
            assert session_sandbox("a", 1) not in await it.bus.sandboxes.names()

    asyncio.run(main())


def test_the_run_of_a_turn_cannot_be_retried(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", input="hang")
            await it.at_work("a")
            await it.ask("a", InterruptSession())
            await it.idle("a")
            run = "a_t1-session"
            subject = it.bus.subjects.ask_run("shared", run, "retry")
            await it.bus.connection.publish(subject, b"{}", msg_id="again")

            async def parked() -> bool:
                found = await it.bus.parking.list(10)
                return any("send the message again" in entry.parked.reason for entry in found)

            await eventually(parked, what="the retry is refused")

    asyncio.run(main())


def test_a_timer_that_fired_without_effect_is_armed_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", idle_s=3.0, input="count")
            subjects, timers = it.bus.subjects, it.bus.topology.timers

            async def has(subject: str) -> bool:
                return await fresh_last(it.bus.connection, timers, subject) is not None

            timer, due = subjects.timer("a", TIMER), subjects.due(subjects.session_idle("a"))
            await eventually(lambda: has(timer), within_s=60, what="the timer is armed")
            await it.ask("a", ConfigureSession(idle_s=None))
            await eventually(lambda: has(due), within_s=60, what="the timer has fired")
            await it.ask("a", ConfigureSession(idle_s=3.0))
            await it.until_box("a", "asleep")

    asyncio.run(main())


def test_a_fork_that_was_interrupted_does_not_mix_two_histories(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """A replica dies after it has chosen the turn; the source is rewound and goes on meanwhile."""

    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", TALKER)
            await it.say("a", "one")
            await it.say("a", "two")
            chosen = await it.bus.sessions.turn("a", 2)
            assert chosen is not None
            record = msgspec.structs.replace(chosen, number=0, after=2, input=[])
            await it.bus.sessions.record("b", record)
            await it.ask("a", RewindSession(turn=1))
            await it.say("a", "instead of two")
            with pytest.raises(SessionRefused, match="has no turn 2"):
                await it.ask("b", ForkSession(source="a", turn=2))
            assert await it.history("b") == []

    asyncio.run(main())


def test_long_texts_of_refused_requests_are_cut(nats_server: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", TALKER)
            subject = it.bus.subjects.ask_session("shared", "a", "send")
            body = b'{"input":"x","%s":1}' % (b"f" * 100_000)
            ack = await it.bus.connection.publish(subject, body, msg_id="long")
            with pytest.raises(SessionRefused, match="unknown field") as refused:
                await it.bus.sessions.applied("a", ack.seq, timeout_s=30)
            assert len(str(refused.value)) <= 1000

    asyncio.run(main())


def test_a_hint_that_comes_before_the_leader_has_it_is_not_lost(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            last = await it.bus.sessions.request("a", CreateSession(agent=TALKER))
            await it.bus.sessions.applied("a", last, timeout_s=30)
            subject = it.bus.subjects.ask_session("shared", "a", "send")
            reply = f"$JS.ACK.S.c.1.{last + 1}.1.1700000000000000000.0"
            early = Delivery(Msg(Client(), subject, reply, b"", {}))
            handling = asyncio.ensure_future(it.actors[0].handle(early))
            await asyncio.sleep(0.5)
            assert not handling.done()
            await it.bus.sessions.request("a", SendMessage(input="hello"))
            await handling
            assert (await it.idle("a")).said == "Hello."

    asyncio.run(main())


def test_a_registration_that_cannot_be_read_fails_the_turn_and_not_the_session(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", TALKER)
            registered = await it.bus.agents.find(TALKER)
            assert registered is not None
            odd = b'{"type":"agent.registered","graph":7}'
            await it.bus.connection.publish(it.bus.subjects.agent(TALKER), odd, msg_id="newer")
            state = await it.say("a", "anybody?")
            assert (state.status, state.turn) == ("failed", 1)
            assert "cannot be read" in state.said
            with pytest.raises(SessionRefused, match="no agent 'talker'"):
                await it.create("b", TALKER)
            await it.bus.agents.register(registered, instance="again")
            assert (await it.say("a", "and now?")).status == "completed"

    asyncio.run(main())


def test_a_state_that_cannot_be_read_hides_no_other_session(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("a", TALKER)
            odd = b'{"type":"session.state","session":"b","life":"newer"}'
            await it.bus.connection.publish(it.bus.subjects.session_state("b"), odd, msg_id="b")
            assert [state.session for state in await it.bus.sessions.states()] == ["a"]

    asyncio.run(main())
