"""Sessions as their users hold them: create, send, look, change; refusals and bad input."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.session_world import info_when, world

from sandstream import Client, UserError
from sandstream.sessions import (
    DurableSession,
    MessageGone,
    SessionNotFound,
    SessionRefused,
    Sessions,
    SessionUnanswered,
    TurnFailed,
)
from sandstream.sessions.link import SessionLink
from sandstream.testing import error, script_for, text, tool_call
from sandstream.testing.journal import Request
from sandstream.testing.request_reader import conversation_items

pytestmark = pytest.mark.usefixtures("home")


def test_a_session_answers_and_remembers() -> None:
    async def main() -> None:
        script = [script_for("hello", [text("Hi."), text("You said hello.")])]
        async with world("ses1", script) as (client, model, _):
            async with await client.sessions.create("plain", title="Talk") as session:
                first = await session.send("hello")
                assert await first.answer() == "Hi."
                second = await session.send("What did I say?")
                assert await second.answer() == "You said hello."
            turns = await session.turns()
            assert [(it.number, it.after, it.status, it.said) for it in turns] == [
                (1, 0, "completed", "Hi."),
                (2, 1, "completed", "You said hello."),
            ]
            assert (await second.turn()).run == turns[1].run
            assert [it.get("content") for it in await session.history()][::2] == [
                "hello",
                "What did I say?",
            ]
            info = await session.info()
            assert (info.title, info.agent, info.activity, info.turn) == (
                *("Talk", "plain", "idle"),
                2,
            )
            assert info.usage.requests == 2 and info.provider == ""
            assert [it.id for it in await client.sessions.list()] == [session.id]
            assert len(model.requests) == 2

    asyncio.run(main())


def test_the_same_id_is_the_same_session_and_the_same_message() -> None:
    async def main() -> None:
        script = [script_for("hello", [text("Hi.")])]
        async with world("ses2", script) as (client, model, _):
            session = await client.sessions.create("plain", id="one")
            again = await client.sessions.create("plain", id="one", title="other")
            assert again.id == session.id and (await again.info()).refusal is None
            with pytest.raises(SessionRefused, match="exists") as refused:
                await client.sessions.create("careful", id="one")
            assert refused.value.code == "session.exists"
            sent = await session.send("hello", id="greeting")
            assert await sent.answer() == "Hi."
            repeated = await session.send("hello", id="greeting")
            assert await repeated.answer() == "Hi."
            assert len(model.requests) == 1
            found = await client.sessions.get("one")
            assert (await found.info()).turn == 1

    asyncio.run(main())


def test_messages_wait_while_a_turn_works_and_can_be_changed() -> None:
    async def main() -> None:
        script = [script_for("slow", [text("Late.").after(60)]), script_for("next", [text("Ok.")])]
        async with world("ses3", script) as (client, _, _):
            session = await client.sessions.create("plain", input="slow")
            await info_when(client, session.id, lambda it: it.activity == "working")
            kept = await session.send("nexd")
            dropped = await session.send("drop this")
            assert [it.input for it in await session.queue()] == ["nexd", "drop this"]
            await session.edit(kept.id, "next")
            info = await session.remove(dropped.id)
            assert [it.input for it in info.queue] == ["next"]
            with pytest.raises(MessageGone):
                await dropped.answer()
            with pytest.raises(SessionRefused) as refused:
                await session.edit(dropped.id, "too late")
            assert refused.value.code == "session.not_waiting" and refused.value.kind == "edit"
            with pytest.raises(SessionRefused, match="not at work"):
                await session.interrupt(turn=7)
            await session.interrupt(reason="too slow")
            assert await kept.answer() == "Ok."
            first, second = await session.turns()
            assert (first.status, second.status) == ("cancelled", "completed")
            assert [it.input for it in second.input] == ["next"]

    asyncio.run(main())


def test_a_turn_that_fails_raises_with_its_code() -> None:
    async def main() -> None:
        script = [script_for("break", [error(400, code="bad", message="No luck.").forever()])]
        async with world("ses4", script) as (client, _, _):
            session = await client.sessions.create("plain")
            sent = await session.send("break")
            with pytest.raises(TurnFailed, match="No luck") as failed:
                await sent.answer()
            assert (failed.value.turn, failed.value.status) == (1, "failed")
            assert failed.value.code and failed.value.code != TurnFailed.code
            info = await session.info()
            assert info.activity == "failed" and "No luck" in info.doing

    asyncio.run(main())


def _is_last(word: str) -> Callable[[Request], bool]:
    """Is the word the last that was said?"""
    return lambda request: word in str(conversation_items(request.body)[-1])


def test_a_model_that_no_longer_exists_fails_the_turn_and_not_the_session() -> None:
    async def main() -> None:
        gone = "The model `gpt-5` does not exist or you do not have access to it."
        script = [
            script_for(
                "hello",
                [
                    text("Hi."),
                    error(404, code="model_not_found", message=gone).when(_is_last("work")),
                    text("Here I am."),
                ],
            )
        ]
        async with world("ses10", script) as (client, model, _):
            session = await client.sessions.create("plain")
            assert await (await session.send("hello")).answer() == "Hi."
            with pytest.raises(TurnFailed, match="check the name of the model") as failed:
                await (await session.send("work")).answer()
            assert (failed.value.turn, failed.value.status) == (2, "failed")
            info = await session.info()
            assert info.activity == "failed" and gone in info.doing
            assert len(model.requests) == 2  # asking again would not help
            # the next message works as soon as there is a model again
            assert await (await session.send("again")).answer() == "Here I am."
            said = str(model.requests[-1]["input"])
            assert "Hi." in said and "again" in said
            assert [it.status for it in await session.turns()] == [
                "completed",
                "failed",
                "completed",
            ]

    asyncio.run(main())


def test_people_pause_rename_configure_archive_and_destroy() -> None:
    async def main() -> None:
        async with world("ses5", [script_for("hello", [text("Hi.")])]) as (client, _, _):
            session = await client.sessions.create("plain", id="one", take="one", idle_s=None)
            info = await session.info()
            assert (info.take, info.idle_s) == ("one", None)
            info = await session.configure(idle_s=12)
            assert (info.take, info.idle_s) == ("one", 12)
            assert (await session.configure(take="all")).take == "all"
            assert (await session.rename("  New   title ")).title == "New title"
            assert (await session.pause()).activity == "paused"
            assert (await session.wake()).activity == "idle"
            assert (await session.archive()).activity == "archived"
            assert await client.sessions.list() == []
            assert [it.id for it in await client.sessions.list(archived=True)] == ["one"]
            assert await (await session.send("hello")).answer() == "Hi."
            assert [it.life for it in await client.sessions.list()] == ["open"]
            assert (await session.destroy()).is_over
            assert await client.sessions.list(archived=True) == []
            with pytest.raises(SessionRefused) as refused:
                await session.send("hello")
            assert refused.value.code == "session.destroyed"
            assert [it.id for it in await client.sessions.list(destroyed=True)] == ["one"]

    asyncio.run(main())


def test_calls_that_wait_for_a_person_are_listed_and_decided() -> None:
    async def main() -> None:
        wish = [tool_call("deploy", {"place": "prod"}), text("Done.")]
        deeper = [tool_call("ask_careful", {"input": "deploy it"}), text("All done.")]
        script = [
            script_for("deploy it", wish),
            script_for("delegate", deeper),
            script_for("deploy now", wish),
        ]
        async with world("ses6", script) as (client, model, _):
            session = await client.sessions.create("careful")
            sent = await session.send("deploy now")
            info = await info_when(client, session.id, lambda it: it.activity == "needs you")
            assert info.active is not None and info.active.number == 1
            assert [it.activity for it in await client.sessions.list()] == ["needs you"]
            (waiting,) = await session.approvals()
            assert (waiting.tool, waiting.run_id) == ("deploy", info.active.run)
            with pytest.raises(UserError, match="no call 'nope'"):
                await session.approve("nope")
            await session.approve(waiting, by="ann")
            assert await sent.answer() == "Done."
            assert await session.approvals() == []

            above = await client.sessions.create("boss")
            sent = await above.send("delegate")
            await info_when(client, above.id, lambda it: it.activity == "needs you")
            (waiting,) = await above.approvals()
            assert waiting.run_id != waiting.root_run
            assert (await above.reject(message="Not today.", by="ann")).call == waiting.call
            assert await sent.answer() == "All done."
            assert (await above.info()).activity == "idle"
            told = [it for it in model.requests if "Not today." in str(it)]
            assert told

    asyncio.run(main())


def test_a_fork_and_a_rewind_go_back_to_a_turn() -> None:
    async def main() -> None:
        steps = [text("One."), text("Two."), text("Two again.")]
        async with world("ses7", [script_for("first", steps)]) as (client, _, _):
            session = await client.sessions.create("plain", title="Story")
            await (await session.send("first")).answer()
            await (await session.send("second")).answer()
            fork = await session.fork(turn=1, title="Other way", id="other")
            info = await fork.info()
            assert (info.id, info.title) == ("other", "Other way")
            assert info.origin is not None
            assert (info.origin.session, info.origin.turn) == (session.id, 1)
            assert len(await fork.history()) == 2 and len(await session.history()) == 4
            info = await session.rewind(1)
            assert (info.turn, info.begun) == (1, 2)
            assert len(await session.history()) == 2
            assert [it.number for it in await session.turns()] == [1]
            assert [it.number for it in await session.turns(rewound=True)] == [1, 2]
            with pytest.raises(SessionRefused) as refused:
                await session.rewind(2)
            assert refused.value.code.startswith("session.")
            with pytest.raises(SessionRefused):
                await session.fork(turn=9)

    asyncio.run(main())


def test_what_is_not_there_is_named() -> None:
    async def main() -> None:
        async with world("ses8") as (client, _, actors):
            with pytest.raises(SessionNotFound, match="'nothing'"):
                await client.sessions.get("nothing")
            with pytest.raises(SessionRefused) as refused:
                await client.sessions.create("nope", id="never")
            assert refused.value.code == "session.unknown_agent"
            with pytest.raises(SessionNotFound):
                await client.sessions.get("never")
            assert await client.sessions.list(destroyed=True) == []
            session = await client.sessions.create("plain", id="one")
            await actors.aclose()
            with pytest.raises(SessionUnanswered, match="no sessions actor is running"):
                await session.send("hello")
            ghost = DurableSession(SessionLink(client.bus, None), "ghost")
            with pytest.raises(SessionNotFound):
                await ghost.send("hello")

    asyncio.run(main())


BAD: list[tuple[str, Callable[[Sessions, DurableSession], Awaitable[Any]]]] = [
    ("agent's name", lambda all, one: all.create("")),
    ("'a b'", lambda all, one: all.create("plain", id="a b")),
    ("'_t1-x'", lambda all, one: all.create("plain", id="_t1-x")),
    ("take must be", lambda all, one: all.create("plain", take="some")),  # type: ignore[arg-type]
    ("idle_s must", lambda all, one: all.create("plain", idle_s=0)),
    ("name the provider", lambda all, one: all.create("plain", options={"image": "x"})),
    ("options must be JSON", lambda all, one: all.create("p", provider="e2b", options={"a": all})),
    ("context must be JSON", lambda all, one: all.create("plain", context={"a": all})),
    ("title has 201", lambda all, one: all.create("plain", title="x" * 201)),
    ("provider", lambda all, one: all.create("plain", provider="a b")),
    ("no provider 'nope': known are local,", lambda all, one: all.create("coder", provider="nope")),
    ("no provider 'nope'", lambda all, one: one.fork(provider="nope")),
    ("no provider 'nope'", lambda all, one: one.switch("nope")),
    ("is empty", lambda all, one: one.send("  ")),
    ("surrogate", lambda all, one: one.send("\ud800")),
    ("bytes", lambda all, one: one.send("x" * 300_000)),
    ("message id", lambda all, one: one.send("x", id="")),
    ("must be text", lambda all, one: one.send(7)),  # type: ignore[arg-type]
    ("a turn is", lambda all, one: one.rewind(-1)),
    ("a turn is", lambda all, one: one.fork(turn=True)),
    ("title is empty", lambda all, one: one.rename("")),
    ("take must be", lambda all, one: one.configure(take="x")),  # type: ignore[arg-type]
    ("provider", lambda all, one: one.switch("")),
]


def test_bad_input_is_refused_before_anything_is_published() -> None:
    async def main() -> None:
        async with world("ses9") as (client, _, _):
            session = await client.sessions.create("plain")
            before = await _requests(client)
            for words, ask in BAD:
                with pytest.raises(UserError, match=words):
                    await ask(client.sessions, session)
            with pytest.raises(UserError, match="a turn is"):
                session.follow(since=-1)
            assert await _requests(client) == before

    asyncio.run(main())


async def _requests(client: Client) -> int:
    bus = client.bus
    state = await bus.topology.stream_state(bus.connection, bus.topology.requests)
    last: int = state["last_seq"]
    return last
