"""The tool host gives callers the exceptions of their own code, and leaves cached states alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandstream_actors.run.state import RunState
from sandstream_actors.tool_host.actor import TakenCall
from sandstream_bus.logs.runs import RunLog
from sandstream_bus.wire.messages import CallRequested, ModelAnswered, Prepared, TokenUsage
from sandstream_bus.wire.subjects import RunId, run_id_of_key
from support.hosted_programs import MODEL, play
from support.scripted_log import RUN, asks, begin, log

from sandstream import Agent, AgentsException, Client, RunConfig, Runner, function_tool
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.user_code import UserCode
from sandstream.run_context import RunContextWrapper
from sandstream.testing import ScriptedModel, tool_call, tool_calls


class First(AgentsException):
    pass


class Second(AgentsException):
    pass


def raising(name: str, error: type[Exception], barrier: asyncio.Barrier) -> Any:
    @function_tool(name_override=name, failure_error_function=None)
    async def tool() -> str:
        await barrier.wait()
        raise error("the disk is full")

    return tool


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_caller_gets_the_exception_of_the_call_that_ended_the_run(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    key = f"equal-texts-{names[0]}"

    async def program(model: ScriptedModel) -> None:
        barrier = asyncio.Barrier(2)
        tools = [raising("a", First, barrier), raising("b", Second, barrier)]
        agent = Agent(name="A", model=MODEL, tools=tools)
        with pytest.raises((First, Second)) as caught:
            await Runner.run(agent, "hi", run_config=RunConfig(run_key=key))
        async with await Client.connect() as client:
            done = await client.wait(run_id_of_key(key))
        assert done.error is not None
        assert done.error.data["exception"] == type(caught.value).__name__

    play(monkeypatch, [tool_calls(*(tool_call(name, {}) for name in names))], program)


class OneState:
    """The state of one run, as a tool host's cache would hand it out."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    @property
    def log(self) -> RunLog:
        raise NotImplementedError

    async def load(self, run: RunId) -> RunState:
        return self.state


def test_asking_a_model_object_does_not_change_the_cached_state() -> None:
    hosted = HostedRun({"a": Agent(name="a")}, RunContextWrapper(None), RunConfig())
    states = OneState(RunState.of(RUN, log(begin(), asks("t1-model", "model"))))
    seen: list[Prepared] = []

    async def find_run(run: RunId, states: Any) -> HostedRun:
        return hosted

    async def ask_model(
        hosted: HostedRun, state: RunState, prepared: Prepared, call: CallRequested
    ) -> ModelAnswered:
        seen.append(prepared)
        return ModelAnswered(turn=1, agent="a", output=[], usage=TokenUsage())

    code = UserCode(find_run, ask_model)
    call = TakenCall(call="t1-model", kind="model", turn=1, agent="a", reply_pool="main")
    asyncio.run(code.invoke(RUN, call, states))
    assert len(seen) == 1
    assert states.state.prepared is None
