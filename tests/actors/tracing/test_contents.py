"""What was said, as the conventions' messages: every kind of item, bounded, never with bytes."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.run.state import RunState
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.contents import (
    MAX_BYTES,
    chat_contents,
    run_contents,
    tool_contents,
)
from sandstream_actors.tracing.fold.message_parts import message_of
from sandstream_actors.tracing.fold.model_spans import finish_reason
from sandstream_actors.tracing.span import Attributes
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    InputStaged,
    Prepared,
    RunDone,
    RunStarted,
)
from support.scripted_log import RUN, USAGE, answer, asks, begin, calls, ends, log, raw, says

PNG = base64.b64encode(b"\x89PNG" + bytes(range(256)) * 8).decode()
DATA_URL = f"data:image/png;base64,{PNG}"


def read(attributes: Attributes, name: str) -> Any:
    value = attributes[name]
    assert isinstance(value, str)
    assert len(value.encode()) <= MAX_BYTES
    return json.loads(value)


def parts(item: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = message_of(raw(item))["parts"]
    return found


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def test_chat_has_instructions_what_it_read_and_what_it_said() -> None:
    state = RunState.of(
        RUN,
        log(
            begin(instructions="Be brief."),
            answer(1, calls("add", "c1", '{"a": 1}')),
            asks("t1-0"),
            ends("t1-0", output="2"),
        ),
    )
    found = chat_contents(state, answer(2, says("It is 2.")))
    assert read(found, semconv.SYSTEM_INSTRUCTIONS) == [text("Be brief.")]
    assert read(found, semconv.INPUT_MESSAGES)[1:] == [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1}}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "2"}]},
    ]
    assert read(found, semconv.OUTPUT_MESSAGES) == [
        {"role": "assistant", "parts": [text("It is 2.")], "finish_reason": "stop"}
    ]


def test_chat_shows_what_was_prepared_for_it() -> None:
    prepared = Prepared(instructions="Today.", input=[raw({"role": "user", "content": "filtered"})])
    state = RunState.of(RUN, log(begin(instructions="static")))
    state.prepared = prepared
    found = chat_contents(state, answer(1, says("ok")))
    assert read(found, semconv.SYSTEM_INSTRUCTIONS) == [text("Today.")]
    assert read(found, semconv.INPUT_MESSAGES) == [{"role": "user", "parts": [text("filtered")]}]


def test_chat_does_not_show_what_came_while_the_model_was_at_work() -> None:
    events = log(begin(), InputStaged(input="in time"), InputStaged(input="too late"))
    found = chat_contents(RunState.of(RUN, events), answer(1, says("ok"), upto=2))
    said = [it["parts"][0]["content"] for it in read(found, semconv.INPUT_MESSAGES)]
    assert said[-1] == "in time"


def test_chat_of_a_log_without_beginning_has_only_the_answer() -> None:
    found = chat_contents(RunState(RUN), answer(7, says("late")))
    assert list(found) == [semconv.OUTPUT_MESSAGES]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([says("done")], "stop"),
        ([says("let me"), calls("f", "c1")], "tool_call"),
        ([raw({"type": "message", "status": "incomplete", "content": []})], "length"),
        (
            [raw({"type": "message", "content": [{"type": "refusal", "refusal": "no"}]})],
            "content_filter",
        ),
    ],
)
def test_finish_reason(items: list[Raw], reason: str) -> None:
    answered = answer(1, *items)
    assert finish_reason(answered) == reason
    found = read(chat_contents(RunState(RUN), answered), semconv.OUTPUT_MESSAGES)
    assert [message["finish_reason"] for message in found] == [reason]


def test_run_has_its_input_and_its_final_output() -> None:
    done = RunDone(status="completed", agent="a", turns=1, usage=USAGE, output=raw({"n": 1}))
    found = run_contents(begin(), done)
    assert read(found, semconv.INPUT_MESSAGES)[0]["role"] == "user"
    assert read(found, semconv.OUTPUT_MESSAGES) == [
        {"role": "assistant", "parts": [text('{"n":1}')], "finish_reason": "stop"}
    ]
    assert run_contents(None, None) == {}


def told(*items: Raw) -> RunStarted:
    return msgspec.structs.replace(begin(), input=list(items))


def call(arguments: str) -> CallRequested:
    return CallRequested(
        call="t1-0", kind="tool", turn=1, agent="a", arguments=arguments, reply_pool="main"
    )


def finished(output: object) -> CallFinished:
    return CallFinished(call="t1-0", kind="tool", turn=1, output=raw(output))


def test_tool_has_arguments_and_result() -> None:
    found = tool_contents(call('{"city": "Oslo"}'), finished("4 °C"))
    assert found == {semconv.TOOL_ARGUMENTS: '{"city":"Oslo"}', semconv.TOOL_RESULT: "4 °C"}
    assert tool_contents(call("plain text"), None) == {semconv.TOOL_ARGUMENTS: "plain text"}


def test_result_of_content_parts_has_no_bytes() -> None:
    image = {"type": "input_image", "image_url": DATA_URL, "detail": "auto"}
    found = tool_contents(call("{}"), finished([{"type": "input_text", "text": "see"}, image]))
    assert read(found, semconv.TOOL_RESULT) == [
        text("see"),
        {
            "type": "blob",
            "modality": "image",
            "content": "",
            "size": 2052,
            "mime_type": "image/png",
        },
    ]


# --- kinds of items --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("hi", text("hi")),
        ([{"type": "input_text", "text": "hi"}], text("hi")),
        ([{"type": "output_text", "text": "hi", "annotations": []}], text("hi")),
        ([{"type": "refusal", "refusal": "no"}], {"type": "refusal", "content": "no"}),
        (
            [{"type": "input_image", "image_url": "https://x.test/a.png"}],
            {"type": "uri", "modality": "image", "uri": "https://x.test/a.png"},
        ),
        (
            [{"type": "input_image", "file_id": "file-1"}],
            {"type": "file", "modality": "image", "file_id": "file-1"},
        ),
        (
            [{"type": "input_file", "filename": "a.pdf", "file_data": "aGVsbG8="}],
            {
                "type": "blob",
                "modality": "document",
                "content": "",
                "size": 5,
                "filename": "a.pdf",
            },
        ),
        (
            [{"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "mp3"}}],
            {
                "type": "blob",
                "modality": "audio",
                "content": "",
                "size": 5,
                "mime_type": "audio/mp3",
            },
        ),
        ([{"type": "hologram", "data": "x"}], {"type": "hologram"}),
        (["bare"], text("bare")),
    ],
)
def test_content_of_messages(content: object, part: object) -> None:
    assert message_of(raw({"role": "developer", "content": content})) == {
        "role": "system",
        "parts": [part],
    }


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "thinking"}],
                "encrypted_content": "gAAAA",
            },
            {"type": "reasoning", "content": "thinking"},
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "[1]"},
            {"type": "tool_call", "id": "c", "name": "sql", "arguments": "[1]"},
        ),
        (
            {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1}},
            {
                "type": "tool_call",
                "id": "c",
                "name": "computer",
                "arguments": {"type": "click", "x": 1},
            },
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "tool_call", "id": "c", "name": "shell", "arguments": {"commands": ["ls"]}},
        ),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file"}},
            {
                "type": "tool_call",
                "id": "c",
                "name": "apply_patch",
                "arguments": {"type": "delete_file"},
            },
        ),
        (
            {
                "type": "shell_call_output",
                "call_id": "c",
                "output": [{"type": "text", "text": "x"}],
            },
            {"type": "tool_call_response", "id": "c", "response": [text("x")]},
        ),
        (
            {
                "type": "computer_call_output",
                "call_id": "c",
                "output": {"type": "computer_screenshot", "image_url": DATA_URL},
            },
            {
                "type": "tool_call_response",
                "id": "c",
                "response": [
                    {
                        "type": "blob",
                        "modality": "image",
                        "content": "",
                        "size": 2052,
                        "mime_type": "image/png",
                    }
                ],
            },
        ),
        ({"type": "compaction", "encrypted_content": "gAAAA"}, {"type": "compaction"}),
        ({"type": "from_the_future", "secret": "x"}, {"type": "from_the_future"}),
    ],
)
def test_kinds_of_items(item: object, part: object) -> None:
    assert parts(item) == [part]


def test_hosted_calls_show_what_was_asked_and_what_came_back() -> None:
    item = {
        "type": "mcp_call",
        "id": "m1",
        "name": "search",
        "server_label": "docs",
        "arguments": '{"q":"x"}',
        "output": "found",
    }
    assert parts(item) == [
        {
            "type": "server_tool_call",
            "id": "m1",
            "name": "search",
            "server_tool_call": {"type": "mcp", "server_label": "docs", "arguments": {"q": "x"}},
        },
        {
            "type": "server_tool_call_response",
            "id": "m1",
            "server_tool_call_response": {"type": "mcp", "output": "found"},
        },
    ]
    drawn = parts({"type": "image_generation_call", "id": "i", "result": PNG})
    assert [part["type"] for part in drawn] == ["server_tool_call", "blob"]


def test_no_bytes_anywhere() -> None:
    items = [
        {"role": "user", "content": f"look: {DATA_URL} there"},
        {"type": "image_generation_call", "id": "i", "result": PNG},
        {"type": "function_call_output", "call_id": "c", "output": json.dumps({"img": DATA_URL})},
        {
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": f'{{"a":"{DATA_URL}"}}',
        },
        {"type": "code_interpreter_call", "outputs": [{"type": "image", "url": DATA_URL}]},
    ]
    for item in items:
        shown = json.dumps(message_of(raw(item)))
        assert PNG[:40] not in shown, shown
    look = parts(items[0])[0]["content"]
    assert look == "look: data:image/png;base64,[2052 bytes left out] there"


@pytest.mark.parametrize(
    "item",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"null",
        b'{"type": 7}',
        b'{"type": "message", "content": 7}',
        b'{"type": "message", "content": [null, 7, {"type": null}]}',
        b'{"type": "function_call"}',
        b'{"type": "function_call", "arguments": {"a": 1}, "name": []}',
        b'{"type": "function_call_output", "output": {"deep": ' + b"[" * 200 + b"]" * 200 + b"}}",
        b'{"type": "function_call_output", "output": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type": "reasoning", "summary": "x", "content": {"a": 1}}',
        b'{"type": "input_image"}',
        b'{"role": "user", "content": [{"type": "input_audio", "input_audio": "x"}]}',
        b'{"role": "user", "content": [{"type": "input_file", "file_data": 7}]}',
        b'{"role": "user", "content": "\\ud800"}',
        b"\xff\xfe",
    ],
)
def test_odd_items_are_shown_somehow(item: bytes) -> None:
    message = message_of(Raw(item))
    assert message["parts"] is not None
    found = chat_contents(RunState.of(RUN, log(begin())), answer(1, Raw(item)))
    assert read(found, semconv.OUTPUT_MESSAGES)


# --- bounds ----------------------------------------------------------------------------------


def test_long_conversation_keeps_the_newest_messages_and_counts_the_others() -> None:
    items = [raw({"role": "user", "content": f"{n} " + "x" * 1000}) for n in range(500)]
    found = read(run_contents(told(*items), None), semconv.INPUT_MESSAGES)
    mark, first = found[0], found[1]
    assert found[-1]["parts"][0]["content"].startswith("499 ")
    missing = mark["parts"][0]["messages"]
    assert first["parts"][0]["content"].startswith(f"{missing} ")
    assert missing + len(found) - 1 == 500


def test_long_texts_keep_beginning_and_end() -> None:
    body = "begin " + "ä" * 400_000 + " end"
    (message,) = read(
        run_contents(told(raw({"role": "user", "content": body})), None),
        semconv.INPUT_MESSAGES,
    )
    content = message["parts"][0]["content"]
    assert content.startswith("begin ä")
    assert content.endswith("ä end")
    kept = content.count("ä")
    assert f"[{400_000 - kept:,} characters left out]" in content


def test_message_of_too_many_parts_says_how_many_are_missing() -> None:
    many = [{"type": "output_text", "text": "y" * 3000} for _ in range(100)]
    answered = answer(1, raw({"type": "message", "role": "assistant", "content": many}))
    (message,) = read(chat_contents(RunState(RUN), answered), semconv.OUTPUT_MESSAGES)
    *kept, mark = message["parts"]
    assert mark["type"] == "left_out"
    assert mark["parts"] + len(kept) == 100
    assert len(kept) > 10


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"text": "z" * 1_000_000}),
        json.dumps({str(n): "z" * 100 for n in range(10_000)}),
        json.dumps({"k" * 200_000: 1}),
        json.dumps(["\x01" * 30_000] * 5),
    ],
)
def test_huge_arguments_are_still_json(arguments: str) -> None:
    found = tool_contents(call(arguments), None)
    assert "characters left out" in json.dumps(
        read(found, semconv.TOOL_ARGUMENTS), ensure_ascii=False
    )


def test_huge_result_is_bounded() -> None:
    found = tool_contents(call("{}"), finished("r" * 1_000_000))
    result = found[semconv.TOOL_RESULT]
    assert isinstance(result, str)
    assert len(result.encode()) <= MAX_BYTES
    assert "characters left out" in result


def test_a_cut_does_not_leave_half_a_secret() -> None:
    secret = "sk-proj-" + "a1B2" * 5000
    found = tool_contents(call("{}"), finished("x" * 40_000 + f" {secret} " + "y" * 40_000))
    assert "a1B2" not in str(found[semconv.TOOL_RESULT])
