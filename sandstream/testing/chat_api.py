"""Write an answer for Chat Completions: one completion object, or the stream of its chunks.

Owns the wire format of `/v1/chat/completions` and nothing else. The format has no reasoning, which
shows only in the token counts, and no failed answers, which become an HTTP 500 elsewhere.
"""

import msgspec

from sandstream.testing.http_server import Piece
from sandstream.testing.request_reader import Json
from sandstream.testing.steps import Refusal, Text, ToolCall
from sandstream.testing.turn import Turn

_encode = msgspec.json.encode
_FINGERPRINT = "fp_scripted"


def completion_body(turn: Turn) -> bytes:
    """The whole completion object."""
    answer = turn.answer
    texts = [item.text for item in answer.items if isinstance(item, Text)]
    refusals = [item.text for item in answer.items if isinstance(item, Refusal)]
    message: Json = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": "".join(refusals) if refusals else None,
        "annotations": [],
    }
    if calls := _calls(turn):
        message["tool_calls"] = calls
    choice: Json = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": _finish_reason(turn),
    }
    return _encode({**_base(turn, "chat.completion"), "choices": [choice], "usage": _usage(turn)})


def completion_stream(turn: Turn) -> list[Piece]:
    """The chunks of the completion, each with the pause before it, and the closing `[DONE]`."""
    base = _base(turn, "chat.completion.chunk")
    options = turn.body.get("stream_options")
    with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    if with_usage:
        base["usage"] = None
    pieces: list[Piece] = []

    def add(delta: Json, *, finish: str | None = None, pause_s: float = 0.0) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        pieces.append((pause_s, _event({**base, "choices": [choice]})))

    pause_s = turn.step.delta_delay_s
    has_text = any(isinstance(item, Text) for item in turn.answer.items)
    add({"role": "assistant", "content": "" if has_text else None, "refusal": None})
    number = 0
    for index, item in enumerate(turn.answer.items):
        if isinstance(item, ToolCall):
            function = {"name": item.name, "arguments": ""}
            call_id = turn.call_id(item, index)
            head = {"index": number, "id": call_id, "type": "function", "function": function}
            add({"tool_calls": [head]})
            for delta in turn.deltas(item.arguments_text):
                call = {"index": number, "function": {"arguments": delta}}
                add({"tool_calls": [call]}, pause_s=pause_s)
            number += 1
        elif isinstance(item, Text | Refusal):
            key = "content" if isinstance(item, Text) else "refusal"
            for delta in turn.deltas(item.text):
                add({key: delta}, pause_s=pause_s)
    add({}, finish=_finish_reason(turn))
    if with_usage:
        pieces.append((0.0, _event({**base, "choices": [], "usage": _usage(turn)})))
    pieces.append((0.0, b"data: [DONE]\n\n"))
    return pieces


def _event(chunk: Json) -> bytes:
    return b"data: %b\n\n" % _encode(chunk)


def _base(turn: Turn, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{turn.unique}",
        "object": kind,
        "created": turn.created_at,
        "model": turn.body.get("model"),
        "service_tier": "default",
        "system_fingerprint": _FINGERPRINT,
    }


def _calls(turn: Turn) -> list[Json]:
    return [
        {
            "id": turn.call_id(item, index),
            "type": "function",
            "function": {"name": item.name, "arguments": item.arguments_text},
        }
        for index, item in enumerate(turn.answer.items)
        if isinstance(item, ToolCall)
    ]


def _finish_reason(turn: Turn) -> str:
    if turn.answer.status == "incomplete":
        return "content_filter" if turn.answer.reason == "content_filter" else "length"
    has_calls = any(isinstance(item, ToolCall) for item in turn.answer.items)
    return "tool_calls" if has_calls else "stop"


def _usage(turn: Turn) -> Json:
    usage = turn.usage()
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
