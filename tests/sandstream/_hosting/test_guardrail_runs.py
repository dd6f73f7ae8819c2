"""Guardrails in runs: when they are asked, what they stop, what a caller and the log get of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from support.hosted_programs import MODEL, deployed, play, recorded
from support.model_requests import input_of

from sandstream import (
    Agent,
    GuardrailFunctionOutput,
    GuardrailTimeout,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailData,
    ToolOutputGuardrailTripwireTriggered,
    UserError,
    function_tool,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from sandstream.testing import ScriptedModel, structured, text, tool_call

pytestmark = pytest.mark.usefixtures("home")

PASS = GuardrailFunctionOutput("fine", tripwire_triggered=False)
TRIP = GuardrailFunctionOutput({"why": "rude"}, tripwire_triggered=True)


class Notes(list[Any]):
    """What guardrails and tools were asked, in order."""

    def checks(
        self, name: str, verdict: GuardrailFunctionOutput = PASS, *, parallel: bool = False
    ) -> Any:
        @input_guardrail(name=name, run_in_parallel=parallel)
        async def check(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
            self.append((name, agent.name, given))
            return verdict

        return check

    def judges(self, name: str, verdict: GuardrailFunctionOutput = PASS) -> Any:
        @output_guardrail(name=name)
        def judge(ctx: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
            self.append((name, agent.name, output))
            return verdict

        return judge

    def tool(self, **options: Any) -> Any:
        def pay(amount: int) -> str:
            self.append(("pay", amount))
            return f"paid {amount}"

        return function_tool(pay, **options)


# --- input ----------------------------------------------------------------------------------------


def test_blocking_guardrails_see_the_text_before_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    own, runs = notes.checks("own"), notes.checks("run's")
    agent = Agent(name="A", model=MODEL, input_guardrails=[own])
    config = RunConfig(input_guardrails=[runs])

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "hi", run_config=config)
        assert result.final_output == "Hello."
        assert sorted(notes) == [("own", "A", "hi"), ("run's", "A", "hi")]

    play(monkeypatch, [text("Hello.")], program)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_blocking_trip_asks_no_model(monkeypatch: pytest.MonkeyPatch, streamed: bool) -> None:
    notes = Notes()
    guardrail = notes.checks("no", TRIP)
    agent = Agent(name="A", model=MODEL, input_guardrails=[guardrail])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(InputGuardrailTripwireTriggered) as caught:
            if streamed:
                async for _ in Runner.run_streamed(agent, "hi").stream_events():
                    pass
            else:
                await Runner.run(agent, "hi")
        assert caught.value.guardrail_result.guardrail is guardrail
        assert caught.value.guardrail_result.output.output_info == {"why": "rude"}
        assert model.requests == []

    play(monkeypatch, [], program)


def test_a_list_stays_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    agent = Agent(name="A", model=MODEL, input_guardrails=[notes.checks("one")])
    items: Any = [{"content": "hi", "role": "user"}]

    async def program(model: ScriptedModel) -> None:
        await Runner.run(agent, items)
        assert notes == [("one", "A", items)]

    play(monkeypatch, [text("Hello.")], program)


def test_a_parallel_trip_stops_a_model_call_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    asked = asyncio.Event()

    @input_guardrail
    async def late(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asked.wait()
        return TRIP

    def arrives(request: Any) -> bool:
        asked.set()
        return True

    agent = Agent(name="A", model=MODEL, input_guardrails=[late], tools=[notes.tool()])
    slow = tool_call("pay", {"amount": 1}).when(arrives).after(600)

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(InputGuardrailTripwireTriggered):
            await Runner.run(agent, "hi")
        assert notes == []

    play(monkeypatch, [slow], program, strict=False)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["plain", "coroutine", "stepping", "raising"])
def test_a_parallel_trip_at_once_asks_no_model(
    monkeypatch: pytest.MonkeyPatch, kind: str, streamed: bool
) -> None:
    def plain(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return TRIP

    async def coroutine(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        for _ in range(5 if kind == "stepping" else 0):
            await asyncio.sleep(0)
        if kind == "raising":
            raise ValueError("cannot check")
        return TRIP

    guardrail: Any = input_guardrail(plain if kind == "plain" else coroutine)
    agent = Agent(name="A", model=MODEL, input_guardrails=[guardrail])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises((InputGuardrailTripwireTriggered, ValueError)):
            if streamed:
                async for _ in Runner.run_streamed(agent, "hi").stream_events():
                    pass
            else:
                await Runner.run(agent, "hi")
        assert model.requests == []

    play(monkeypatch, [text("Never said.")], program, strict=False)


def test_a_slow_parallel_guardrail_does_not_hold_up_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()

    @input_guardrail
    async def late(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asked.wait()  # the model is asked although this has not answered
        return PASS

    def arrives(request: Any) -> bool:
        asked.set()
        return True

    agent = Agent(name="A", model=MODEL, input_guardrails=[late])

    async def program(model: ScriptedModel) -> None:
        assert (await Runner.run(agent, "hi")).final_output == "Hello."
        assert len(model.requests) == 1

    play(monkeypatch, [text("Hello.").when(arrives)], program)


def test_a_parallel_trip_after_a_tool_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = asyncio.Event()

    @function_tool
    async def f() -> str:
        ran.set()
        return "f"

    @input_guardrail
    async def late(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await ran.wait()
        return TRIP

    agent = Agent(name="A", model=MODEL, input_guardrails=[late], tools=[f])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(InputGuardrailTripwireTriggered):
            await Runner.run(agent, "hi")
        assert len(model.requests) == 1

    play(monkeypatch, [tool_call("f")], program)


@pytest.mark.parametrize("parallel", [False, True])
def test_what_a_guardrail_raises_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, parallel: bool
) -> None:
    @input_guardrail(run_in_parallel=parallel)
    def fails(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        raise ValueError("cannot check")

    agent = Agent(name="A", model=MODEL, input_guardrails=[fails])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(ValueError, match="cannot check"):
            await Runner.run(agent, "hi")

    play(monkeypatch, [text("Hello.").after(600)], program, strict=False)


@pytest.mark.parametrize("where", ["blocking", "parallel", "output", "tool"])
def test_a_guardrail_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    async def hangs(*arguments: Any) -> Any:
        await asyncio.Event().wait()

    guarded = {
        "blocking": {
            "input_guardrails": [input_guardrail(name="slow", run_in_parallel=False)(hangs)]
        },
        "parallel": {"input_guardrails": [input_guardrail(name="slow")(hangs)]},
        "output": {"output_guardrails": [output_guardrail(name="slow")(hangs)]},
        "tool": {
            "tools": [
                Notes().tool(tool_input_guardrails=[tool_input_guardrail(name="slow")(hangs)])
            ]
        },
    }
    agent: Any = Agent(name="A", model=MODEL, **guarded[where])  # type: ignore[arg-type]
    step = tool_call("pay", {"amount": 1}) if where == "tool" else text("Hello.")

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(GuardrailTimeout, match="slow"):
            await Runner.run(agent, "hi", run_config=RunConfig(guardrail_timeout=0.2))

    play(monkeypatch, [step], program, strict=False)


# --- output ---------------------------------------------------------------------------------------


def test_only_the_last_agent_judges_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    second = Agent(
        name="Second",
        model=MODEL,
        input_guardrails=[notes.checks("never")],
        output_guardrails=[notes.judges("second")],
    )
    first = Agent(
        name="First", model=MODEL, handoffs=[second], output_guardrails=[notes.judges("first")]
    )
    config = RunConfig(output_guardrails=[notes.judges("run's")])

    async def program(model: ScriptedModel) -> None:
        await Runner.run(first, "hi", run_config=config)
        assert sorted(notes) == [("run's", "Second", "Bye."), ("second", "Second", "Bye.")]

    play(monkeypatch, [tool_call("transfer_to_second"), text("Bye.")], program)


def test_an_output_trip_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    guardrail = Notes().judges("no", TRIP)
    agent = Agent(name="A", model=MODEL, output_guardrails=[guardrail])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(OutputGuardrailTripwireTriggered) as caught:
            await Runner.run(agent, "hi")
        assert caught.value.guardrail_result.guardrail is guardrail
        assert caught.value.guardrail_result.agent_output == "Hello."
        assert caught.value.guardrail_result.agent is agent

    play(monkeypatch, [text("Hello.")], program)


class Order(BaseModel):
    item: str


def test_the_output_is_judged_as_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    agent = Agent(
        name="A", model=MODEL, output_type=Order, output_guardrails=[notes.judges("typed")]
    )

    @function_tool
    def order() -> Order:
        return Order(item="tea")

    ends = Agent(
        name="B",
        model=MODEL,
        output_type=Order,
        tools=[order],
        tool_use_behavior="stop_on_first_tool",
        output_guardrails=[notes.judges("tool's")],
    )

    async def program(model: ScriptedModel) -> None:
        await Runner.run(agent, "hi")
        await Runner.run(ends, "hi")
        assert notes == [("typed", "A", Order(item="tea")), ("tool's", "B", Order(item="tea"))]

    play(monkeypatch, [structured({"item": "tea"}), tool_call("order")], program)


def test_a_conversation_at_the_endpoint_cannot_be_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(name="A", model=MODEL, output_guardrails=[Notes().judges("one")])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(UserError, match="Output guardrails cannot be combined"):
            await Runner.run(agent, "hi", auto_previous_response_id=True)

    play(monkeypatch, [], program)


# --- tools ----------------------------------------------------------------------------------------


def before(verdict: ToolGuardrailFunctionOutput) -> Any:
    @tool_input_guardrail(name="before")
    def check(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        assert (data.context.tool_name, data.context.tool_arguments) == ("pay", '{"amount":1}')
        return verdict

    return check


def after(verdict: ToolGuardrailFunctionOutput) -> Any:
    @tool_output_guardrail(name="after")
    async def check(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        assert data.output == "paid 1"
        return verdict

    return check


REJECT = ToolGuardrailFunctionOutput.reject_content("Not this.", "rejected")
END = ToolGuardrailFunctionOutput.raise_exception("ended")
ONE_CALL = [tool_call("pay", {"amount": 1}), text("Done.")]


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_tool_guardrail_speaks_in_the_tools_place(
    monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    notes = Notes()
    options: dict[str, Any] = (
        {"tool_input_guardrails": [before(REJECT)]}
        if point == "before"
        else {"tool_output_guardrails": [after(REJECT)]}
    )
    agent = Agent(name="A", model=MODEL, tools=[notes.tool(**options)])

    async def program(model: ScriptedModel) -> None:
        result = await Runner.run(agent, "hi")
        assert result.final_output == "Done."
        assert input_of(model.requests[1])[-1]["output"] == "Not this."
        assert notes == ([] if point == "before" else [("pay", 1)])

    play(monkeypatch, ONE_CALL, program)


def test_a_tool_guardrail_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    refused = Agent(name="A", model=MODEL, tools=[notes.tool(tool_input_guardrails=[before(END)])])
    withheld = Agent(name="B", model=MODEL, tools=[notes.tool(tool_output_guardrails=[after(END)])])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(ToolInputGuardrailTripwireTriggered) as first:
            await Runner.run(refused, "hi")
        assert first.value.output.output_info == "ended"
        assert notes == []
        with pytest.raises(ToolOutputGuardrailTripwireTriggered):
            await Runner.run(withheld, "hi")
        assert notes == [("pay", 1)]

    play(monkeypatch, [ONE_CALL[0], ONE_CALL[0]], program)


def test_what_a_tool_guardrail_raises_is_the_tools_error(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool_input_guardrail
    def fails(data: Any) -> ToolGuardrailFunctionOutput:
        raise ValueError("cannot check")

    agent = Agent(name="A", model=MODEL, tools=[Notes().tool(tool_input_guardrails=[fails])])

    async def program(model: ScriptedModel) -> None:
        with pytest.raises(UserError, match="Error running tool pay: cannot check"):
            await Runner.run(agent, "hi")

    play(monkeypatch, ONE_CALL[:1], program)


# --- deployed -------------------------------------------------------------------------------------


def test_the_log_of_a_deployed_run_has_all_verdicts() -> None:
    notes = Notes()
    allow = ToolGuardrailFunctionOutput.allow("ok")
    agent = Agent(
        name="Guarded",
        model=MODEL,
        input_guardrails=[notes.checks("first"), notes.checks("beside", parallel=True)],
        tools=[
            notes.tool(
                tool_input_guardrails=[before(allow)], tool_output_guardrails=[after(REJECT)]
            )
        ],
        output_guardrails=[notes.judges("last", TRIP)],
    )

    async def main() -> None:
        async with deployed("guarded", agent, ONE_CALL) as (client, _):
            run = await client.submit("Guarded", "hi")
            done = await client.wait(run)
            assert done.status == "guardrail" and done.error is not None
            assert done.error.code == "output_guardrail"
            assert done.error.data["guardrail"] == "last"
            said = {
                it.name: (it.kind, it.tripped, it.behavior) for it in await recorded(client, run)
            }
            assert said == {
                "first": ("input", False, ""),
                "beside": ("input", False, ""),
                "before": ("tool_input", False, "allow"),
                "after": ("tool_output", False, "reject_content"),
                "last": ("output", True, ""),
            }
            assert notes[0] == ("first", "Guarded", "hi")

    asyncio.run(main())


def test_a_trip_in_a_worker_says_which_guardrail_it_was() -> None:
    agent = Agent(name="Guarded", model=MODEL, input_guardrails=[Notes().checks("no", TRIP)])

    async def main() -> None:
        async with deployed("tripped", agent, []) as (client, _):
            run = await client.submit("Guarded", "hi")
            done = await client.wait(run)
            assert done.error is not None and done.turns == 0
            assert (done.status, done.error.code) == ("guardrail", "input_guardrail")
            assert done.error.data["info"] == {"why": "rude"}
            (record,) = await recorded(client, run)
            assert (record.name, record.tripped, record.agent) == ("no", True, "Guarded")

    asyncio.run(main())
