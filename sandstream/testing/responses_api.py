"""Write an answer for the Responses API: one response object, or the stream of its events.

Owns the wire format of `/v1/responses` and nothing else. The parts of a request that are echoed
(tools, instructions) are encoded once per answer and inserted into each snapshot of the response.
"""

import time
from typing import Any

import msgspec

from sandstream.testing.http_server import Piece
from sandstream.testing.request_reader import Json
from sandstream.testing.steps import CustomToolCall, Item, Reasoning, Refusal, Text, ToolCall
from sandstream.testing.turn import Turn

_encode = msgspec.json.encode


def response_body(turn: Turn) -> bytes:
    """The whole response object."""
    return _encode(_finished(_snapshot(turn), turn))


def response_stream(turn: Turn) -> list[Piece]:
    """The events of the response, each with the pause before it."""
    snapshot = _snapshot(turn)
    events = _Events(turn.step.delta_delay_s)
    for kind in ("response.created", "response.in_progress"):
        events.add(kind, {"response": snapshot})
    for index, item in enumerate(turn.answer.items):
        _stream_item(events, turn, index, item)
    events.add(f"response.{turn.answer.status}", {"response": _finished(snapshot, turn)})
    return events.pieces


class _Events:
    """Numbers and encodes events."""

    def __init__(self, delta_delay_s: float) -> None:
        self.pieces: list[Piece] = []
        self._delta_delay_s = delta_delay_s

    def add(self, kind: str, fields: Json, *, pause_s: float = 0.0) -> None:
        event = {"type": kind, "sequence_number": len(self.pieces), **fields}
        self.pieces.append((pause_s, b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(event))))

    def delta(self, kind: str, fields: Json) -> None:
        self.add(kind, fields, pause_s=self._delta_delay_s)


def _stream_item(events: _Events, turn: Turn, index: int, item: Item) -> None:
    done = _item(turn, index, item)
    at: Json = {"item_id": done["id"], "output_index": index}
    begun = {**done, "status": "in_progress"}
    if isinstance(item, ToolCall):
        events.add("response.output_item.added", _placed(index, {**begun, "arguments": ""}))
        kind = "response.function_call_arguments"
        for delta in turn.deltas(item.arguments_text):
            events.delta(f"{kind}.delta", {**at, "delta": delta})
        events.add(f"{kind}.done", {**at, "arguments": item.arguments_text})
    elif isinstance(item, CustomToolCall):
        events.add("response.output_item.added", _placed(index, {**begun, "input": ""}))
        kind = "response.custom_tool_call_input"
        for delta in turn.deltas(item.input):
            events.delta(f"{kind}.delta", {**at, "delta": delta})
        events.add(f"{kind}.done", {**at, "input": item.input})
    elif isinstance(item, Reasoning):
        events.add("response.output_item.added", _placed(index, {**done, "summary": []}))
        if item.text:
            _stream_summary(events, turn, {**at, "summary_index": 0}, item.text)
    else:
        events.add("response.output_item.added", _placed(index, {**begun, "content": []}))
        _stream_content(events, turn, {**at, "content_index": 0}, item)
    events.add("response.output_item.done", _placed(index, done))


def _stream_summary(events: _Events, turn: Turn, at: Json, text: str) -> None:
    prefix = "response.reasoning_summary"
    part = {"type": "summary_text", "text": ""}
    events.add(f"{prefix}_part.added", {**at, "part": part})
    for delta in turn.deltas(text):
        events.delta(f"{prefix}_text.delta", {**at, "delta": delta})
    events.add(f"{prefix}_text.done", {**at, "text": text})
    events.add(f"{prefix}_part.done", {**at, "part": {**part, "text": text}})


def _stream_content(events: _Events, turn: Turn, at: Json, item: Text | Refusal) -> None:
    events.add("response.content_part.added", {**at, "part": _part(item, "")})
    if isinstance(item, Refusal):
        for delta in turn.deltas(item.text):
            events.delta("response.refusal.delta", {**at, "delta": delta})
        events.add("response.refusal.done", {**at, "refusal": item.text})
    else:
        for delta in turn.deltas(item.text):
            events.delta("response.output_text.delta", {**at, "delta": delta, "logprobs": []})
        events.add("response.output_text.done", {**at, "text": item.text, "logprobs": []})
    events.add("response.content_part.done", {**at, "part": _part(item, item.text)})


def _placed(index: int, item: Json) -> Json:
    return {"output_index": index, "item": item}


def _item(turn: Turn, index: int, item: Item) -> Json:
    """A finished output item."""
    is_last = index == len(turn.answer.items) - 1
    cut_short = turn.answer.status == "incomplete" and is_last
    status = "incomplete" if cut_short else "completed"
    if isinstance(item, ToolCall):
        return {
            "id": turn.item_id("fc", index),
            "type": "function_call",
            "status": status,
            "arguments": item.arguments_text,
            "call_id": turn.call_id(item, index),
            "name": item.name,
        }
    if isinstance(item, CustomToolCall):
        return {
            "id": turn.item_id("ctc", index),
            "type": "custom_tool_call",
            "status": status,
            "call_id": turn.call_id(item, index),
            "input": item.input,
            "name": item.name,
        }
    if isinstance(item, Reasoning):
        summary = [{"type": "summary_text", "text": item.text}] if item.text else []
        thought: Json = {
            "id": turn.item_id("rs", index),
            "type": "reasoning",
            "summary": summary,
        }
        if "reasoning.encrypted_content" in (turn.body.get("include") or ()):
            thought["encrypted_content"] = f"encrypted-{turn.unique}"
        return thought
    return {
        "id": turn.item_id("msg", index),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [_part(item, item.text)],
    }


def _part(item: Text | Refusal, text: str) -> Json:
    if isinstance(item, Refusal):
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _finished(snapshot: Json, turn: Turn) -> Json:
    answer = turn.answer
    finished: Json = {
        **snapshot,
        "status": answer.status,
        "output": [_item(turn, index, item) for index, item in enumerate(answer.items)],
        "usage": _usage(turn) if answer.status != "failed" else None,
    }
    if answer.status == "completed":
        finished["completed_at"] = int(time.time())
    elif answer.status == "failed":
        finished["error"] = {"code": answer.reason, "message": answer.message}
    else:
        finished["incomplete_details"] = {"reason": answer.reason}
    return finished


def _usage(turn: Turn) -> Json:
    usage = turn.usage()
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _snapshot(turn: Turn) -> Json:
    """The response object before the model has produced anything."""
    body = turn.body
    reasoning = body.get("reasoning") or {}
    text = body.get("text") or {}
    return {
        "id": turn.response_id,
        "object": "response",
        "created_at": turn.created_at,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "conversation": _conversation(body.get("conversation")),
        "error": None,
        "incomplete_details": None,
        "instructions": _raw(body.get("instructions")),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "model": body.get("model", "scripted"),
        "output": [],
        "parallel_tool_calls": _or(body.get("parallel_tool_calls"), True),
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None, **reasoning},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default",
        "store": _or(body.get("store"), True),
        "temperature": _or(body.get("temperature"), 1.0),
        "text": {"format": {"type": "text"}, "verbosity": "medium", **text},
        "tool_choice": _or(body.get("tool_choice"), "auto"),
        "tools": _raw(body.get("tools") or []),
        "top_logprobs": _or(body.get("top_logprobs"), 0),
        "top_p": _or(body.get("top_p"), 1.0),
        "truncation": _or(body.get("truncation"), "disabled"),
        "usage": None,
        "user": body.get("user"),
        "metadata": body.get("metadata") or {},
    }


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _conversation(value: Any) -> Json | None:
    if isinstance(value, str):
        return {"id": value}
    return value if isinstance(value, dict) else None


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
