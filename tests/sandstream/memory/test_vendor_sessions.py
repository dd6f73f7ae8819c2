"""Runs with a session at OpenAI that has no id at first: one conversation, whoever goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from comparison.conversations_api import Conversations, conversations_api
from openai import AsyncOpenAI
from support.hosted_programs import MODEL, play

from sandstream import (
    Agent,
    Client,
    OpenAIConversationsSession,
    RunConfig,
    Runner,
    RunState,
    UserError,
    function_tool,
)
from sandstream.testing import ScriptedModel, text, tool_call

pytestmark = pytest.mark.usefixtures("home")

AGENT = Agent[Any](name="A", model=MODEL)


@function_tool(needs_approval=True)
def pay() -> str:
    return "paid"


def roles(api: Conversations, name: str) -> list[str]:
    return [item.get("role") or item["type"] for item in api.items[name]]


def test_the_log_has_the_id_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        async with conversations_api() as (api, url), AsyncOpenAI(base_url=url, api_key="k") as it:
            session = OpenAIConversationsSession(openai_client=it)
            result = await Runner.run(AGENT, "hi", session=session)
            assert session.session_id == "conv_1"
            assert roles(api, "conv_1") == ["user", "assistant"]
        async with await Client.connect() as client:
            log = [event.stored.data for event in await client.events(result.run_id)]
        known = [b'"conv_1"' in data for data in log].index(True)
        asked = [b'"kind":"save"' in data for data in log].index(True)
        assert known < asked

    play(monkeypatch, [text("Hello.")], program)


def test_two_runs_of_one_session_share_its_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        async with conversations_api() as (api, url), AsyncOpenAI(base_url=url, api_key="k") as it:
            session = OpenAIConversationsSession(openai_client=it)
            await asyncio.gather(*(Runner.run(AGENT, "hi", session=session) for _ in range(2)))
            assert api.begun == 1
            assert sorted(roles(api, "conv_1")) == ["assistant", "assistant", "user", "user"]

    play(monkeypatch, [text("Hello."), text("Hello.")], program)


def test_a_stored_state_goes_on_in_the_conversation_of_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent[Any](name="A", model=MODEL, tools=[pay])

    async def program(model: ScriptedModel) -> None:
        async with conversations_api() as (api, url), AsyncOpenAI(base_url=url, api_key="k") as it:
            session = OpenAIConversationsSession(openai_client=it)
            first = await Runner.run(agent, "hi", session=session)
            stored = first.to_state().to_string()
            other = OpenAIConversationsSession(conversation_id="conv_other", openai_client=it)
            state = await RunState.from_string(agent, stored)
            with pytest.raises(UserError, match="began with the session 'conv_1'"):
                await Runner.run(agent, state, session=other)
            state.approve(state.get_interruptions()[0])
            fresh = OpenAIConversationsSession(openai_client=it)
            await Runner.run(agent, state, session=fresh)
            assert (api.begun, fresh.session_id) == (1, "conv_1")
            wanted = ["user", "function_call", "function_call_output", "assistant"]
            assert roles(api, "conv_1") == wanted

    play(monkeypatch, [tool_call("pay"), text("Done.")], program)


def test_who_waits_for_a_run_that_has_ended_gets_its_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(model: ScriptedModel) -> None:
        async with conversations_api() as (api, url), AsyncOpenAI(base_url=url, api_key="k") as it:
            for _ in range(2):
                session = OpenAIConversationsSession(openai_client=it)
                config = RunConfig(run_key="talk at a vendor")
                await Runner.run(AGENT, "hi", session=session, run_config=config)
                assert session.session_id == "conv_1"
            assert api.begun == 1

    play(monkeypatch, [text("Hello.")], program)


def test_a_session_that_was_cleared_meanwhile_begins_another_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent[Any](name="A", model=MODEL, tools=[pay])

    async def program(model: ScriptedModel) -> None:
        async with conversations_api() as (api, url), AsyncOpenAI(base_url=url, api_key="k") as it:
            session = OpenAIConversationsSession(openai_client=it)
            first = await Runner.run(agent, "hi", session=session)
            await session.clear_session()
            state = first.to_state()
            state.approve(first.interruptions[0])
            await Runner.run(agent, state, session=session)
            assert (list(api.items), session.session_id) == (["conv_2"], "conv_2")

    play(monkeypatch, [tool_call("pay"), text("Done.")], program)


def test_whoever_is_cancelled_while_a_conversation_begins_keeps_it() -> None:
    async def main() -> None:
        async with conversations_api() as (api, url), AsyncOpenAI(base_url=url, api_key="k") as it:
            session = OpenAIConversationsSession(openai_client=it)
            reading = asyncio.ensure_future(session.get_items())
            while not api.begun:
                await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await session.get_items()
            assert (api.begun, session.session_id) == (1, "conv_1")

    asyncio.run(main())
