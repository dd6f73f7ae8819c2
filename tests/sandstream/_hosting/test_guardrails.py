"""Guardrails: how they are declared, and how the tool host runs them."""

from __future__ import annotations

import asyncio
import functools
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from sandstream._hosting.guardrails.checks import (
    guard_tool_input,
    guard_tool_output,
    run_input_guardrails,
    run_output_guardrails,
)
from sandstream._surface import task_ends as stopping
from sandstream.agent import Agent
from sandstream.exceptions import (
    GuardrailTimeout,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    UserError,
)
from sandstream.guardrail import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    OutputGuardrailResult,
    input_guardrail,
    output_guardrail,
)
from sandstream.run_context import RunContextWrapper
from sandstream.tool_context import ToolContext
from sandstream.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolInputGuardrailResult,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
    tool_input_guardrail,
    tool_output_guardrail,
)

CONTEXT = RunContextWrapper({"user": "Ada"})
AGENT = Agent(name="clerk")
FINE = GuardrailFunctionOutput("fine", False)
TRIP = GuardrailFunctionOutput({"why": "off topic"}, True)


def saying(output: Any, name: str = "check") -> InputGuardrail[Any]:
    return InputGuardrail(lambda context, agent, given: output, name)


async def check_input(
    *guardrails: InputGuardrail[Any], timeout_s: float | None = None, **more: Any
) -> list[InputGuardrailResult]:
    return await run_input_guardrails(guardrails, CONTEXT, AGENT, "hello", timeout_s, **more)


# --- declaring ------------------------------------------------------------------------------------


def test_decorators_take_their_names_from_the_function_or_the_argument() -> None:
    def plain(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return FINE

    def of_tool(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    assert input_guardrail(plain) == InputGuardrail(plain, "plain", run_in_parallel=True)
    assert input_guardrail()(plain).get_name() == "plain"
    assert input_guardrail(name="named", run_in_parallel=False)(plain) == InputGuardrail(
        plain, "named", run_in_parallel=False
    )
    assert output_guardrail(plain) == OutputGuardrail(plain, "plain")
    assert output_guardrail(name="named")(plain) == OutputGuardrail(plain, "named")
    assert tool_input_guardrail(of_tool) == ToolInputGuardrail(of_tool, "of_tool")
    assert tool_input_guardrail(name="named")(of_tool) == ToolInputGuardrail(of_tool, "named")
    assert tool_output_guardrail(of_tool) == ToolOutputGuardrail(of_tool, "of_tool")
    assert tool_output_guardrail(name="named")(of_tool) == ToolOutputGuardrail(of_tool, "named")


def test_a_guardrail_without_a_name_has_that_of_its_function_or_its_class() -> None:
    class Checker:
        def __call__(self, *arguments: Any) -> GuardrailFunctionOutput:
            return FINE

    def plain(*arguments: Any) -> GuardrailFunctionOutput:
        return FINE

    assert InputGuardrail(plain).get_name() == "plain"
    assert OutputGuardrail(Checker()).get_name() == "Checker"
    assert tool_input_guardrail(functools.partial(plain)).get_name() == "partial"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "decorator", [input_guardrail, output_guardrail, tool_input_guardrail, tool_output_guardrail]
)
def test_a_decorator_that_gets_the_name_by_position_says_how_to_give_it(decorator: Any) -> None:
    with pytest.raises(UserError, match=rf"@{decorator.__name__}\(name=\.\.\.\)"):
        decorator("my name")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_guardrail_that_is_run_gets_context_agent_and_value(is_async: bool) -> None:
    def plain(context: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput((context, agent, value), False)

    async def later(context: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        return plain(context, agent, value)

    function: Any = later if is_async else plain
    before = InputGuardrail(function)
    after = OutputGuardrail(function)
    said = GuardrailFunctionOutput((CONTEXT, AGENT, "hello"), False)
    assert asyncio.run(before.run(AGENT, "hello", CONTEXT)) == InputGuardrailResult(before, said)
    assert asyncio.run(after.run(CONTEXT, AGENT, "hello")) == OutputGuardrailResult(
        guardrail=after, agent_output="hello", agent=AGENT, output=said
    )


@pytest.mark.parametrize("timeout_s", [None, 30])
def test_a_guardrail_that_is_no_function_is_a_user_error(timeout_s: float | None) -> None:
    with pytest.raises(UserError, match="must be callable, got 5"):
        asyncio.run(check_input(InputGuardrail(5, "five"), timeout_s=timeout_s))  # type: ignore[arg-type]


# --- of agents ------------------------------------------------------------------------------------


def test_all_run_at_once_and_the_results_are_in_the_order_of_the_answers() -> None:
    async def scenario() -> list[str]:
        first_may_answer = asyncio.Event()

        @input_guardrail
        async def first(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
            await first_may_answer.wait()
            return FINE

        @input_guardrail
        async def second(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
            first_may_answer.set()
            return FINE

        return [result.guardrail.get_name() for result in await check_input(first, second)]

    assert asyncio.run(scenario()) == ["second", "first"]
    assert asyncio.run(check_input()) == []


class Hangs:
    """A guardrail that waits for ever and tells when it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = False

    async def __call__(self, *arguments: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def test_the_first_trip_cancels_the_rest_and_leaves_the_results_so_far() -> None:
    hangs = Hangs()
    results: list[InputGuardrailResult] = []
    fine, trip = saying(FINE, "fine"), saying(TRIP, "trip")
    with pytest.raises(InputGuardrailTripwireTriggered) as caught:
        asyncio.run(check_input(InputGuardrail(hangs), fine, trip, results=results))
    assert caught.value.guardrail_result == InputGuardrailResult(trip, TRIP)
    assert caught.value.guardrail_result.guardrail is trip
    assert caught.value.run_data is None
    assert hangs.cancelled
    assert [result.guardrail for result in results] == [fine, trip]


def test_what_a_guardrail_raises_cancels_the_rest_and_is_raised_as_it_is() -> None:
    hangs = Hangs()

    def broken(*arguments: Any) -> Any:
        raise LookupError("no such list")

    with pytest.raises(LookupError, match="no such list"):
        asyncio.run(check_input(InputGuardrail(hangs), InputGuardrail(broken)))
    assert hangs.cancelled


def test_a_guardrail_that_hangs_is_named_when_the_time_is_over() -> None:
    hangs = Hangs()
    results: list[InputGuardrailResult] = []
    fine = saying(FINE, "fine")
    with pytest.raises(GuardrailTimeout) as caught:
        asyncio.run(
            check_input(fine, InputGuardrail(hangs, "slow"), timeout_s=1.0, results=results)
        )
    assert (caught.value.name, caught.value.timeout_seconds) == ("slow", 1.0)
    assert hangs.cancelled
    assert [result.guardrail for result in results] == [fine]


def test_a_timeout_error_of_the_guardrail_itself_is_not_ours() -> None:
    async def fails(*arguments: Any) -> Any:
        raise TimeoutError("the database")

    with pytest.raises(TimeoutError, match="the database"):
        asyncio.run(check_input(InputGuardrail(fails), timeout_s=30))


def test_a_plain_function_with_a_limit_is_left_behind_in_its_thread() -> None:
    release = threading.Event()

    def blocks(*arguments: Any) -> Any:
        release.wait()
        return FINE

    async def scenario() -> None:
        try:
            await check_input(InputGuardrail(blocks), timeout_s=0.05)
        finally:
            release.set()  # or the loop waits for the thread when it closes

    with pytest.raises(GuardrailTimeout, match=r"'blocks' timed out after 0\.05 seconds"):
        asyncio.run(scenario())


def test_a_plain_function_without_a_limit_runs_on_the_loop() -> None:
    threads: list[threading.Thread] = []

    def notes(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return FINE

    asyncio.run(check_input(InputGuardrail(notes)))
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("timeout_s", [None, 30])
def test_with_or_without_a_limit_the_results_have_the_user_s_guardrail(
    timeout_s: float | None,
) -> None:
    async def later(*arguments: Any) -> GuardrailFunctionOutput:
        return FINE

    guardrails = [saying(FINE), InputGuardrail(lambda *arguments: later())]

    async def scenario() -> list[InputGuardrailResult]:
        return await check_input(*guardrails, timeout_s=timeout_s)

    results = asyncio.run(scenario())
    assert {id(result.guardrail) for result in results} == {id(each) for each in guardrails}
    assert [result.output for result in results] == [FINE, FINE]


def test_stop_iteration_from_a_thread_does_not_wait_for_ever() -> None:
    def empty(*arguments: Any) -> Any:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(check_input(InputGuardrail(empty), timeout_s=30))


def test_a_guardrail_that_cancels_itself_fails_and_does_not_cancel_the_caller() -> None:
    async def cancels(*arguments: Any) -> Any:
        raise asyncio.CancelledError

    with pytest.raises(UserError, match="Guardrail 'cancels' raised CancelledError"):
        asyncio.run(check_input(InputGuardrail(cancels)))


def test_a_caller_that_is_cancelled_takes_its_guardrails_along() -> None:
    hangs = Hangs()

    async def scenario() -> None:
        started = asyncio.Event()

        async def hang(*arguments: Any) -> Any:
            started.set()
            return await hangs(*arguments)

        caller = asyncio.create_task(check_input(InputGuardrail(hang)))
        await started.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    asyncio.run(scenario())
    assert hangs.cancelled


def test_a_guardrail_that_swallows_its_cancellation_does_not_hold_up_the_trip(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stopping, "GRACE_S", 0.05)

    async def scenario() -> None:
        enough = asyncio.Event()

        async def stubborn(*arguments: Any) -> Any:
            while not enough.is_set():
                try:
                    await enough.wait()
                except asyncio.CancelledError:
                    continue
            return FINE

        with pytest.raises(InputGuardrailTripwireTriggered):
            await check_input(InputGuardrail(stubborn), saying(TRIP))
        enough.set()

    asyncio.run(scenario())
    assert "User code keeps running after cancellation" in caplog.text


@pytest.mark.parametrize("said", [None, True, {"tripwire_triggered": True}])
def test_what_is_no_verdict_is_a_user_error_that_names_the_guardrail(said: Any) -> None:
    with pytest.raises(UserError, match="'check' must return GuardrailFunctionOutput, not"):
        asyncio.run(check_input(saying(said)))


def test_output_guardrails_are_asked_about_the_output() -> None:
    trip: OutputGuardrail[Any] = OutputGuardrail(lambda context, agent, output: TRIP, "trip")
    hangs = Hangs()
    results: list[OutputGuardrailResult] = []
    with pytest.raises(OutputGuardrailTripwireTriggered) as caught:
        asyncio.run(
            run_output_guardrails(
                [OutputGuardrail(hangs), trip], CONTEXT, AGENT, {"a": 1}, 30, results=results
            )
        )
    assert results == [OutputGuardrailResult(trip, {"a": 1}, AGENT, TRIP)]
    assert caught.value.guardrail_result is results[0]
    assert results[0].guardrail is trip
    assert hangs.cancelled


# --- of tools -------------------------------------------------------------------------------------


@dataclass
class GuardedTool:
    name: str = "wire_money"
    tool_input_guardrails: list[ToolInputGuardrail[Any]] | None = None
    tool_output_guardrails: list[ToolOutputGuardrail[Any]] | None = None
    asked: list[str] = field(default_factory=list)

    def before(self, name: str, said: Any) -> ToolInputGuardrail[Any]:
        return ToolInputGuardrail(lambda data: self._says(name, said), name)

    def after(self, name: str, said: Any) -> ToolOutputGuardrail[Any]:
        return ToolOutputGuardrail(lambda data: self._says(name, said), name)

    def _says(self, name: str, said: Any) -> Any:
        self.asked.append(name)
        return said


CALL = ToolContext(None, None, "wire_money", "call_1", "{}")
BEFORE = ToolInputGuardrailData(CALL, AGENT)
AFTER = ToolOutputGuardrailData(CALL, AGENT, 42)
ALLOW = ToolGuardrailFunctionOutput.allow("ok")
UNKNOWN: Any = {"type": "reject"}
"""What is no behavior."""
REJECT = ToolGuardrailFunctionOutput.reject_content("not today", "late")
RAISE = ToolGuardrailFunctionOutput.raise_exception("theft")


def test_the_verdicts_of_a_tool_s_guardrail() -> None:
    assert ToolGuardrailFunctionOutput(None).behavior == {"type": "allow"}
    assert ALLOW.behavior == {"type": "allow"}
    assert REJECT.behavior == {"type": "reject_content", "message": "not today"}
    assert RAISE.behavior == {"type": "raise_exception"}
    assert [each.output_info for each in (ALLOW, REJECT, RAISE)] == ["ok", "late", "theft"]


@pytest.mark.parametrize("timeout_s", [None, 30])
def test_a_tool_without_guardrails_is_free(timeout_s: float | None) -> None:
    async def scenario() -> None:
        assert await guard_tool_input(GuardedTool(), BEFORE, timeout_s) == ([], None)
        assert await guard_tool_output(GuardedTool(), AFTER, timeout_s) == ([], 42)

    asyncio.run(scenario())


@pytest.mark.parametrize("timeout_s", [None, 30])
def test_guardrails_of_a_tool_run_in_order_and_a_rejection_stops(timeout_s: float | None) -> None:
    tool = GuardedTool()
    before = [tool.before("a", ALLOW), tool.before("b", REJECT), tool.before("c", RAISE)]
    after = [tool.after("d", ALLOW), tool.after("e", REJECT), tool.after("f", RAISE)]
    tool.tool_input_guardrails, tool.tool_output_guardrails = before, after

    async def scenario() -> None:
        results, message = await guard_tool_input(tool, BEFORE, timeout_s)
        assert message == "not today"
        assert results == [
            ToolInputGuardrailResult(before[0], ALLOW),
            ToolInputGuardrailResult(before[1], REJECT),
        ]
        checked, output = await guard_tool_output(tool, AFTER, timeout_s)
        assert output == "not today"
        assert [result.output for result in checked] == [ALLOW, REJECT]

    asyncio.run(scenario())
    assert tool.asked == ["a", "b", "d", "e"]


def test_guardrails_of_a_tool_get_the_data_and_an_allowed_output_is_kept() -> None:
    async def before(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow(data.context.tool_call_id)

    def after(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow((data.agent.name, data.output))

    tool = GuardedTool("t", [tool_input_guardrail(before)], [tool_output_guardrail(after)])

    async def scenario() -> None:
        results, message = await guard_tool_input(tool, BEFORE, None)
        assert (results[0].output.output_info, message) == ("call_1", None)
        checked, output = await guard_tool_output(tool, AFTER, None)
        assert (checked[0].output.output_info, output) == (("clerk", 42), 42)

    asyncio.run(scenario())


def test_a_guardrail_of_a_tool_can_end_the_run() -> None:
    tool = GuardedTool()
    tool.tool_input_guardrails = [tool.before("a", RAISE)]
    tool.tool_output_guardrails = [tool.after("b", RAISE)]
    results: list[ToolInputGuardrailResult] = []
    with pytest.raises(ToolInputGuardrailTripwireTriggered) as before:
        asyncio.run(guard_tool_input(tool, BEFORE, None, results=results))
    assert before.value.guardrail is tool.tool_input_guardrails[0]
    assert before.value.output is RAISE
    assert [result.output for result in results] == [RAISE]
    with pytest.raises(ToolOutputGuardrailTripwireTriggered) as after:
        asyncio.run(guard_tool_output(tool, AFTER, None))
    assert after.value.guardrail is tool.tool_output_guardrails[0]
    assert after.value.output is RAISE


@pytest.mark.parametrize("side", ["before", "after"])
def test_what_a_guardrail_of_a_tool_raises_is_told_as_the_tool_s(side: str) -> None:
    def broken(data: Any) -> Any:
        raise LookupError("no such list")

    def ours(data: Any) -> Any:
        raise UserError("as it is")

    def guard(function: Any) -> Any:
        tool = GuardedTool("t", [ToolInputGuardrail(function)], [ToolOutputGuardrail(function)])
        if side == "before":
            return guard_tool_input(tool, BEFORE, None)
        return guard_tool_output(tool, AFTER, None)

    with pytest.raises(UserError, match=r"^Error running tool t: no such list$") as caught:
        asyncio.run(guard(broken))
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(UserError, match=r"^as it is$"):
        asyncio.run(guard(ours))


def test_a_guardrail_of_a_tool_that_hangs_is_named() -> None:
    tool = GuardedTool("t", [ToolInputGuardrail(Hangs(), "slow")])
    with pytest.raises(GuardrailTimeout, match="'slow' timed out"):
        asyncio.run(guard_tool_input(tool, BEFORE, 0.05))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (None, "'a' must return ToolGuardrailFunctionOutput, not None"),
        (FINE, "'a' must return ToolGuardrailFunctionOutput"),
        (ToolGuardrailFunctionOutput(None, UNKNOWN), "it said {'type': 'reject'}"),
    ],
)
def test_a_verdict_that_cannot_be_followed_does_not_pass(said: Any, complaint: str) -> None:
    tool = GuardedTool()
    tool.tool_input_guardrails = [tool.before("a", said)]
    with pytest.raises(UserError, match=complaint):
        asyncio.run(guard_tool_input(tool, BEFORE, None))
