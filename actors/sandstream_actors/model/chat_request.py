"""Encode a `ModelRequest` for the Chat Completions API.

That API has no server-side conversation state and no stored prompts. Like the reference, we omit
them and log a warning once per call.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from sandstream_actors.model.chat_messages import chat_messages
from sandstream_actors.model.failures import unsupported
from sandstream_actors.model.interface import (
    NO_JSON,
    ModelCallError,
    ModelRequest,
    OutputSchema,
    given,
)
from sandstream_actors.model.request_body import make_call, named
from sandstream_actors.model.transport import Call

logger = logging.getLogger(__name__)

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "max_tokens": "max_tokens",
    "verbosity": "verbosity",
    "metadata": "metadata",
    "store": "store",
    "prompt_cache_retention": "prompt_cache_retention",
    "prompt_cache_options": "prompt_cache_options",
}


class _Tool(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: msgspec.Raw = NO_JSON
    strict: bool | None = None


_decode_item = msgspec.json.Decoder(dict[str, Any]).decode
_decode_tool = msgspec.json.Decoder(_Tool).decode


def chat_call(request: ModelRequest, model: str, *, official: bool) -> Call:
    _say_what_is_left_out(request)
    settings = request.settings
    arguments: dict[str, Any] = {"model": model}
    if request.stream:
        arguments["stream"] = True
    try:
        items = [_decode_item(item) for item in request.input]
    except msgspec.DecodeError as error:
        raise ModelCallError(
            "misconfigured", f"An input item is not a JSON object: {error}", code="bad_input"
        ) from error
    arguments["messages"] = chat_messages(items, request.instructions, model)
    arguments.update(named(settings, _SETTINGS))
    if official:
        arguments.setdefault("store", True)
    if settings.get("top_logprobs") is not None:
        arguments["logprobs"] = True
        arguments["top_logprobs"] = settings["top_logprobs"]
    effort = (settings.get("reasoning") or {}).get("effort")
    if effort is not None:
        arguments["reasoning_effort"] = effort
    if request.tools:
        arguments["tools"] = [chat_tool(tool) for tool in request.tools]
        if settings.get("parallel_tool_calls") is not None:
            arguments["parallel_tool_calls"] = settings["parallel_tool_calls"]
    choice = chat_tool_choice(settings.get("tool_choice"))
    if choice is not None:
        arguments["tool_choice"] = choice
    if request.output_schema is not None:
        arguments["response_format"] = _response_format(request.output_schema)
    include_usage = settings.get("include_usage")
    if request.stream and (include_usage is not None or official):
        arguments["stream_options"] = {"include_usage": include_usage is not False}
    return make_call("/chat/completions", "chat.completions.create()", arguments, request)


def chat_tool(raw: msgspec.Raw) -> dict[str, Any]:
    tool = _decode_tool(raw)
    if tool.type == "custom":
        raise unsupported(
            f"Custom tools need the Responses API: {tool.name!r} cannot be offered on a Chat "
            "Completions route. Use a route of the Responses API, or leave the tool out (sandbox "
            "agents: choose capabilities without apply_patch)."
        )
    if tool.type != "function":
        raise unsupported(
            f"Hosted tools need the Responses API: {tool.type!r} cannot be offered on a Chat "
            "Completions route."
        )
    function: dict[str, Any] = {"name": tool.name, "description": tool.description or ""}
    if given(tool.parameters):
        function["parameters"] = tool.parameters
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def chat_tool_choice(choice: Any) -> str | dict[str, Any] | None:
    if choice is None or choice in ("auto", "required", "none"):
        return choice  # type: ignore[no-any-return]
    if not isinstance(choice, str):
        raise unsupported("MCPToolChoice needs the Responses API; this route speaks chat.")
    return {"type": "function", "function": {"name": choice}}


def _response_format(schema: OutputSchema) -> dict[str, Any]:
    wanted = {"name": schema.name, "strict": schema.strict, "schema": schema.schema}
    return {"type": "json_schema", "json_schema": wanted}


def _say_what_is_left_out(request: ModelRequest) -> None:
    ignored = [
        name
        for name, value in (
            ("previous_response_id", request.previous_response_id),
            ("conversation_id", request.conversation_id),
            ("prompt", request.prompt if given(request.prompt) else None),
        )
        if value is not None
    ]
    if ignored:
        logger.warning(
            "a Chat Completions route ignores parts of the request", extra={"ignored": ignored}
        )
