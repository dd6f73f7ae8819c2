"""Usage sums, contexts and exceptions."""

import pickle
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sandstream.exceptions import (
    AgentsException,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelRefusalError,
    ModelTimeoutError,
    RunCancelled,
    RunErrorDetails,
    RunFailed,
    ToolTimeoutError,
    UserError,
)
from sandstream.run_context import RunContextWrapper
from sandstream.tool_context import ToolContext
from sandstream.usage import InputTokensDetails, OutputTokensDetails, RequestUsage, Usage


def one(input_tokens: int, output_tokens: int, cached: int = 0) -> Usage:
    return Usage(
        requests=1,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=cached, cache_write_tokens=1),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
    )


def test_add_sums_and_keeps_an_entry_for_each_request() -> None:
    total = Usage()
    total.add(one(10, 5, cached=4))
    total.add(one(3, 1))
    assert (total.requests, total.input_tokens, total.output_tokens) == (2, 13, 6)
    assert total.total_tokens == 19
    assert total.input_tokens_details == InputTokensDetails(cached_tokens=4, cache_write_tokens=2)
    assert total.output_tokens_details.reasoning_tokens == 4
    assert [entry.total_tokens for entry in total.request_usage_entries] == [15, 4]
    assert total.request_usage_entries[0].input_tokens_details.cached_tokens == 4


def test_adding_a_total_carries_its_entries_over() -> None:
    inner, outer = Usage(), Usage()
    inner.add(one(1, 1))
    inner.add(one(2, 2))
    outer.add(inner)
    assert outer == inner
    outer.request_usage_entries[0].input_tokens_details.cached_tokens = 99
    assert inner.request_usage_entries[0].input_tokens_details.cached_tokens == 0


@pytest.mark.parametrize(
    ("usage", "entries"),
    [
        (Usage(requests=1), 0),
        (Usage(requests=2, total_tokens=3), 0),
        (Usage(requests=0, total_tokens=3), 0),
        (Usage(requests=1, input_tokens=3), 1),
    ],
)
def test_entries_need_one_request_that_reported_tokens(usage: Usage, entries: int) -> None:
    total = Usage()
    total.add(usage)
    assert len(total.request_usage_entries) == entries


def test_a_total_added_to_itself_doubles() -> None:
    total = one(1, 2)
    total.add(total)
    assert (total.requests, total.total_tokens) == (2, 6)


@pytest.mark.parametrize(
    "details", [{"cached_tokens": 7}, SimpleNamespace(cached_tokens=7, cache_write_tokens=None)]
)
def test_details_of_other_shapes_are_understood(details: Any) -> None:
    usage = Usage(input_tokens_details=details, output_tokens_details=None)  # type: ignore[arg-type]
    assert usage.input_tokens_details == InputTokensDetails(cached_tokens=7)
    assert usage.output_tokens_details == OutputTokensDetails()


def test_usage_crosses_the_bus() -> None:
    total = Usage()
    total.add(one(1, 2))
    assert msgspec.json.decode(msgspec.json.encode(total), type=Usage) == total
    assert total.request_usage_entries == [
        RequestUsage(1, 2, 3, InputTokensDetails(0, 1), OutputTokensDetails(2))
    ]


def test_a_tool_context_shares_the_usage_of_its_run() -> None:
    run = RunContextWrapper(context={"user": 1}, tool_input="in")
    call = ToolContext.from_agent_context(
        run, "call_1", {"name": "t", "arguments": "{}", "namespace": "ns"}
    )
    assert (call.context, call.tool_input) == ({"user": 1}, "in")
    assert (call.tool_name, call.tool_call_id, call.tool_arguments) == ("t", "call_1", "{}")
    assert call.qualified_tool_name == "ns.t"
    call.usage.add(one(1, 1))
    assert run.usage.requests == 1


def test_a_tool_context_needs_to_know_its_call() -> None:
    with pytest.raises(ValueError, match="tool_name must be passed"):
        ToolContext(None)
    with pytest.raises(ValueError, match="tool_arguments must be passed"):
        ToolContext(None, tool_name="t", tool_call_id="c")


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (MaxTurnsExceeded("m"), "m", "max_turns"),
        (ModelBehaviorError("b"), "b", "model_behavior"),
        (UserError("u"), "u", "user_error"),
        (ModelRefusalError("no"), "Model refused to produce output: no", "model_refusal"),
        (ModelTimeoutError(1.5), "Model call timed out after 1.5 seconds.", "model_timeout"),
        (ToolTimeoutError("x", 2), "Tool 'x' timed out after 2 seconds.", "tool_timeout"),
        (RunCancelled("r1"), "Run 'r1' was cancelled.", "cancelled"),
        (RunFailed("too dear", code="budget", run_id="r1"), "too dear", "budget"),
    ],
)
def test_exceptions(error: AgentsException, text: str, code: str) -> None:
    assert (str(error), error.code, error.run_data) == (text, code, None)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (text, vars(error))


def test_run_data_is_short_in_print() -> None:
    details = RunErrorDetails(
        input="hi",
        new_items=[1, 2],
        raw_responses=[3],
        last_agent=SimpleNamespace(name="a"),
        context_wrapper=RunContextWrapper(context=None),
        input_guardrail_results=[],
        output_guardrail_results=[],
    )
    assert str(details) == "RunErrorDetails(last_agent='a', new_items=2, raw_responses=1)"
