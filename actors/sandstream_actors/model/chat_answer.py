"""Read a complete answer of the Chat Completions API."""

from __future__ import annotations

from typing import Any

import msgspec

from sandstream_actors.model.chat_items import (
    FILTERED,
    ChatUsage,
    Fields,
    call_item,
    message_item,
    provider_data,
    reasoning_item,
    refusal_part,
    summary_item,
    text_part,
)
from sandstream_actors.model.failures import malformed, stream_error, unsupported
from sandstream_actors.model.interface import NO_JSON, ModelAnswer, ModelCallError, Usage, given
from sandstream_actors.model.transport import Received


class _Function(msgspec.Struct):
    name: str
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    id: str | None = None
    type: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None
    annotations: list[dict[str, Any]] | None = None
    audio: Any = None


class _Logprobs(msgspec.Struct):
    content: list[Any] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = NO_JSON
    error: Any = None


_decode = msgspec.json.Decoder(_Completion).decode
_decode_usage = msgspec.json.Decoder(ChatUsage).decode
_encode = msgspec.json.Encoder().encode


def read_chat_answer(received: Received, model: str, *, keep_usage: bool) -> ModelAnswer:
    at = received.where, received.request_id
    try:
        completion = _decode(received.content)
        usage = _decode_usage(completion.usage) if given(completion.usage) else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(str(error), *at) from error
    if not completion.choices:
        if completion.error is not None:
            raise stream_error(completion.error, *at)
        raise malformed("the completion has no choices", *at)
    choice = completion.choices[0]
    if choice.message is None:
        raise malformed("the choice has no message", *at)
    items = _items(choice, choice.message, provider_data(model, completion.id))
    silent = all(item["type"] == "reasoning" for item in items)
    if silent and choice.finish_reason == "length":
        raise cut_short(received)
    return ModelAnswer(
        output=[msgspec.Raw(_encode(item)) for item in items],
        usage=usage.flat() if usage is not None else Usage(requests=1),
        request_id=received.request_id,
        model=completion.model,
        raw_usage=completion.usage.copy() if keep_usage and given(completion.usage) else NO_JSON,
    )


def cut_short(received: Received) -> ModelCallError:
    return ModelCallError(
        "behavior",
        f"{received.where} stopped with finish_reason='length' before any text, tool call or "
        "refusal. Raise max_tokens.",
        code="length",
        request_id=received.request_id,
    )


def _items(choice: _Choice, message: _Message, data: Fields) -> list[Fields]:
    if message.audio is not None:
        raise unsupported("Audio output is not supported on a Chat Completions route.")
    items: list[Fields] = []
    if message.reasoning_content:
        items.append(summary_item(message.reasoning_content, data))
    elif message.reasoning:
        items.append(reasoning_item(message.reasoning, data))
    calls = [
        call_item(call.id or "", call.function.name, call.function.arguments or "", data)
        for call in message.tool_calls or ()
        if call.function is not None
    ]
    parts = []
    if message.content:
        logprobs = choice.logprobs.content if choice.logprobs is not None else None
        annotations = [flat_annotation(one) for one in message.annotations or ()]
        parts.append(text_part(message.content, annotations, logprobs or []))
    if message.refusal:
        parts.append(refusal_part(message.refusal))
    if not parts and not calls and choice.finish_reason == "content_filter":
        parts.append(refusal_part(FILTERED))
    if parts:
        items.append(message_item(parts, data))
    return items + calls


def flat_annotation(annotation: Fields) -> Fields:
    """Chat nests a citation under its type; Responses does not."""
    kind = annotation.get("type")
    inner = annotation.get(kind) if isinstance(kind, str) else None
    return {**inner, "type": kind} if isinstance(inner, dict) else annotation
