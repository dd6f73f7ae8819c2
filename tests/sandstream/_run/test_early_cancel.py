"""A streamed run that is cancelled before it has begun, or before it goes on: nothing happens."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from support.hosted_programs import MODEL, play

from sandstream import (
    Agent,
    Client,
    RunCancelled,
    RunConfig,
    Runner,
    RunState,
    UserError,
    function_tool,
)
from sandstream.result import RunResultStreaming
from sandstream.testing import ScriptedModel, text, tool_call

pytestmark = pytest.mark.usefixtures("home")

AGENT = Agent[Any](name="A", model=MODEL)


async def events_of(result: RunResultStreaming) -> list[str]:
    return [event.type async for event in result.stream_events()]


@pytest.mark.parametrize("mode", ["immediate", "after_turn"])
@pytest.mark.parametrize("key", [None, "a key"])
def test_a_run_that_is_cancelled_at_once_never_begins(
    monkeypatch: pytest.MonkeyPatch, mode: Literal["immediate", "after_turn"], key: str | None
) -> None:
    async def program(model: ScriptedModel) -> None:
        config = RunConfig(run_key=key and f"{key} {mode}")
        for _ in range(2):  # the second time the process is there already
            result = Runner.run_streamed(AGENT, "hi", run_config=config)
            result.cancel(mode)
            shown = await events_of(result)
            assert shown == ([] if mode == "immediate" else ["agent_updated_stream_event"])
            assert (result.is_complete, result.final_output) == (True, None)
            with pytest.raises(UserError, match="cancelled before it began"):
                result.to_state()
            async with await Client.connect() as client:
                assert await client.events(result.run_id) == []
        assert model.requests == []
        # what has not begun has not spoiled its key
        assert (await Runner.run(AGENT, "hi", run_config=config)).final_output == "Hello."

    play(monkeypatch, [text("Hello.")], program)


def test_the_run_of_a_key_that_is_under_way_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    def arrives(request: Any) -> bool:
        asked.set()
        return True

    async def program(model: ScriptedModel) -> None:
        config = RunConfig(run_key="busy")
        first = asyncio.ensure_future(Runner.run(AGENT, "hi", run_config=config))
        await asked.wait()
        second = Runner.run_streamed(AGENT, "hi", run_config=config)
        second.cancel()
        assert await events_of(second) == []
        with pytest.raises(RunCancelled):
            await first

    play(monkeypatch, [text("Never heard.").when(arrives).after(600)], program, strict=False)


def test_a_state_whose_resumption_was_cancelled_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    @function_tool(needs_approval=True)
    def pay() -> str:
        calls.append("pay")
        return "paid"

    agent = Agent[Any](name="A", model=MODEL, tools=[pay])

    async def program(model: ScriptedModel) -> None:
        first = await Runner.run(agent, "hi")
        state: RunState[Any, Any] = first.to_state()
        state.approve(first.interruptions[0])
        stopped = Runner.run_streamed(agent, state)
        stopped.cancel()
        assert await events_of(stopped) == []
        assert len(stopped.interruptions) == 1
        assert calls == []
        assert (await Runner.run(agent, stopped.to_state())).final_output == "Done."
        assert calls == ["pay"]

    play(monkeypatch, [tool_call("pay"), text("Done.")], program)


def test_a_stream_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        result = Runner.run_streamed(AGENT, "hi")
        assert await events_of(result) != []
        assert await events_of(result) == []

    play(monkeypatch, [text("Hello.")], program)
