"""Runs that failed and are retried: the failed step again, all else once, and everybody sees it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sandstream_bus.wire.messages import CallFinished, ModelAnswered, RunDone, RunReopened
from sandstream_bus.wire.subjects import RunId

from sandstream import (
    Agent,
    GuardrailFunctionOutput,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunResult,
    SQLiteSession,
    UserError,
    function_tool,
    output_guardrail,
)
from sandstream._run.process import Process
from sandstream.items import ToolCallOutputItem
from sandstream.testing import ScriptedModel, Step, error, text, tool_call, tool_calls
from sandstream.tool import Tool

pytestmark = [pytest.mark.usefixtures("home"), pytest.mark.timeout(60)]


def play(
    monkeypatch: pytest.MonkeyPatch,
    steps: list[Step],
    program: Callable[[ScriptedModel], Awaitable[None]],
    **model: Any,
) -> None:
    async def main() -> None:
        async with ScriptedModel(steps, **model) as scripted:
            monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
            async with asyncio.timeout(40):
                await program(scripted)

    asyncio.run(main())


class Effects:
    """Tools that count their calls, and fail as often as they are told to."""

    def __init__(self, failures: int = 1) -> None:
        self.good = 0
        self.bad = 0
        self.failures = failures

        @function_tool
        def good() -> str:
            """Succeed."""
            self.good += 1
            return "good"

        @function_tool(failure_error_function=None)
        def bad() -> str:
            """Fail at first."""
            self.bad += 1
            if self.bad <= self.failures:
                raise RuntimeError("the service is down")
            return "good after all"

        self.tools: list[Tool] = [good, bad]
        self.agent: Agent[Any] = Agent(name="a", tools=self.tools, model="m")


async def run(agent: Agent[Any], key: str, *, retry: bool = False, **more: Any) -> RunResult:
    config = RunConfig(run_key=key, retry_failed=retry)
    return await Runner.run(agent, "work", run_config=config, **more)


async def events(key: str) -> list[Any]:
    bus = (await Process.of_this_loop()).bus
    return [it.event for it in await bus.log.read(RunId(key))]


def plain_traceback(raised: BaseException) -> str:
    return "".join(traceback.format_exception(raised))


# --- the key of a run that failed -----------------------------------------------------------------


def test_a_stored_failure_says_that_it_is_one_and_how_to_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    effects = Effects()

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(UserError, match="down") as first:
            await run(effects.agent, "stored-1")
        assert "stored outcome" not in plain_traceback(first.value)
        with pytest.raises(UserError, match="the service is down") as again:
            await run(effects.agent, "stored-1")
        told = plain_traceback(again.value)
        assert "This is the stored outcome of run stored-1, which ended 20" in told
        assert "RunConfig(retry_failed=True)" in told and "sandstream retry stored-1" in told
        assert effects.bad == 1
        assert len(model.requests) == 1

    play(monkeypatch, [tool_call("bad", {})], program)


def test_a_stored_success_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        agent = Agent(name="a", model="m")
        for retry in (False, True):
            assert (await run(agent, "stored-2", retry=retry)).final_output == "fine"
        assert len(model.requests) == 1
        assert not any(isinstance(it, RunReopened) for it in await events("stored-2"))

    play(monkeypatch, [text("fine")], program)


def test_a_retry_needs_a_key() -> None:
    with pytest.raises(UserError, match="retry_failed needs a run_key"):
        RunConfig(retry_failed=True)


# --- each kind of failure -------------------------------------------------------------------------


def test_a_tool_that_failed_is_called_again_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = Effects()

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(UserError, match="down"):
            await run(effects.agent, "tool-1")
        result = await run(effects.agent, "tool-1", retry=True)
        assert result.final_output == "done"
        assert (effects.good, effects.bad) == (1, 2)
        assert len(model.requests) == 3
        outputs = [it.output for it in result.new_items if isinstance(it, ToolCallOutputItem)]
        assert outputs == ["good", "good after all"]
        [reopened] = [it for it in await events("tool-1") if isinstance(it, RunReopened)]
        assert reopened.forgets == ["t2-0"] and reopened.retry

    play(monkeypatch, [tool_call("good", {}), tool_call("bad", {}), text("done")], program)


def test_of_several_calls_of_an_answer_those_that_succeeded_are_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    @function_tool
    def good() -> str:
        """Succeed."""
        calls.append("good")
        return "good"

    @function_tool(failure_error_function=None)
    async def bad() -> str:
        """Fail once the other one has succeeded."""
        calls.append("bad")
        if calls.count("bad") == 1:
            while not any(isinstance(it, CallFinished) for it in await events("several")):
                await asyncio.sleep(0.01)
            raise RuntimeError("down")
        return "good after all"

    async def program(model: ScriptedModel) -> None:
        agent: Agent[Any] = Agent(name="a", tools=[good, bad], model="m")
        with pytest.raises(UserError, match="down"):
            await run(agent, "several")
        assert (await run(agent, "several", retry=True)).final_output == "done"
        assert sorted(calls) == ["bad", "bad", "good"]

    play(monkeypatch, [tool_calls(("good", {}), ("bad", {})), text("done")], program)


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_model_that_failed_is_asked_again(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    effects = Effects()
    failures = [error(status)] * (3 if status == 500 else 1)
    steps = [tool_call("good", {}), *failures, text("done")]

    async def program(model: ScriptedModel) -> None:
        key = f"model-{status}"
        with pytest.raises(Exception, match=str(status)):
            await run(effects.agent, key)
        result = await run(effects.agent, key, retry=True)
        assert result.final_output == "done"
        assert effects.good == 1
        assert len(model.requests) == len(steps)
        assert sum(isinstance(it, ModelAnswered) for it in await events(key)) == 2

    play(monkeypatch, steps, program)


def test_without_a_key_of_the_model_and_then_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        monkeypatch.delenv("OPENAI_BASE_URL")
        agent = Agent(name="a", model="gpt-4.1")
        for _ in range(2):
            with pytest.raises(UserError, match="OPENAI_API_KEY"):
                await run(agent, "no-key")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        assert (await run(agent, "no-key", retry=True)).final_output == "fine"
        assert (await run(agent, "no-key")).final_output == "fine"

    play(monkeypatch, [text("fine")], program)


def test_a_failed_retry_can_be_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = Effects(failures=3)

    async def program(model: ScriptedModel) -> None:
        for attempt in range(3):
            with pytest.raises(UserError, match="down"):
                await run(effects.agent, "thrice", retry=attempt > 0)
        assert (await run(effects.agent, "thrice", retry=True)).final_output == "done"
        assert (effects.good, effects.bad, len(model.requests)) == (1, 4, 3)
        assert sum(isinstance(it, RunDone) for it in await events("thrice")) == 4

    play(monkeypatch, [tool_call("good", {}), tool_call("bad", {}), text("done")], program)


def test_a_run_that_used_up_its_turns_goes_on_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = Effects(failures=0)
    steps = [tool_call("good", {}), tool_call("good", {}), text("done")]

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(MaxTurnsExceeded):
            await run(effects.agent, "turns", max_turns=2)
        with pytest.raises(MaxTurnsExceeded) as refused:
            await run(effects.agent, "turns", max_turns=2, retry=True)
        assert "would fail again at once: Max turns (2) exceeded" in plain_traceback(refused.value)
        assert not any(isinstance(it, RunReopened) for it in await events("turns"))
        result = await run(effects.agent, "turns", max_turns=3, retry=True)
        assert (result.final_output, effects.good, len(model.requests)) == ("done", 2, 3)

    play(monkeypatch, steps, program)


def test_a_model_that_called_what_there_is_not_gives_another_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    effects = Effects(failures=0)
    steps = [tool_call("good", {}), tool_call("nonsense", {}), text("done")]

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(Exception, match="Tool nonsense not found"):
            await run(effects.agent, "nonsense")
        result = await run(effects.agent, "nonsense", retry=True)
        assert (result.final_output, effects.good, len(model.requests)) == ("done", 1, 3)
        assert model.requests[1]["input"] == model.requests[2]["input"]
        kinds = [it.type for it in result.new_items]
        assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]

    play(monkeypatch, steps, program)


def test_an_output_guardrail_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    @output_guardrail
    async def strict(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        looks.append(str(output))
        return GuardrailFunctionOutput(output_info="", tripwire_triggered=len(looks) == 1)

    async def program(model: ScriptedModel) -> None:
        agent = Agent(name="a", model="m", output_guardrails=[strict])
        session = SQLiteSession("guarded", ":memory:")
        with pytest.raises(OutputGuardrailTripwireTriggered):
            await run(agent, "guarded", session=session)
        before = await session.get_items()
        result = await run(agent, "guarded", session=session, retry=True)
        assert result.final_output == "fine"
        assert looks == ["fine", "fine"] and len(model.requests) == 1
        after = await session.get_items()
        assert after[: len(before)] == before
        assert [it.get("role") for it in after] == ["user", "assistant"]

    play(monkeypatch, [text("fine")], program)


def test_a_session_gets_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = Effects()

    async def program(model: ScriptedModel) -> None:
        session = SQLiteSession("kept", ":memory:")
        with pytest.raises(UserError, match="down"):
            await run(effects.agent, "kept", session=session)
        await run(effects.agent, "kept", session=session, retry=True)
        kinds = [it.get("type", it.get("role")) for it in await session.get_items()]
        calls = ["function_call", "function_call_output"]
        assert kinds == ["user", *calls, *calls, "message"]

    play(monkeypatch, [tool_call("good", {}), tool_call("bad", {}), text("done")], program)


def test_a_streamed_run_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = Effects()

    async def program(model: ScriptedModel) -> None:
        told: list[str] = []
        for is_retry in (False, False, True):
            config = RunConfig(run_key="streamed", retry_failed=is_retry)
            result = Runner.run_streamed(effects.agent, "work", run_config=config)
            try:
                names = [it.name async for it in result.stream_events() if hasattr(it, "name")]
            except UserError as error:
                told.append(plain_traceback(error))
        assert ["stored outcome" in it for it in told] == [False, True]
        assert result.final_output == "done" and (effects.good, effects.bad) == (1, 2)
        assert names.count("tool_output") == 2 and len(model.requests) == 3

    play(monkeypatch, [tool_call("good", {}), tool_call("bad", {}), text("done")], program)


# --- a program that is started again ---

WEATHER = '''
import asyncio, sys
from sandstream import Agent, RunConfig, Runner, function_tool

@function_tool
def get_weather(city: str) -> str:
    """Look up the weather of a city."""
    return f"cloudy in {city}"

agent = Agent(name="weather", instructions="Answer in one sentence.", tools=[get_weather])
config = RunConfig(run_key="oslo-1", retry_failed="retry" in sys.argv)
result = asyncio.run(Runner.run(agent, "What do I wear in Oslo?", run_config=config))
print(result.final_output)
'''


def test_a_program_without_an_api_key_and_then_with_one(tmp_path: Path) -> None:
    file = tmp_path / "weather.py"
    file.write_text(WEATHER)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "NATS_", "SANDSTREAM_"))
    } | {"SANDSTREAM_HOME": str(tmp_path / "home")}

    def start(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(file), *arguments],
            env=environment | env,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    first = start()
    assert "OPENAI_API_KEY" in first.stderr and "stored outcome" not in first.stderr
    with ScriptedModel([tool_call("get_weather", {"city": "Oslo"}), text("A jacket.")]) as model:
        reached = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": model.base_url}
        again = start(**reached)
        assert "UserError" in again.stderr and "OPENAI_API_KEY" in again.stderr
        assert "This is the stored outcome of run oslo-1" in again.stderr
        assert not model.requests
        assert start("retry", **reached).stdout == "A jacket.\n"
        assert start(**reached).stdout == "A jacket.\n"
