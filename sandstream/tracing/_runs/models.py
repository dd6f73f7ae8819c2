"""Convert a model's answer in a run's log to span data."""

from __future__ import annotations

from typing import Any

import msgspec
from sandstream_actors.model.chat_messages import chat_messages
from sandstream_actors.model.responses_request import FAKE_ID
from sandstream_actors.model.vendor_types import typed_response
from sandstream_actors.run.model_request import build_request
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import ModelAnswered, RunDone

from sandstream.tracing._runs.usage import answer_usage
from sandstream.tracing.span_data import GenerationSpanData, ResponseSpanData, SpanData

_MODEL_ERRORS = ("model_http", "model_timeout", "model_misconfigured")


def model_span_data(state: RunState, event: ModelAnswered, *, contents: bool) -> SpanData:
    """The data of the answer to the request that ``state`` produces."""
    output = [msgspec.json.decode(item) for item in event.output]
    request = build_request(state)
    usage = answer_usage(event.usage)
    model = event.model or request.model
    if any(isinstance(item, dict) and item.get("id") == FAKE_ID for item in output):
        # only answers of Chat Completions have items without their own ids
        data = GenerationSpanData(model=model, model_config=dict(request.settings), usage=usage)
        if contents:
            given = [msgspec.json.decode(item) for item in request.input]
            data.input = chat_messages(given, request.instructions, model)
            data.output = chat_messages(output, None, model)
        return data
    response = ResponseSpanData(usage=usage)
    response.response_id = event.response_id
    if contents:
        response.input = [msgspec.json.decode(item) for item in request.input]
        response.response = _response(event, output, model)
    return response


def model_error_data(state: RunState, event: RunDone) -> SpanData | None:
    """Data for a run that ended because its model could not answer; otherwise ``None``."""
    return ResponseSpanData() if is_without_answer(state, event) else None


def is_without_answer(state: RunState, done: RunDone) -> bool:
    """Whether the model did not answer, rather than the run failing because of its answer."""
    code = done.error.code if done.error is not None else ""
    if code == "model_behavior":
        is_due = bool(state.tool_calls) and not state.open_tool_calls()
        return state.turn == 0 or is_due
    return code in _MODEL_ERRORS


def _response(event: ModelAnswered, output: list[Any], model: str) -> Any:
    return typed_response(
        {
            "id": event.response_id or "",
            "model": model,
            "object": "response",
            "output": output,
            "status": "completed",
            "usage": msgspec.json.decode(event.raw_usage) if event.raw_usage else None,
        }
    )
