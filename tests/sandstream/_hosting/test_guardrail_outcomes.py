"""What guardrails said and what ends a run, as data and back: on the bus and in pickles."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from sandstream_bus.wire.messages import ErrorInfo, GuardrailRecord

from sandstream._hosting.guardrails.records import record, records_of, results_of
from sandstream._surface.json_values import as_plain
from sandstream._surface.outcomes import error_info, exception_of_error
from sandstream.agent import Agent
from sandstream.exceptions import (
    AgentsException,
    ApprovalExpired,
    BudgetExceeded,
    ConversationBusy,
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
)
from sandstream.run_context import RunContextWrapper
from sandstream.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailResult,
    ToolOutputGuardrail,
    ToolOutputGuardrailResult,
)


class Reason(pydantic.BaseModel):
    why: str


TRIP = GuardrailFunctionOutput(Reason(why="off topic"), True)
ALLOW = ToolGuardrailFunctionOutput.allow()
REJECT = ToolGuardrailFunctionOutput.reject_content("not today", {"hour": 23})
RAISE = ToolGuardrailFunctionOutput.raise_exception(["theft"])


BEFORE_RUN: InputGuardrail[Any] = InputGuardrail(lambda *a: TRIP, "topic", run_in_parallel=False)
AFTER_RUN: OutputGuardrail[Any] = OutputGuardrail(lambda *a: TRIP, "tone")
BEFORE_CALL: ToolInputGuardrail[Any] = ToolInputGuardrail(lambda data: RAISE, "amount")
AFTER_CALL: ToolOutputGuardrail[Any] = ToolOutputGuardrail(lambda data: RAISE, "secrets")


def tripwires() -> list[AgentsException]:
    agent = Agent(name="clerk", instructions=lambda context, agent: "cannot be pickled")
    return [
        InputGuardrailTripwireTriggered(InputGuardrailResult(BEFORE_RUN, TRIP)),
        OutputGuardrailTripwireTriggered(OutputGuardrailResult(AFTER_RUN, {"a": 1}, agent, TRIP)),
        ToolInputGuardrailTripwireTriggered(BEFORE_CALL, RAISE),
        ToolOutputGuardrailTripwireTriggered(AFTER_CALL, RAISE),
    ]


def guardrail_and_output(error: Any) -> tuple[Any, Any]:
    result = getattr(error, "guardrail_result", error)
    return result.guardrail, result.output


# --- endings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "code", "text"),
    [
        (0, "input_guardrail", "Guardrail InputGuardrail triggered tripwire: 'topic'"),
        (1, "output_guardrail", "Guardrail OutputGuardrail triggered tripwire: 'tone'"),
        (
            2,
            "tool_input_guardrail",
            "Tool input guardrail ToolInputGuardrail triggered tripwire: 'amount'",
        ),
        (
            3,
            "tool_output_guardrail",
            "Tool output guardrail ToolOutputGuardrail triggered tripwire: 'secrets'",
        ),
    ],
)
def test_a_tripwire_crosses_the_bus_with_the_guardrail_s_name_and_info(
    index: int, code: str, text: str
) -> None:
    error = tripwires()[index]
    guardrail, output = guardrail_and_output(error)
    info = error_info(error)
    wired = msgspec.json.decode(msgspec.json.encode(info), type=ErrorInfo)
    assert (wired.code, error.code, wired.message) == (code, code, text)
    assert wired.data["guardrail"] == guardrail.get_name()
    assert wired.data["info"] == as_plain(output.output_info)

    rebuilt = exception_of_error(wired, "run_1")
    assert type(rebuilt) is type(error)
    assert str(rebuilt) == text
    there, said = guardrail_and_output(rebuilt)
    assert type(there) is type(guardrail)
    assert there.get_name() == guardrail.get_name()
    assert said.output_info == as_plain(output.output_info)
    assert getattr(said, "behavior", None) == getattr(output, "behavior", None)
    assert getattr(said, "tripwire_triggered", None) == getattr(output, "tripwire_triggered", None)


def test_an_output_tripwire_from_elsewhere_knows_its_agent_by_name() -> None:
    rebuilt = exception_of_error(error_info(tripwires()[1]), "run_1")
    assert isinstance(rebuilt, OutputGuardrailTripwireTriggered)
    assert rebuilt.guardrail_result.agent.name == "clerk"
    assert rebuilt.guardrail_result.agent_output is None


def test_a_guardrail_from_elsewhere_says_so_when_it_is_run() -> None:
    rebuilt = exception_of_error(error_info(tripwires()[0]), "run_1")
    assert isinstance(rebuilt, InputGuardrailTripwireTriggered)
    guardrail = rebuilt.guardrail_result.guardrail
    with pytest.raises(UserError, match="its function is in the process that ran it"):
        asyncio.run(guardrail.run(Agent(name="clerk"), "hello", RunContextWrapper(None)))


@pytest.mark.parametrize("index", range(4))
def test_a_tripwire_can_be_pickled_though_the_user_s_functions_cannot(index: int) -> None:
    error = tripwires()[index]
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    (before, said_before), (after, said) = guardrail_and_output(error), guardrail_and_output(copied)
    assert after.get_name() == before.get_name()
    assert getattr(after, "run_in_parallel", None) == getattr(before, "run_in_parallel", None)
    assert said == said_before
    if isinstance(copied, OutputGuardrailTripwireTriggered):
        assert copied.guardrail_result.agent.name == "clerk"
        assert copied.guardrail_result.agent_output == {"a": 1}


@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        (
            GuardrailTimeout("topic", 2.5),
            "guardrail_timeout",
            {"guardrail": "topic", "timeout_s": 2.5},
        ),
        (BudgetExceeded("no more tokens", "tokens"), "budget", {"budget": "tokens"}),
        (ApprovalExpired("nobody answered"), "approval_expired", {}),
        (ConversationBusy("chat_1 has a run"), "conversation_busy", {}),
    ],
)
def test_our_own_endings_cross_the_bus_and_can_be_pickled(
    error: AgentsException, code: str, data: dict[str, Any]
) -> None:
    info = error_info(error)
    assert (info.code, error.code) == (code, code)
    assert info.data == {"exception": type(error).__name__, **data}
    for copied in (exception_of_error(info, "run_1"), pickle.loads(pickle.dumps(error))):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)


# --- records --------------------------------------------------------------------------------------


def decoded(record: GuardrailRecord) -> GuardrailRecord:
    return msgspec.json.decode(msgspec.json.encode(record), type=GuardrailRecord)


def test_a_record_says_what_was_said() -> None:
    trip = decoded(record("input", "topic", TRIP, agent="clerk"))
    assert (trip.kind, trip.name, trip.tripped, trip.agent) == ("input", "topic", True, "clerk")
    assert msgspec.json.decode(trip.info) == {"why": "off topic"}
    assert (trip.behavior, trip.message) == ("", "")

    fine = decoded(record("output", "tone", GuardrailFunctionOutput(None, False)))
    assert not fine.tripped and not fine.info

    reject = decoded(record("tool_input", "amount", REJECT))
    assert (reject.tripped, reject.behavior, reject.message) == (
        False,
        "reject_content",
        "not today",
    )
    assert record("tool_output", "secrets", ALLOW).behavior == "allow"
    assert record("tool_output", "secrets", RAISE).tripped


class Opaque:
    def __str__(self) -> str:
        return "opaque"


@pytest.mark.parametrize(
    ("info", "told"),
    [
        (Opaque(), "opaque"),
        ({"of": Opaque()}, {"of": "opaque"}),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ("half of a pair: \ud83d", "half of a pair: \\ud83d"),
        ([Reason(why="x")], [{"why": "x"}]),
        (7, 7),
    ],
)
def test_info_that_is_not_json_becomes_its_text(info: Any, told: Any) -> None:
    made = record("input", "topic", GuardrailFunctionOutput(info, False))
    assert msgspec.json.decode(decoded(made).info) == told


def test_info_that_contains_itself_is_told_too() -> None:
    info: list[Any] = []
    info.append(info)
    made = record("input", "topic", GuardrailFunctionOutput(info, False))
    assert msgspec.json.decode(made.info) == "[[...]]"


@dataclass
class Guarded:
    """What has the lists of guardrails: an agent's tool or a run's settings."""

    input_guardrails: list[Any] | None = None
    output_guardrails: list[Any] | None = None
    tool_input_guardrails: list[Any] | None = None
    tool_output_guardrails: list[Any] | None = None


def all_results() -> list[Any]:
    agent = Agent(name="clerk")
    return [
        InputGuardrailResult(BEFORE_RUN, TRIP),
        OutputGuardrailResult(AFTER_RUN, "bye", agent, TRIP),
        ToolInputGuardrailResult(BEFORE_CALL, REJECT),
        ToolOutputGuardrailResult(AFTER_CALL, ALLOW),
    ]


def test_results_of_another_process_have_the_guardrails_that_are_here() -> None:
    agent: Any = Agent(name="clerk")
    agent.output_guardrails = [AFTER_RUN]
    agent.tools = [Guarded(), Guarded(None, None, [BEFORE_CALL], [AFTER_CALL])]
    config: Any = Guarded([BEFORE_RUN])
    records = [decoded(each) for each in records_of(all_results(), "clerk")]
    assert [each.kind for each in records] == ["input", "output", "tool_input", "tool_output"]

    found = results_of(records, {"clerk": agent}, config=config, agent_output="bye")
    said = GuardrailFunctionOutput({"why": "off topic"}, True)
    assert found.input_guardrail_results == [InputGuardrailResult(BEFORE_RUN, said)]
    assert found.output_guardrail_results == [OutputGuardrailResult(AFTER_RUN, "bye", agent, said)]
    assert found.tool_input_guardrail_results == [ToolInputGuardrailResult(BEFORE_CALL, REJECT)]
    assert found.tool_output_guardrail_results == [ToolOutputGuardrailResult(AFTER_CALL, ALLOW)]
    assert found.output_guardrail_results[0].agent is agent
    assert found.tool_input_guardrail_results[0].guardrail is BEFORE_CALL


def test_results_without_the_user_s_objects_have_guardrails_with_a_name_only() -> None:
    found = results_of(records_of(all_results(), "clerk"), {})
    named = [
        (type(result.guardrail), result.guardrail.get_name())
        for results in vars(found).values()
        for result in results
    ]
    assert named == [
        (InputGuardrail, "topic"),
        (OutputGuardrail, "tone"),
        (ToolInputGuardrail, "amount"),
        (ToolOutputGuardrail, "secrets"),
    ]
    assert found.output_guardrail_results[0].agent.name == "clerk"
    assert found.tool_input_guardrail_results[0].output.behavior == REJECT.behavior
