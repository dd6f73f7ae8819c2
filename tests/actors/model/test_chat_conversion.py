"""Responses items to chat messages and back: what the reference puts on the wire, we do too."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from actors.model.recording_server import RecordingServer, Reply, json_reply, sse_reply
from sandstream_actors.model import (
    ModelAnswer,
    ModelCallError,
    ModelClient,
    ModelRequest,
    OutputSchema,
    Route,
)
from sandstream_actors.model.chat_messages import OMITTED_OUTPUT, chat_messages

USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
DATA = {"model": "llama3", "response_id": "cc1"}
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "n", "arguments": arguments}


def chat_call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "n", "arguments": arguments}}


def result(call_id: str, output: Any = "r") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def said(*texts: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "id": "m", "content": parts}


def completion(finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    spoken = {"role": "assistant", "content": None, **message}
    choice = {"index": 0, "finish_reason": finish_reason, "message": spoken}
    return {"id": "cc1", "model": "served", "choices": [choice], "usage": USAGE}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **top: Any) -> Any:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "cc1", "model": "served", "choices": choices, **top}


def ask(reply: Reply, **request: Any) -> tuple[ModelAnswer, list[Any], Any]:
    """The answer, the events and the body that the endpoint saw."""

    async def go() -> tuple[ModelAnswer, list[Any], Any]:
        events: list[Any] = []
        async with RecordingServer([reply]) as server:
            route = Route(prefix="ollama", base_url=server.url, api="chat")
            client = ModelClient([route], environ={})
            fields = {"model": "ollama/llama3", "input": [raw({"role": "user", "content": "hi"})]}
            try:
                answer = await client.call(
                    ModelRequest(**{**fields, **request}),
                    lambda event: events.append(json.loads(event)),
                )
            finally:
                await client.aclose()
            return answer, events, server.bodies[0]

    return asyncio.run(go())


def items(answer: ModelAnswer) -> list[Any]:
    return [json.loads(bytes(item)) for item in answer.output]


ASSISTANT = {"role": "assistant"}
TOOL_MESSAGE = {"role": "tool", "tool_call_id": "a", "content": "r"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([said("a", "b")], [{**ASSISTANT, "content": "a\nb"}]),
        ([said("a"), said("b")], [{**ASSISTANT, "content": x} for x in "ab"]),
        (
            [said("x"), call("a"), result("a")],
            [{**ASSISTANT, "content": "x", "tool_calls": [chat_call("a")]}, TOOL_MESSAGE],
        ),
        (
            [call("a"), call("b", ""), result("a")],
            [
                {**ASSISTANT, "content": None, "tool_calls": [chat_call("a"), chat_call("b")]},
                TOOL_MESSAGE,
            ],
        ),
        (
            [call("a"), said("x"), call("b")],
            [{**ASSISTANT, "content": "x", "tool_calls": [chat_call("a"), chat_call("b")]}],
        ),
        (
            [{"role": "assistant", "content": "x"}, call("a")],
            [
                {**ASSISTANT, "content": "x"},
                {**ASSISTANT, "content": None, "tool_calls": [chat_call("a")]},
            ],
        ),
        ([result("a", [])], [{**TOOL_MESSAGE, "content": OMITTED_OUTPUT}]),
        (
            [result("a", [{"type": "input_text", "text": "t"}])],
            [{**TOOL_MESSAGE, "content": [{"type": "text", "text": "t"}]}],
        ),
        (
            [{"role": "developer", "content": [{"type": "input_text", "text": "t"}]}],
            [{"role": "developer", "content": [{"type": "text", "text": "t"}]}],
        ),
    ],
)
def test_items_become_messages(given: list[Any], expected: list[Any]) -> None:
    assert chat_messages(given, None, "m") == expected


def test_content_parts_of_a_user() -> None:
    parts = [
        {"type": "input_text", "text": "t"},
        {"type": "input_image", "image_url": "http://i"},
        {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
        {"type": "input_file", "file_data": "d", "filename": "f.pdf"},
    ]
    (message,) = chat_messages([{"role": "user", "content": parts}], None, "m")
    assert message["content"] == [
        {"type": "text", "text": "t"},
        {"type": "image_url", "image_url": {"url": "http://i", "detail": "auto"}},
        {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
        {"type": "file", "file": {"file_data": "d", "filename": "f.pdf"}},
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "x"},
        {"type": "compaction", "id": "x", "encrypted_content": "e"},
        {"type": "web_search_call", "id": "x"},
        {"type": "custom_tool_call", "call_id": "x", "name": "n", "input": "i"},
        {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
        {"role": "user", "content": [{"type": "input_file", "file_url": "u"}]},
        result("a", {"not": "content"}),
    ],
)
def test_what_chat_cannot_carry_is_said(item: Any) -> None:
    with pytest.raises(ModelCallError) as caught:
        chat_messages([item], None, "m")
    assert caught.value.kind == "misconfigured"


def test_reasoning_goes_back_only_to_its_author() -> None:
    mine = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "provider_data": {"model": "m", "_chat_completions_reasoning_field": "reasoning"},
    }
    assert chat_messages([mine, said("x")], None, "m")[0]["reasoning"] == "hm"
    assert "reasoning" not in chat_messages([mine, said("x")], None, "other")[0]
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    (message,) = chat_messages([summary, call("a")], None, "deepseek-reasoner")
    assert message["reasoning_content"] == "hm"


def test_request_body() -> None:
    _, _, body = ask(
        json_reply(completion(content="x")),
        instructions="be nice",
        tools=[raw(TOOL)],
        output_schema=OutputSchema(schema=raw({"type": "object"})),
        settings={
            "tool_choice": "get_weather",
            "parallel_tool_calls": False,
            "reasoning": {"effort": "low"},
            "max_tokens": 5,
            "top_logprobs": 2,
            "truncation": "auto",
        },
    )
    function = {key: TOOL[key] for key in ("name", "description", "parameters", "strict")}
    schema = {"name": "final_output", "strict": True, "schema": {"type": "object"}}
    assert body == {
        "model": "llama3",
        "messages": [
            {"content": "be nice", "role": "system"},
            {"role": "user", "content": "hi"},
        ],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "max_tokens": 5,
        "logprobs": True,
        "top_logprobs": 2,
        "response_format": {"type": "json_schema", "json_schema": schema},
    }


def test_hosted_tools_are_refused() -> None:
    with pytest.raises(ModelCallError, match="Responses API"):
        ask(json_reply({}), tools=[raw({"type": "web_search"})])


def test_custom_tools_are_refused_by_name() -> None:
    with pytest.raises(ModelCallError, match=r"'apply_patch'.*without apply_patch") as caught:
        ask(json_reply({}), tools=[raw({"type": "custom", "name": "apply_patch"})])
    assert caught.value.kind == "misconfigured"


def test_a_whole_answer() -> None:
    calls = [chat_call("c1", '{"a":1}')]
    reply = json_reply(
        completion("tool_calls", content="hm", reasoning_content="think", tool_calls=calls),
        x_request_id="req_1",
    )
    answer, events, _ = ask(reply)
    text = {"annotations": [], "text": "hm", "type": "output_text", "logprobs": []}
    assert [item["type"] for item in items(answer)] == ["reasoning", "message", "function_call"]
    assert items(answer)[1] == {
        "id": "__fake_id__",
        "content": [text],
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "provider_data": DATA,
    }
    assert items(answer)[2] == {
        "arguments": '{"a":1}',
        "call_id": "c1",
        "name": "n",
        "type": "function_call",
        "id": "__fake_id__",
        "provider_data": DATA,
    }
    usage = answer.usage
    assert (usage.requests, usage.input_tokens, usage.cached_tokens) == (1, 3, 1)
    assert (usage.output_tokens, usage.reasoning_tokens, usage.total_tokens) == (2, 1, 5)
    assert (answer.response_id, answer.request_id, answer.model) == (None, "req_1", "served")
    assert events == []


def test_refusals_and_filters() -> None:
    answer, _, _ = ask(json_reply(completion(refusal="no")))
    assert items(answer)[0]["content"] == [{"refusal": "no", "type": "refusal"}]
    answer, _, _ = ask(json_reply(completion("content_filter")))
    assert "content filter" in items(answer)[0]["content"][0]["refusal"]


@pytest.mark.parametrize(
    "body",
    [
        completion("length"),
        {**completion(), "choices": []},
        {**completion(), "choices": None, "error": {"message": "oops", "code": 502}},
        {"choices": [{"message": {"content": ["not", "text"]}}]},
        [],
    ],
)
def test_malformed_answers(body: Any) -> None:
    with pytest.raises(ModelCallError) as caught:
        ask(json_reply(body))
    assert caught.value.kind == "behavior"
    assert not caught.value.retryable


def test_streamed_text_and_call() -> None:
    piece = {"index": 0, "id": "c1", "type": "function", "function": {"name": "n"}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    chunks = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "he"}),
        chunk({"content": "llo"}),
        chunk({"tool_calls": [piece]}),
        chunk({"tool_calls": [more]}),
        chunk({}, "tool_calls"),
        chunk(usage=USAGE),
    ]
    answer, events, body = ask(sse_reply(chunks, done=True), stream=True)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_item.added",
        "function_call_arguments.delta",
        "content_part.done",
        "output_item.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(11))
    assert events[-1]["response"]["output"] == items(answer)
    assert items(answer)[0]["content"][0]["text"] == "hello"
    assert items(answer)[1]["arguments"] == "{}"
    assert answer.usage.total_tokens == 5
    assert body["stream"] is True
    assert "stream_options" not in body


def test_streamed_reasoning_is_closed_when_the_text_begins() -> None:
    chunks = [
        chunk({"reasoning_content": "th"}),
        chunk({"reasoning_content": "ink"}),
        chunk({"content": "x"}),
        chunk({}, "stop"),
    ]
    answer, events, _ = ask(sse_reply(chunks, done=True), stream=True)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds.index("reasoning_summary_part.done") < kinds.index("content_part.added")
    assert items(answer)[0]["summary"] == [{"text": "think", "type": "summary_text"}]


@pytest.mark.parametrize("with_index", [True, False])
def test_two_streamed_calls(with_index: bool) -> None:
    def piece(position: int) -> dict[str, Any]:
        function = {"name": "n", "arguments": f'{{"i":{position}}}'}
        found = {"id": f"c{position}", "function": function}
        return {"index": position, **found} if with_index else found

    chunks = [chunk({"tool_calls": [piece(i)]}) for i in range(2)]
    answer, _, _ = ask(sse_reply([*chunks, chunk({}, "tool_calls")], done=True), stream=True)
    assert [item["call_id"] for item in items(answer)] == ["c0", "c1"]
    assert [item["arguments"] for item in items(answer)] == ['{"i":0}', '{"i":1}']


def test_stream_options_follow_include_usage() -> None:
    reply = sse_reply([chunk({"content": "x"}, "stop")], done=True)
    _, _, body = ask(reply, stream=True, settings={"include_usage": True})
    assert body["stream_options"] == {"include_usage": True}
