"""Messages become turns: one at a time, in order, each with a checkpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.sessions.desk import TALKER, desk
from sandstream_bus.wire.sessions import SendMessage
from support.nats_server import NatsServer


def test_a_session_remembers_its_conversation_and_its_files(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("alice=blog", title="Blog")
            for number in (1, 2):
                state = await it.say("alice=blog", f"Please count, {number}.")
                assert (state.turn, state.status, state.said) == (number, "completed", "did count")
                turn = await it.bus.sessions.turn("alice=blog", number)
                assert turn is not None
                assert turn.run == f"alice=blog_t{number}-session"
                assert await it.saved(turn.tree, "counter") == "x\n" * number
                assert turn.items == len(await it.history("alice=blog")) == 4 * number
                assert (turn.after, turn.provider, turn.unsaved) == (number - 1, "local", "")
                assert await it.saved(turn.tree, "given.txt") == "given\n"
            assert len(it.boxes()) == 1
            assert state.usage.requests == 4

    asyncio.run(main())


def test_an_agent_without_a_sandbox_has_sessions_too(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            await it.create("talk", TALKER, input="Hi.")
            state = await it.idle("talk")
            assert (state.said, state.workspace, state.title) == ("Hello.", None, "Hi.")
            turn = await it.bus.sessions.turn("talk", 1)
            assert turn is not None
            assert turn.tree == ""

    asyncio.run(main())


def test_messages_that_wait_are_taken_together_or_one_by_one(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def main() -> None:
        async with desk(nats_server, tmp_path / "home") as it:
            for session, take, turns in (("a", "all", 1), ("b", "one", 3)):
                await it.create(session, TALKER, take=take)
                await it.actors[0].stop()
                for number in range(3):
                    await it.bus.sessions.request(session, SendMessage(input=f"{number}"))
                it.actors[:] = [await it.start_sessions()]
                await it.bus.sessions.applied(
                    session, await it.bus.sessions.request(session, SendMessage(input="x", id="m"))
                )
                state = await it.idle(session)
                assert len(state.seen) == 4
                assert state.turn >= turns
                turns_taken = await it.bus.sessions.turns(session)
                said = [message.input for turn in turns_taken for message in turn.input]
                assert said == ["0", "1", "2", "x"]

    asyncio.run(main())
