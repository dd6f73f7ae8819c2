"""Encode a `ModelRequest` for the Responses API. Raw fragments are passed on unparsed."""

from __future__ import annotations

from typing import Any

import msgspec

from sandstream_actors.model.interface import NO_JSON, ModelCallError, ModelRequest, given
from sandstream_actors.model.request_body import make_call, named
from sandstream_actors.model.transport import Call

FAKE_ID = "__fake_id__"

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "truncation": "truncation",
    "max_tokens": "max_output_tokens",
    "store": "store",
    "prompt_cache_retention": "prompt_cache_retention",
    "prompt_cache_options": "prompt_cache_options",
    "reasoning": "reasoning",
    "metadata": "metadata",
    "context_management": "context_management",
}
_HOSTED_CHOICES = frozenset(
    {
        "file_search",
        "web_search",
        "web_search_preview",
        "computer_use_preview",
        "image_generation",
        "code_interpreter",
        "mcp",
    }
)
_COMPUTER_CHOICES = frozenset({"computer", "computer_use", "computer_use_preview"})
# Built-in tools that are chosen by type, but only if they are offered.
_OFFERED_CHOICES = frozenset({"shell", "apply_patch", "tool_search"})


class _ToolHead(msgspec.Struct):
    type: str = ""
    name: str | None = None


class _ItemHead(msgspec.Struct):
    id: Any = None
    type: Any = None
    provider_data: msgspec.Raw = NO_JSON


_tool_head = msgspec.json.Decoder(_ToolHead).decode
_item_head = msgspec.json.Decoder(_ItemHead).decode


def responses_call(request: ModelRequest, model: str) -> Call:
    settings = request.settings
    arguments: dict[str, Any] = {}
    if model:
        arguments["model"] = model
    if request.stream:
        arguments["stream"] = True
    arguments["include"] = _include(settings)
    arguments["input"] = own_items(request.input)
    for name, value in (
        ("instructions", request.instructions),
        ("previous_response_id", request.previous_response_id),
        ("conversation", request.conversation_id),
        ("prompt", request.prompt if given(request.prompt) else None),
    ):
        if value is not None:
            arguments[name] = value
    arguments.update(named(settings, _SETTINGS))
    _put_tools(arguments, request)
    text = _text(request)
    if text:
        arguments["text"] = text
    call_settings = dict(settings)
    if settings.get("top_logprobs") is not None:
        extra = {**(settings.get("extra_args") or {}), "top_logprobs": settings["top_logprobs"]}
        call_settings["extra_args"] = extra
        request = msgspec.structs.replace(request, settings=call_settings)
    return make_call("/responses", "responses.create()", arguments, request)


def own_items(items: list[msgspec.Raw]) -> list[Any]:
    """Items without traces of other providers: their data, placeholder ids and reasoning."""
    kept: list[Any] = []
    for item in items:
        text = bytes(item)
        if b"provider_data" not in text and FAKE_ID.encode() not in text:
            kept.append(item)
            continue
        head = _head(text)
        foreign = given(head.provider_data) and bytes(head.provider_data) != b"{}"
        if head.type == "reasoning" and foreign:
            continue
        if head.id != FAKE_ID and not head.provider_data:
            kept.append(item)
            continue
        fields: dict[str, Any] = msgspec.json.decode(text)
        fields.pop("provider_data", None)
        if head.id == FAKE_ID:
            del fields["id"]
        kept.append(fields)
    return kept


def _head(text: bytes) -> _ItemHead:
    try:
        return _item_head(text)
    except msgspec.DecodeError as error:
        raise ModelCallError(
            "misconfigured", f"An input item is not a JSON object: {error}", code="bad_input"
        ) from error


def _include(settings: dict[str, Any]) -> list[str]:
    wanted: list[str] = list(settings.get("response_include") or ())
    if settings.get("top_logprobs") is not None:
        wanted.append("message.output_text.logprobs")
    return list(dict.fromkeys(wanted))


def _text(request: ModelRequest) -> dict[str, Any]:
    text: dict[str, Any] = {}
    schema = request.output_schema
    if schema is not None:
        text["format"] = {
            "type": "json_schema",
            "name": schema.name,
            "schema": schema.schema,
            "strict": schema.strict,
        }
    if request.settings.get("verbosity") is not None:
        text["verbosity"] = request.settings["verbosity"]
    return text


def _put_tools(arguments: dict[str, Any], request: ModelRequest) -> None:
    # With a stored prompt the tools may be on the server: an empty list would remove them.
    on_server = given(request.prompt) and not request.tools
    if not on_server:
        arguments["tools"] = request.tools
    choice = tool_choice(request.settings.get("tool_choice"), request.tools)
    if choice is not None and not (on_server and isinstance(choice, dict)):
        arguments["tool_choice"] = choice
    parallel = request.settings.get("parallel_tool_calls")
    if parallel is not None and (request.tools or given(request.prompt)):
        arguments["parallel_tool_calls"] = parallel


def tool_choice(choice: Any, tools: list[msgspec.Raw]) -> str | dict[str, Any] | None:
    """The wire form of a tool choice: a mode, a hosted tool's type, or another tool's name."""
    if choice is None or choice in ("auto", "required", "none"):
        return choice  # type: ignore[no-any-return]
    if isinstance(choice, dict):
        if "type" in choice:
            return choice
        return {"server_label": choice.get("server_label"), "type": "mcp", "name": choice["name"]}
    offered = [_tool_head(tool) for tool in tools]
    named_so = any(tool.type == "function" and tool.name == choice for tool in offered)
    types = {tool.type for tool in offered}
    if choice in _COMPUTER_CHOICES and not named_so:
        for kind in ("computer", "computer_use_preview"):
            if kind in types:
                return {"type": kind}
    if choice in _OFFERED_CHOICES and choice in types:
        return {"type": choice}
    if choice == "tool_search" and tools and not named_so:
        raise ModelCallError(
            "misconfigured",
            "tool_choice='tool_search' needs the tool search tool, or a function of that name.",
            code="bad_tool_choice",
        )
    if choice in _HOSTED_CHOICES:
        return {"type": choice}
    if not named_so and any(tool.type == "custom" and tool.name == choice for tool in offered):
        return {"type": "custom", "name": choice}
    return {"type": "function", "name": choice}
