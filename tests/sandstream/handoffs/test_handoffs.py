"""Handoffs without a run: how they are declared, what a call of one does, what is passed on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from sandstream.agent import Agent
from sandstream.exceptions import ModelBehaviorError, UserError
from sandstream.extensions.handoff_filters import remove_all_tools
from sandstream.extensions.handoff_prompt import (
    RECOMMENDED_PROMPT_PREFIX,
    prompt_with_handoff_instructions,
)
from sandstream.handoffs import (
    Handoff,
    HandoffInputData,
    default_handoff_history_mapper,
    get_conversation_history_wrappers,
    handoff,
    nest_handoff_history,
    reset_conversation_history_wrappers,
    set_conversation_history_wrappers,
)
from sandstream.handoffs._invocation import invoke, rewritten
from sandstream.items import (
    HandoffCallItem,
    HandoffOutputItem,
    MessageOutputItem,
    ReasoningItem,
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
)
from sandstream.run_context import RunContextWrapper

PREAMBLE = "For context, here is the conversation so far between the user and the previous agent:"
BILLING = Agent[Any](name="Billing", handoff_description="For invoices.")
TRIAGE = Agent[Any](name="Triage")
CONTEXT = RunContextWrapper[Any](context=None)


class Reason(BaseModel):
    text: str
    level: int = 0


@pytest.fixture(autouse=True)
def default_markers() -> Iterator[None]:
    yield
    reset_conversation_history_wrappers()


def message(text: str) -> MessageOutputItem:
    part = {"type": "output_text", "text": text, "annotations": []}
    raw = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
    return MessageOutputItem(TRIAGE, raw)


def call(call_id: str, **more: Any) -> ToolCallItem:
    raw = {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **more}
    return ToolCallItem(TRIAGE, raw)


def output(call_id: str) -> ToolCallOutputItem:
    raw = {"type": "function_call_output", "call_id": call_id, "output": "seen"}
    return ToolCallOutputItem(TRIAGE, raw, "seen")


def handoff_items() -> tuple[RunItem, ...]:
    asked = {"type": "function_call", "call_id": "h", "name": "transfer_to_billing"}
    done = {"type": "function_call_output", "call_id": "h", "output": '{"assistant": "Billing"}'}
    return (
        HandoffCallItem(TRIAGE, {**asked, "arguments": ""}),
        HandoffOutputItem(TRIAGE, done, source_agent=TRIAGE, target_agent=BILLING),
    )


def summary(*lines: str, start: str = "<CONVERSATION HISTORY>") -> dict[str, Any]:
    end = start.replace("<", "</")
    return {"role": "assistant", "content": "\n".join([PREAMBLE, start, *lines, end])}


def nested(
    history: str | tuple[dict[str, Any], ...],
    pre: tuple[RunItem, ...] = (),
    new: tuple[RunItem, ...] = (),
) -> list[dict[str, Any]]:
    result = nest_handoff_history(HandoffInputData(history, pre, new)).input_history
    assert isinstance(result, tuple)
    return list(result)


# Declaration


def test_the_defaults_come_from_the_agent() -> None:
    made = handoff(BILLING)
    assert made.tool_name == "transfer_to_billing"
    assert made.tool_description == (
        "Handoff to the Billing agent to handle the request. For invoices."
    )
    assert made.input_json_schema == {
        "additionalProperties": False,
        "type": "object",
        "properties": {},
        "required": [],
    }
    assert (made.agent_name, made.agent) == ("Billing", BILLING)
    assert (made.input_filter, made.nest_handoff_history) == (None, None)
    assert made.strict_json_schema is True
    assert made.is_enabled is True
    assert made.get_transfer_message(BILLING) == '{"assistant": "Billing"}'


def test_what_is_said_wins_over_the_defaults() -> None:
    made = handoff(
        BILLING,
        tool_name_override="to_money",
        tool_description_override="Money.",
        input_filter=remove_all_tools,
        nest_handoff_history=True,
        is_enabled=False,
    )
    assert (made.tool_name, made.tool_description) == ("to_money", "Money.")
    assert made.input_filter is remove_all_tools
    assert (made.nest_handoff_history, made.is_enabled) == (True, False)


def test_an_agents_name_becomes_a_function_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert Handoff.default_tool_name(Agent(name="Sales\tUK 2")) == "transfer_to_sales_uk_2"
        assert caplog.records == []
        assert Handoff.default_tool_name(Agent(name="Käse & Co")) == "transfer_to_k_se___co"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_description_is_not_needed() -> None:
    text = "Handoff to the Triage agent to handle the request. "
    assert Handoff.default_tool_description(TRIAGE) == text


def test_only_agents_can_be_handed_off_to() -> None:
    wrong: Any = "Billing"
    with pytest.raises(TypeError, match="needs an Agent"):
        handoff(wrong)


def test_the_input_type_is_the_schema_of_the_call() -> None:
    made = handoff(BILLING, on_handoff=lambda context, reason: None, input_type=Reason)
    assert made.input_json_schema["additionalProperties"] is False
    assert made.input_json_schema["required"] == ["text", "level"]


@pytest.mark.parametrize(
    ("on_handoff", "input_type", "said"),
    [
        (None, Reason, "needs on_handoff"),
        ("no function", Reason, r"must be a function of \(context, input\)"),
        ("no function", None, r"must be a function of \(context\)"),
        (lambda context: None, Reason, r"must take \(context, input\).*takes 1 argument"),
        (lambda context, reason: None, None, r"must take \(context\).*takes 2 argument"),
        (lambda: None, None, "takes 0 argument"),
        (lambda context, reason: None, dict[str, int], "no strict JSON schema"),
        (lambda context, reason: None, asyncio.Event, "JSON cannot describe"),
    ],
)
def test_a_wrong_declaration_is_an_error_at_once(
    on_handoff: Any, input_type: Any, said: str
) -> None:
    with pytest.raises(UserError, match=f"Handoff to 'Billing'.*{said}"):
        handoff(BILLING, on_handoff=on_handoff, input_type=input_type)


def test_is_enabled_can_be_asked_in_one_way() -> None:
    async def later(context: RunContextWrapper[Any], agent: Agent[Any]) -> bool:
        return agent is TRIAGE

    for decide in (later, lambda context, agent: agent is TRIAGE):
        enabled: Any = handoff(BILLING, is_enabled=decide).is_enabled
        assert asyncio.run(enabled(CONTEXT, TRIAGE)) is True
        assert asyncio.run(enabled(CONTEXT, BILLING)) is False


# A call


def test_the_callback_gets_the_context_and_the_input() -> None:
    got: list[Any] = []

    async def later(context: RunContextWrapper[Any], reason: Reason) -> None:
        await asyncio.sleep(0)
        got.append((context, reason))

    async def take() -> None:
        plain = handoff(BILLING, on_handoff=got.append)
        assert await invoke(plain, CONTEXT, "") is BILLING
        typed = handoff(BILLING, on_handoff=later, input_type=Reason)
        assert await invoke(typed, CONTEXT, '{"text": "late", "level": 2}') is BILLING

    asyncio.run(take())
    assert got == [CONTEXT, (CONTEXT, Reason(text="late", level=2))]


def test_without_a_callback_the_arguments_do_not_matter() -> None:
    assert asyncio.run(invoke(handoff(BILLING), CONTEXT, "not JSON")) is BILLING


@pytest.mark.parametrize(
    "arguments", ["", "{}", "null", "{bad", '{"text": 1}', '{"text": "x", "level": "1"}']
)
def test_input_that_does_not_fit_is_the_models_fault(arguments: str) -> None:
    got: list[Any] = []
    made = handoff(BILLING, on_handoff=lambda context, r: got.append(r), input_type=Reason)
    with pytest.raises(ModelBehaviorError, match=r"handoff to Billing$"):
        asyncio.run(invoke(made, CONTEXT, arguments))
    assert got == []


def test_no_input_at_all_is_the_models_fault() -> None:
    made = handoff(BILLING, on_handoff=lambda context, reason: None, input_type=Reason)
    nothing: Any = None
    with pytest.raises(ModelBehaviorError, match="passed no input"):
        asyncio.run(invoke(made, CONTEXT, nothing))


def test_errors_show_the_input_only_if_both_switches_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def error() -> str:
        made = handoff(BILLING, on_handoff=lambda context, reason: None, input_type=Reason)
        with pytest.raises(ModelBehaviorError) as caught:
            asyncio.run(invoke(made, CONTEXT, '{"text": 4711}'))
        return str(caught.value)

    monkeypatch.setenv("OPENAI_AGENTS_DONT_LOG_TOOL_DATA", "0")
    assert "4711" not in error()
    monkeypatch.setenv("OPENAI_AGENTS_DONT_LOG_MODEL_DATA", "false")
    assert "4711" in error()


def test_what_the_callback_raises_goes_through() -> None:
    def fail(context: RunContextWrapper[Any]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(invoke(handoff(BILLING, on_handoff=fail), CONTEXT, ""))


def test_a_handoff_of_ones_own_chooses_the_agent() -> None:
    async def choose(context: RunContextWrapper[Any], arguments: str) -> Any:
        return {"b": BILLING}.get(arguments)

    own: Handoff[Any, Any] = Handoff("choose", "d", {}, choose, "Billing")
    assert own.agent is None
    assert asyncio.run(invoke(own, CONTEXT, "b")) is BILLING
    with pytest.raises(UserError, match="'choose' must return an Agent, not None"):
        asyncio.run(invoke(own, CONTEXT, "x"))


def test_a_changed_copy_knows_its_agent_as_long_as_it_is_the_same() -> None:
    async def other(context: RunContextWrapper[Any], arguments: str) -> Any:
        return TRIAGE

    made = handoff(BILLING)
    assert dataclasses.replace(made, tool_name="x").agent is BILLING
    assert dataclasses.replace(made, on_invoke_handoff=other).agent is None


# What the next agent sees


def rewrite(
    made: Handoff[Any, Any],
    config_filter: Any = None,
    config_nest: bool = False,
    config_mapper: Any = None,
) -> HandoffInputData | None:
    return asyncio.run(
        rewritten(
            made,
            config_filter,
            config_nest,
            config_mapper,
            input_history="hi",
            pre_items=(message("old"),),
            new_items=handoff_items(),
            context=CONTEXT,
        )
    )


def keeps(name: str) -> Any:
    return lambda data: data.clone(input_history=name)


def history_of(data: HandoffInputData | None) -> Any:
    assert data is not None
    return data.input_history


def test_nothing_changes_unless_asked_for() -> None:
    assert rewrite(handoff(BILLING)) is None
    assert rewrite(handoff(BILLING, nest_handoff_history=False), config_nest=True) is None


def test_a_handoffs_filter_wins_over_the_runs_and_a_filter_over_folding() -> None:
    own = handoff(BILLING, input_filter=keeps("own"), nest_handoff_history=True)
    assert history_of(rewrite(own, keeps("run's"), config_nest=True)) == "own"
    assert history_of(rewrite(handoff(BILLING), keeps("run's"), config_nest=True)) == "run's"


def test_a_filter_sees_the_whole_conversation_and_may_be_async() -> None:
    seen: list[HandoffInputData] = []

    async def later(data: HandoffInputData) -> HandoffInputData:
        seen.append(data)
        return data

    assert rewrite(handoff(BILLING, input_filter=later)) is seen[0]
    assert (seen[0].input_history, seen[0].input_items) == ("hi", None)
    assert [item.type for item in seen[0].pre_handoff_items] == ["message_output_item"]
    assert [item.type for item in seen[0].new_items] == [
        "handoff_call_item",
        "handoff_output_item",
    ]
    assert seen[0].run_context is CONTEXT


def test_a_filter_must_be_one() -> None:
    wrong: Any = "no function"
    with pytest.raises(UserError, match="input_filter of handoff 'transfer_to_billing' must be a"):
        rewrite(handoff(BILLING, input_filter=wrong))
    with pytest.raises(UserError, match=r"^handoff_input_filter must return HandoffInputData"):
        rewrite(handoff(BILLING), lambda data: list(data.new_items))


def test_folding_is_the_handoffs_choice_before_the_runs() -> None:
    by_run = history_of(rewrite(handoff(BILLING), config_nest=True))
    assert by_run[0]["content"].startswith(PREAMBLE)
    assert history_of(rewrite(handoff(BILLING, nest_handoff_history=True))) == by_run


def test_a_mapper_replaces_the_folding_exactly() -> None:
    got: list[Any] = []

    def mapper(transcript: list[dict[str, Any]]) -> list[dict[str, Any]]:
        got.extend(transcript)
        return [transcript[0]]

    data = rewrite(handoff(BILLING), config_nest=True, config_mapper=mapper)
    assert history_of(data) == ({"role": "user", "content": "hi"},)
    assert history_of(data)[0] is not got[0]
    kinds = [item.get("type", item.get("role")) for item in got]
    assert kinds == ["user", "message", "function_call", "function_call_output"]


# Folding


def test_earlier_turns_are_folded_and_this_turns_messages_stay() -> None:
    new = (message("I pass you on."), *handoff_items())
    first, said, last = nested("hi", (message("old"), call("c"), output("c")), new)
    old = message("old").to_input_item()["content"]
    assert first["content"].splitlines()[2:4] == [
        "1. user: hi",
        '2. {"id": "m", "content": [{"annotations": [], '
        f'"text": "{old[0]["text"]}", "type": "output_text"}}], '
        '"role": "assistant", "type": "message"}',
    ]
    assert [line[:20] for line in first["content"].splitlines()[4:]] == [
        '3. {"arguments": "{}',
        '4. {"type": "functio',
        "</CONVERSATION HISTO",
    ]
    assert said == message("I pass you on.").to_input_item()
    assert last["content"].splitlines()[2].startswith('1. {"arguments": "", "call_id": "h"')


def test_all_input_of_the_next_agent_is_in_the_history() -> None:
    new = handoff_items()
    result = nest_handoff_history(HandoffInputData("hi", (message("x"),), new, CONTEXT, new))
    assert (result.pre_handoff_items, result.input_items) == ((), ())
    assert result.new_items is new
    assert result.run_context is CONTEXT


def test_reasoning_is_folded_and_approvals_are_left_out() -> None:
    thought = ReasoningItem(TRIAGE, {"type": "reasoning", "id": "r", "summary": []})
    waiting = ToolApprovalItem(TRIAGE, {"type": "function_call", "call_id": "c", "name": "f"})
    assert nested("hi", (waiting,), (thought, waiting)) == [
        summary("1. user: hi", '2. {"id": "r", "summary": [], "type": "reasoning"}')
    ]


def test_calls_of_hosted_tools_stay_but_those_of_a_program_do_not() -> None:
    search = {"type": "web_search_call", "id": "w"}
    program = {"type": "program", "id": "p"}
    pre = (ToolCallItem(TRIAGE, search), ToolCallItem(TRIAGE, program))
    new = (ToolCallItem(TRIAGE, {**search, "caller": {"type": "program"}}),)
    first, kept, last = nested("hi", pre, new)
    assert first == summary("1. user: hi")
    assert kept == search
    assert last["content"].count('"type": "program"') == 2


def test_what_is_no_input_is_not_passed_on() -> None:
    stored = {"role": "user", "content": "a\nb", "created_by": "x", "_agents_tool_title": "y"}
    pre = (call("c", status=None, created_by="x", provider_data={"a": 1}),)
    plain = '{"arguments": "{}", "call_id": "c", "name": "look", "type": "function_call"}'
    assert nested((stored,), pre) == [
        summary('1. {"role": "user", "content": "a\\nb"}', f"2. {plain}")
    ]


def test_an_empty_conversation_is_said_to_be_empty() -> None:
    assert nested(()) == [summary("(no previous turns recorded)")]
    assert default_handoff_history_mapper([]) == nested(())
    assert nested((), (), (message("x"),))[0] == summary("(no previous turns recorded)")


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({"role": "user", "content": "ü: x"}, "user: ü: x"),
        ({"role": "user", "name": "Bo", "content": "x"}, "user (Bo): x"),
        ({"role": "user", "content": None}, "user: "),
        ({"role": "user", "content": "a\rb"}, '{"role": "user", "content": "a\\rb"}'),
        ({"role": "user", "content": [1]}, '{"role": "user", "content": [1]}'),
        ({"type": "t", "x": BaseException("b")}, '{"type": "t", "x": "b"}'),
        ({"type": "t", ("k",): 1}, "t: {('k',): 1}"),
        ({"role": "user", "content": {("k",): 1}}, "user: {('k',): 1}"),
        ({"odd": "é", "provider_data": 1}, '{"odd": "é"}'),
    ],
)
def test_each_turn_is_a_numbered_line(item: dict[str, Any], line: str) -> None:
    assert default_handoff_history_mapper([item, item]) == [summary(f"1. {line}", f"2. {line}")]


def turns_in(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The transcript of a conversation that has only this item."""
    got: list[dict[str, Any]] = []

    def mapper(transcript: list[dict[str, Any]]) -> list[dict[str, Any]]:
        got.extend(transcript)
        return []

    nest_handoff_history(HandoffInputData((item,), (), ()), history_mapper=mapper)
    return got


def read(*lines: str) -> list[dict[str, Any]]:
    return turns_in(summary(*lines))


@pytest.mark.parametrize(
    ("line", "turn"),
    [
        ("1. user: a: b", {"role": "user", "content": "a: b"}),
        ("12. user (Bo): x", {"role": "user", "name": "Bo", "content": "x"}),
        ("1. (Bo): x", {"role": "developer", "name": "Bo", "content": "x"}),
        ("1. user: ", {"role": "user", "content": ""}),
        ("1. user", {"role": "user", "content": ""}),
        ("1. user (Bo)", {"role": "user", "name": "Bo", "content": ""}),
        ("1. user ()", {"role": "user ()", "content": ""}),
        ("user: no number", {"role": "user", "content": "no number"}),
        ("1. user: one\ntwo  \n\n three", {"role": "user", "content": "one\ntwo\n three"}),
        ('1. {"type": "t", "provider_data": 1, "created_by": 2}', {"type": "t"}),
        ('1. function_call: {"call_id": "c"}', {"call_id": "c", "type": "function_call"}),
        ('1. user: {"a": 1}', {"role": "user", "content": '{"a": 1}'}),
    ],
)
def test_a_summary_can_be_read_again(line: str, turn: dict[str, Any]) -> None:
    assert read(line) == [turn]
    assert read(line, "99. user: next") == [turn, {"role": "user", "content": "next"}]


def test_what_is_no_turn_is_not_read_as_one() -> None:
    assert read("1. just prose", "2. : nobody", "3.") == []
    assert read("(no previous turns recorded)") == []


def test_a_second_handoff_lists_the_turns_of_the_first() -> None:
    once = nested("hi", (message("old"), call("c"), output("c")), handoff_items())
    again = nested((*once, {"role": "user", "content": "and?"}))
    [text] = [item["content"] for item in again]
    assert text.count(PREAMBLE) == 1
    assert [line.split(".")[0] for line in text.splitlines()[2:-1]] == list("1234567")
    assert text.splitlines()[2:8] == once[0]["content"].splitlines()[2:8]
    assert text.splitlines()[8] == "7. user: and?"


@pytest.mark.parametrize(
    "item",
    [
        {**summary("1. user: x"), "role": "user"},
        {"role": "assistant", "content": summary("1. user: x")["content"] + " "},
        {"role": "assistant", "content": "Look:\n" + summary("1. user: x")["content"]},
        summary("1. user: x", start="<OTHER>"),
    ],
)
def test_only_exact_summaries_are_taken_apart(item: dict[str, Any]) -> None:
    assert turns_in(item) == [item]


def test_the_old_preamble_is_known() -> None:
    content = summary("1. user: x")["content"]
    old = content.replace(PREAMBLE, "For context, here is the conversation so far:")
    assert nested(({"role": "assistant", "content": old},)) == [summary("1. user: x")]


def test_folding_leaves_the_conversation_as_it_was() -> None:
    history = ({"role": "user", "content": [{"type": "input_text", "text": "a"}]},)
    item = message("x")

    def spoil(transcript: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for turn in transcript:
            turn["content"][0]["text"] = "spoilt"
        return transcript

    nest_handoff_history(HandoffInputData(history, (item,), ()), history_mapper=spoil)
    assert history[0]["content"] == [{"type": "input_text", "text": "a"}]
    assert item.to_input_item() == message("x").to_input_item()


def test_the_markers_can_be_changed() -> None:
    set_conversation_history_wrappers(start="<PAST>")
    assert get_conversation_history_wrappers() == ("<PAST>", "</CONVERSATION HISTORY>")
    set_conversation_history_wrappers(end="</PAST>")
    once = nested("hi")
    assert once == [summary("1. user: hi", start="<PAST>")]
    assert nested(tuple(once)) == once
    reset_conversation_history_wrappers()
    default = ("<CONVERSATION HISTORY>", "</CONVERSATION HISTORY>")
    assert get_conversation_history_wrappers() == default


# Data, filters, prompts


def test_the_data_is_frozen_and_can_be_cloned() -> None:
    data = HandoffInputData("hi", (), handoff_items(), CONTEXT)
    changed = data.clone(input_items=())
    assert (changed.input_items, data.input_items) == ((), None)
    assert changed.new_items is data.new_items
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.input_history = "x"  # type: ignore[misc]
    with pytest.raises(TypeError, match="nope"):
        data.clone(nope=1)


def test_all_tools_can_be_removed() -> None:
    said = message("x")
    thought = ReasoningItem(TRIAGE, {"type": "reasoning", "id": "r", "summary": []})
    waiting = ToolApprovalItem(TRIAGE, {"type": "function_call", "call_id": "c", "name": "f"})
    mixed = (thought, call("c"), said, output("c"), waiting, *handoff_items())
    user = {"role": "user", "content": "hi"}
    kinds = ("function_call", "function_call_output", "reasoning", "shell_call", "program")
    history = (user, *({"type": kind} for kind in kinds), {"type": "item_reference", "id": "x"})
    data = remove_all_tools(HandoffInputData(history, mixed, mixed, CONTEXT, mixed))
    assert data.input_history == (user, {"type": "item_reference", "id": "x"})
    assert data.pre_handoff_items == data.new_items == data.input_items == (said,)
    assert data.run_context is CONTEXT


def test_removing_tools_invents_nothing() -> None:
    data = remove_all_tools(HandoffInputData("hi", (), ()))
    assert (data.input_history, data.input_items) == ("hi", None)


def test_the_prompt_explains_handoffs_first() -> None:
    assert "transfer_to_" in RECOMMENDED_PROMPT_PREFIX
    prompt = prompt_with_handoff_instructions("Be kind.")
    assert prompt == f"{RECOMMENDED_PROMPT_PREFIX}\n\nBe kind."
