"""Retries of runs that pause, are checked beside their first turn, or keep a session of the user's:
nothing is lost, nothing comes twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
from openai import BadRequestError
from support.model_requests import input_of

from sandstream import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunResult,
    SQLiteSession,
    UserError,
    function_tool,
    output_guardrail,
)
from sandstream.items import TResponseInputItem
from sandstream.testing import ScriptedModel, Step, answer, error, text, tool_call, tool_calls

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.timeout(60)]


def play(
    monkeypatch: pytest.MonkeyPatch,
    steps: list[Step],
    program: Callable[[ScriptedModel], Awaitable[None]],
) -> None:
    async def main() -> None:
        async with ScriptedModel(steps) as scripted:
            monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
            async with asyncio.timeout(40):
                await program(scripted)

    asyncio.run(main())


async def run(agent: Agent[Any], key: str, *, retry: bool = False, **more: Any) -> RunResult:
    config = RunConfig(run_key=key, retry_failed=retry)
    return await Runner.run(agent, "work", run_config=config, **more)


class Flaky(SQLiteSession):
    """A session of which one write fails: before it has happened, or after that."""

    def __init__(self, name: str, fails_at: int, *, after: bool) -> None:
        super().__init__(name, ":memory:")
        self.writes = 0
        self.fails_at, self.after = fails_at, after

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        self.writes += 1
        fails = self.writes == self.fails_at
        if not fails or self.after:
            await super().add_items(items)
        if fails:
            raise RuntimeError("the disk is full")


def kinds(items: list[Any]) -> list[str]:
    return [it.get("type", it.get("role")) for it in items]


@function_tool
def good() -> str:
    """Succeed."""
    return "good"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_session_that_failed_has_everything_after_the_retry(
    monkeypatch: pytest.MonkeyPatch, fails_at: int, after: bool
) -> None:
    async def program(model: ScriptedModel) -> None:
        agent: Agent[Any] = Agent(name="a", model="m", tools=[good])
        session = Flaky("kept", fails_at, after=after)
        key = f"flaky-{fails_at}-{after}"
        with pytest.raises(RuntimeError, match="the disk is full"):
            await run(agent, key, session=session)
        assert (await run(agent, key, session=session, retry=True)).final_output == "done"
        expected = ["user", "function_call", "function_call_output", "message"]
        assert kinds(await session.get_items()) == expected
        assert len(model.requests) == 2

    play(monkeypatch, [tool_call("good", {}), text("done")], program)


class Gated:
    """Two tools of one answer: one succeeds at once, one needs a person and fails at first."""

    def __init__(self) -> None:
        self.free = self.gated = 0

        @function_tool
        def free() -> str:
            """Succeed."""
            self.free += 1
            return "free"

        @function_tool(needs_approval=True, failure_error_function=None)
        def gated() -> str:
            """Fail at first."""
            self.gated += 1
            if self.gated == 1:
                raise RuntimeError("the service is down")
            return "gated"

        self.agent: Agent[Any] = Agent(name="a", tools=[free, gated], model="m")


@pytest.mark.parametrize("gated_first", [False, True])
def test_a_session_has_the_outcomes_of_a_run_that_paused_and_failed_once(
    monkeypatch: pytest.MonkeyPatch, gated_first: bool
) -> None:
    tools = Gated()

    async def program(model: ScriptedModel) -> None:
        session = SQLiteSession("kept", ":memory:")
        key = f"paused-{gated_first}"
        paused = await run(tools.agent, key, session=session)
        state = paused.to_state()
        state.approve(paused.interruptions[0])
        with pytest.raises(Exception, match="the service is down"):
            await Runner.run(tools.agent, state, session=session)
        done = await run(tools.agent, key, session=session, retry=True)
        assert done.final_output == "done"
        assert (tools.free, tools.gated, len(model.requests)) == (1, 2, 2)
        items = [dict(it) for it in await session.get_items()]
        outputs = [it["output"] for it in items if "output" in it]
        assert outputs == ["free", "gated"]
        assert [it.get("type") for it in items].count("function_call") == 2
        seen = [it["output"] for it in input_of(model.requests[1]) if "output" in it]
        assert sorted(seen) == ["free", "gated"]

    names = ["gated", "free"] if gated_first else ["free", "gated"]
    play(monkeypatch, [tool_calls(*((it, {}) for it in names)), text("done")], program)


def test_a_person_is_asked_once_though_a_call_beside_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = {"asked": 0, "bad": 0}

    @function_tool(needs_approval=True)
    def asked() -> str:
        """Needs a person."""
        calls["asked"] += 1
        return "asked"

    @function_tool(failure_error_function=None)
    def bad() -> str:
        """Fail at first."""
        calls["bad"] += 1
        if calls["bad"] == 1:
            raise RuntimeError("the service is down")
        return "bad"

    async def program(model: ScriptedModel) -> None:
        agent: Agent[Any] = Agent(name="a", tools=[asked, bad], model="m")
        session = SQLiteSession("kept", ":memory:")
        with pytest.raises(Exception, match="the service is down"):
            await run(agent, "beside", session=session)
        paused = await run(agent, "beside", session=session, retry=True)
        assert len(paused.interruptions) == 1
        state = paused.to_state()
        state.approve(paused.interruptions[0])
        done = await Runner.run(agent, state, session=session)
        assert done.final_output == "done" and calls == {"asked": 1, "bad": 2}
        items = [dict(it) for it in await session.get_items()]
        assert [it["output"] for it in items if "output" in it] == ["bad", "asked"]

    play(monkeypatch, [tool_calls(("asked", {}), ("bad", {})), text("done")], program)


@pytest.mark.parametrize("trips", [False, True])
def test_a_guardrail_that_was_still_looking_when_the_run_failed_looks_again(
    monkeypatch: pytest.MonkeyPatch, trips: bool
) -> None:
    seen = {"looks": 0, "bad": 0}

    async def look(*_: Any) -> GuardrailFunctionOutput:
        seen["looks"] += 1
        if seen["looks"] == 1:
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=trips)

    @function_tool(failure_error_function=None)
    async def bad() -> str:
        """Fail at first."""
        seen["bad"] += 1
        if seen["bad"] == 1:
            raise RuntimeError("the service is down")
        if trips:
            await asyncio.Event().wait()
        return "bad"

    async def program(model: ScriptedModel) -> None:
        guardrail = InputGuardrail(guardrail_function=look, run_in_parallel=True)
        agent: Agent[Any] = Agent(name="a", tools=[bad], model="m", input_guardrails=[guardrail])
        with pytest.raises(UserError, match="the service is down"):
            await run(agent, f"looking-{trips}")
        if trips:
            with pytest.raises(InputGuardrailTripwireTriggered):
                await run(agent, f"looking-{trips}", retry=True)
        else:
            done = await run(agent, f"looking-{trips}", retry=True)
            assert done.final_output == "done" and seen == {"looks": 2, "bad": 2}
            assert len(done.input_guardrail_results) == 1

    steps: list[Step] = [tool_call("bad", {})]
    play(monkeypatch, steps if trips else [*steps, text("done")], program)


@pytest.mark.parametrize("mode", ["immediate", "after_turn"])
def test_a_retry_that_is_cancelled_before_it_begins_leaves_the_run_as_it_is(
    monkeypatch: pytest.MonkeyPatch, mode: Literal["immediate", "after_turn"]
) -> None:
    tries: list[str] = []

    @function_tool(failure_error_function=None)
    def bad() -> str:
        """Fail at first."""
        tries.append("")
        if len(tries) == 1:
            raise RuntimeError("the service is down")
        return "bad"

    async def program(model: ScriptedModel) -> None:
        agent: Agent[Any] = Agent(name="a", tools=[bad], model="m")
        key = f"early-{mode}"
        with pytest.raises(UserError, match="the service is down"):
            await run(agent, key)
        config = RunConfig(run_key=key, retry_failed=True)
        result = Runner.run_streamed(agent, "work", run_config=config)
        result.cancel(mode)
        async for _ in result.stream_events():
            pass
        assert result.final_output is None and len(tries) == 1
        assert (await run(agent, key, retry=True)).final_output == "done"
        assert len(tries) == 2

    play(monkeypatch, [tool_call("bad", {}), text("done")], program)


@pytest.mark.parametrize("parts", [("good",), ("Let me see.", "good")], ids=["call", "text-call"])
def test_a_session_has_one_outcome_of_a_call_that_a_guardrail_refused_at_first(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    looks: list[str] = []

    @output_guardrail
    async def look(*_: Any) -> GuardrailFunctionOutput:
        looks.append("")
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=len(looks) == 1)

    async def program(model: ScriptedModel) -> None:
        agent: Agent[Any] = Agent(
            name="a",
            tools=[good],
            model="m",
            tool_use_behavior="stop_on_first_tool",
            output_guardrails=[look],
        )
        session = SQLiteSession("kept", ":memory:")
        key = f"refused-{len(parts)}"
        with pytest.raises(OutputGuardrailTripwireTriggered):
            await run(agent, key, session=session)
        assert (await run(agent, key, session=session, retry=True)).final_output == "good"
        found = kinds(await session.get_items())
        assert found.count("function_call") == found.count("function_call_output") == 1

    step = answer(*(tool_call(it, {}) if it == "good" else it for it in parts))
    play(monkeypatch, [step], program)


def test_whoever_waits_with_another_retry_hears_of_no_stored_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[str] = []
    both = asyncio.Event()

    @function_tool(failure_error_function=None)
    async def bad() -> str:
        """Fail."""
        tries.append("")
        if len(tries) > 1:
            await both.wait()
        raise RuntimeError(f"down {len(tries)}")

    async def program(model: ScriptedModel) -> None:
        agent: Agent[Any] = Agent(name="a", tools=[bad], model="m")
        with pytest.raises(UserError, match="down 1"):
            await run(agent, "both")
        retries = [asyncio.ensure_future(run(agent, "both", retry=True)) for _ in range(4)]
        while len(tries) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # so that the others have met the run; nothing depends on it
        both.set()
        for ended in await asyncio.gather(*retries, return_exceptions=True):
            assert isinstance(ended, UserError) and "down 1" not in str(ended)
            assert not getattr(ended, "__notes__", ())

    play(monkeypatch, [tool_call("bad", {})], program)


def test_a_guardrail_that_was_still_looking_when_the_model_failed_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []

    async def look(*_: Any) -> GuardrailFunctionOutput:
        looks.append("")
        if len(looks) == 1:
            await asyncio.Event().wait()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    async def program(model: ScriptedModel) -> None:
        guardrail = InputGuardrail(guardrail_function=look, run_in_parallel=True)
        agent: Agent[Any] = Agent(name="a", model="m", input_guardrails=[guardrail])
        with pytest.raises(BadRequestError, match="No such luck"):
            await run(agent, "model-failed")
        done = await run(agent, "model-failed", retry=True)
        assert done.final_output == "done" and len(looks) == len(model.requests) == 2

    play(monkeypatch, [error(400, message="No such luck."), text("done")], program)
