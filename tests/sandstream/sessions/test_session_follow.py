"""Following sessions: from the log, then live, without a gap, through an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from sandstream_bus.wire.messages import ModelAnswered, RunDone, RunStarted
from support.nats_server import NatsServer
from support.session_world import info_when, until, world

from sandstream.sessions import (
    CommandOutput,
    RunStep,
    SessionChanged,
    SessionEvent,
    SessionNotFound,
    TextDelta,
    TurnBegan,
    TurnEnded,
)
from sandstream.settings import Settings
from sandstream.testing import script_for, text, tool_call

pytestmark = pytest.mark.usefixtures("home")


def _is_end(event: SessionEvent) -> bool:
    return isinstance(event, TurnEnded)


def _is_answer(event: SessionEvent) -> bool:
    return isinstance(event, RunStep) and isinstance(event.row.event, ModelAnswered)


def _kinds(events: list[SessionEvent]) -> list[str]:
    """The names of the events; those of runs by their own type, deltas once."""
    names: list[str] = []
    for it in events:
        name = type(it.row.event).__name__ if isinstance(it, RunStep) else type(it).__name__
        if name != "TextDelta" or names[-1:] != [name]:
            names.append(name)
    return [it for it in names if it != "SessionChanged"]


TURN = [
    *("TurnBegan", "RunStarted", "ConversationOpened"),
    *("TextDelta", "ModelAnswered", "RunDone", "TurnEnded"),
]


def test_a_follower_tells_turns_in_order() -> None:
    async def main() -> None:
        script = [script_for("hello", [text("Hi there."), text("Hi again.")])]
        async with world("sfo1", script) as (client, _, _):
            session = await client.sessions.create("plain")
            async with aclosing(session.follow()) as events:
                first = await anext(events)
                assert isinstance(first, SessionChanged) and first.info.activity == "idle"
                await session.send("hello")
                seen = await until(events, _is_end)
                assert _kinds(seen) == TURN
                said = "".join(it.text for it in seen if isinstance(it, TextDelta))
                assert said == "Hi there."
                states = [it.info.activity for it in seen if isinstance(it, SessionChanged)]
                assert states[0] == "working"
                await session.send("and again")
                assert _kinds(await until(events, _is_end)) == TURN
                await session.destroy()
                rest = [it async for it in events]
                last = rest[-1]
                assert isinstance(last, SessionChanged) and last.info.life == "destroyed"

    asyncio.run(main())


def test_past_turns_are_told_if_they_are_wanted() -> None:
    async def main() -> None:
        steps = [text("One."), text("Two."), text("Three.")]
        async with world("sfo2", [script_for("hello", steps)]) as (client, _, _):
            session = await client.sessions.create("plain")
            for said in ("hello", "again", "more"):
                await (await session.send(said)).answer()
            await session.rewind(2)
            async with aclosing(session.follow(since=1)) as events:
                seen = await until(events, _is_end)
            began = next(it for it in seen if isinstance(it, TurnBegan))
            assert (began.turn, began.is_past) == (2, True)
            assert _kinds(seen) == [it for it in TURN if it != "TextDelta"]
            await session.destroy()
            await info_when(client, session.id, lambda it: it.life == "destroyed")
            told = [it async for it in session.follow(since=0)]
            assert [it.turn.number for it in told if isinstance(it, TurnEnded)] == [1, 2]

    asyncio.run(main())


def test_a_follower_that_joins_in_a_turn_misses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        script = [
            script_for(
                "work", [tool_call("exec_command", _command(tmp_path / "go")), text("Finished.")]
            ),
        ]
        async with world("sfo3", script, sandboxes=True) as (client, _, _):
            session = await client.sessions.create("coder", idle_s=None)
            sent = await session.send("work")
            async with aclosing(session.follow()) as first:
                await until(first, lambda it: isinstance(it, CommandOutput))
                async with aclosing(session.follow()) as second:
                    joined = await until(second, lambda it: isinstance(it, RunStep))
                    fork = await session.fork()  # from before the turn: it does not wait for it
                    assert (await fork.info()).origin is not None
                    (tmp_path / "go").touch()
                    late = [*joined, *await until(second, _is_end)]
                early = await until(first, _is_end)
            assert await sent.answer() == "Finished."
            rows = [it.row for it in late if isinstance(it, RunStep)]
            assert isinstance(rows[0].event, RunStarted) and isinstance(rows[-1].event, RunDone)
            sequences = [it.sequence for it in rows if it.run == rows[0].run]
            assert sequences == sorted(set(sequences))
            for seen in (early, late):
                output = "".join(it.text for it in seen if isinstance(it, CommandOutput))
                assert output.endswith("late\n")
            end = late[-1]
            assert isinstance(end, TurnEnded) and end.turn.tree
            assert (await session.info()).checkpoint == end.turn.tree

    asyncio.run(main())


def _command(signal: Path) -> dict[str, object]:
    """A command that goes on when the file is there."""
    wait = f"until [ -e {signal} ]; do sleep 0.05; done"
    return {"cmd": f"echo early; {wait}; echo late", "yield_time_ms": 30_000}


def test_an_outage_of_the_server_only_delays_a_follower(tmp_path: Path) -> None:
    async def main() -> None:
        server = NatsServer(tmp_path)
        server.start()
        try:
            server.set_up("sfo4")
            settings = Settings.from_env({"SANDSTREAM_PREFIX": "sfo4", "NATS_URL": server.url})
            script = [script_for("hello", [text("Hi.").after(1.0), text("Hi again.")])]
            async with world("sfo4", script, settings=settings) as (client, _, _):
                session = await client.sessions.create("plain")
                async with aclosing(session.follow()) as events:
                    await session.send("hello")
                    seen = await until(events, lambda it: isinstance(it, RunStep))
                    await asyncio.to_thread(server.restart)
                    seen += await until(events, _is_end)
                    server.kill()
                    while client.bus.connection.is_connected:
                        await asyncio.sleep(0.01)
                    await asyncio.to_thread(server.start)
                    await session.send("more")
                    seen += await until(events, _is_end)
                told = [it for it in _kinds(seen) if it != "TextDelta"]
                assert told == 2 * [it for it in TURN if it != "TextDelta"]
        finally:
            server.stop()

    asyncio.run(main())


def test_questions_change_what_a_follower_tells_of_the_session() -> None:
    async def main() -> None:
        wish = [tool_call("deploy", {"place": "prod"}), text("Done.")]
        script = [
            script_for("deploy it", wish),
            script_for("delegate", [tool_call("ask_careful", {"input": "deploy it"}), text("Ok.")]),
        ]
        async with world("sfo5", script) as (client, _, _):
            session = await client.sessions.create("boss")
            async with aclosing(session.follow(deltas=False)) as events:
                await session.send("delegate")
                seen = await until(events, _is("needs you"))
                steps = [it for it in seen if isinstance(it, RunStep) and it.depth]
                assert {it.name for it in steps} == {"ask_careful"}
                assert not any(isinstance(it, TextDelta) for it in seen)
                await session.approve()
                await until(events, _is("working"))
                await until(events, _is_end)

    asyncio.run(main())


def _is(activity: str) -> Callable[[SessionEvent], bool]:
    return lambda it: isinstance(it, SessionChanged) and it.info.activity == activity


def test_a_session_that_does_not_exist_cannot_be_followed() -> None:
    async def main() -> None:
        async with world("sfo6") as (client, _, _):
            session = await client.sessions.create("plain")
            session.id = "ghost"
            with pytest.raises(SessionNotFound):
                await anext(session.follow())

    asyncio.run(main())
